"""The autoscaler with targets and APIs that hang, reject requests or cannot be scaled."""

import pytest

from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.metrics import EXTERNAL_METRICS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from controller_manager.testing.metering import Meter, Workload, autoscaler
from tests.scenarios.autoscaler import HPAS, ONLY, conditions_of, events, external, manage, shop

pytestmark = pytest.mark.virtual


async def test_hanging_metrics_api_does_not_block_other_autoscalers() -> None:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        meter.hanging.add(EXTERNAL_METRICS)
        stuck = [Workload(cluster, meter, f"stuck-{number}") for number in range(150)]
        for each in stuck:
            await each.create(1)
            await cluster.client.create(HPAS, autoscaler(each, external({"type": "Value", "value": "10"})))
        await cluster.manage(*ONLY)
        await cluster.sleep(20)
        web = Workload(cluster, meter, "web", load=300)
        await web.create(2)
        await cluster.client.create(HPAS, autoscaler(web))
        await cluster.sleep(1)
        assert await web.replicas() == 4
        await cluster.sleep(60)
        stuck = await conditions_of(cluster, Key("default", "stuck-7"))
        assert stuck["ScalingActive"] == ("False", "FailedGetExternalMetric")


async def test_hanging_scale_does_not_block_other_resources() -> None:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        kind = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        for number in range(150):
            stuck = Workload(cluster, meter, f"stuck-{number}")
            target = {**kind, "name": stuck.key.name}
            await cluster.client.create(HPAS, autoscaler(stuck, scaleTargetRef=target))

        async def hang(request: Request) -> Response:
            if "/statefulsets/" in request.path:
                await cluster.sleep(100_000)
            return await cluster.api.handle(request)

        cluster.serve_beside("/apis/apps", hang)
        await cluster.manage(*ONLY)
        await cluster.sleep(20)
        web = Workload(cluster, meter, "web", load=300)
        await web.create(2)
        await cluster.client.create(HPAS, autoscaler(web))
        await cluster.sleep(1)
        assert await web.replicas() == 4
        await cluster.sleep(60)
        assert (await conditions_of(cluster, Key("default", "stuck-7")))["AbleToScale"] == ("False", "FailedGetScale")


async def test_scale_update_timeout_frees_worker_for_others() -> None:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        shops = [Workload(cluster, meter, name, load=300) for name in ("a", "b", "c", "d", "e", "web")]
        for each in shops:
            await each.create(2)
        hanging = [0]

        async def hang(request: Request) -> Response:
            if request.method == "PUT" and "/web/" not in request.path:
                hanging.append(hanging[-1] + 1)
                await cluster.sleep(100_000)
            return await cluster.api.handle(request)

        cluster.serve_beside("/apis/apps", hang)
        await manage(cluster)
        for each in shops[:5]:
            await cluster.client.create(HPAS, autoscaler(each))
        await cluster.sleep(5)
        assert hanging[-1] == 5, "all workers hang"
        await cluster.client.create(HPAS, autoscaler(shops[5]))
        await cluster.sleep(35)
        assert await shops[5].replicas() == 4
        key = Key("default", "a")
        assert (await conditions_of(cluster, key))["AbleToScale"] == ("False", "FailedUpdateScale")


async def test_rejected_scale_update_is_reported() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        replica = await manage(cluster)

        def refuse(request: Request) -> Response | None:
            if request.method == "PUT" and request.path.endswith("/scale"):
                return Response(500, {"content-type": "application/json"}, InternalError("no").status().encode())
            return None

        replica.network.intercept(refuse)
        await cluster.client.create(HPAS, autoscaler(web))
        await cluster.advance(10)
        assert (await conditions_of(cluster))["AbleToScale"] == ("False", "FailedUpdateScale")
        ((reason, message),) = await events(cluster)
        assert reason == "FailedRescale"
        assert message.startswith("New size: 4; reason: cpu resource utilization")
        replica.network.intercept(None)
        await cluster.advance(10)
        assert await web.replicas() == 4
