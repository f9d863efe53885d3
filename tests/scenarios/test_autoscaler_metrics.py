"""The autoscaler with failing, custom and external metrics APIs."""

import msgspec
import pytest

from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.metrics import CUSTOM_METRICS, EXTERNAL_METRICS
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from controller_manager.testing.metering import Meter, autoscaler
from tests.scenarios.autoscaler import HPAS, QUEUE, conditions_of, events, external, look, manage, shop

pytestmark = pytest.mark.virtual


async def test_failed_metric_prevents_scale_down() -> None:
    async with Cluster() as cluster:
        meter, web = shop(cluster, load=100)
        await web.create(4)
        await manage(cluster, "--horizontal-pod-autoscaler-downscale-stabilization=0s")
        cpu = autoscaler(web).spec.metrics[0]
        both = (msgspec.to_builtins(cpu), external({"type": "Value", "value": "10"}))
        await cluster.client.create(HPAS, autoscaler(web, *both))
        await cluster.advance(60)
        assert await web.replicas() == 4
        assert (await conditions_of(cluster))["ScalingActive"] == ("False", "FailedGetExternalMetric")
        assert {reason for reason, _ in await events(cluster)} == {
            "FailedGetExternalMetric",
            "FailedComputeMetricsReplicas",
        }
        found = (await look(cluster)).status.current_metrics
        assert [one.type for one in found] == ["Resource", ""]

        web.load = 600
        web.measure()
        await cluster.advance(15)
        assert await web.replicas() == 8

        web.load = 100
        await web.follow()
        meter.values[QUEUE] = "1"
        await cluster.advance(30)
        assert await web.follow() == 2
        assert (await conditions_of(cluster))["ScalingActive"] == ("True", "ValidMetricFound")


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
@pytest.mark.parametrize("listed", [True, False])
async def test_custom_metrics_of_pods_and_objects_in_either_version(version: str, listed: bool) -> None:
    async with Cluster() as cluster:
        meter, web = shop(cluster)
        meter.custom = version
        if not listed:
            cluster.serve_beside(f"/apis/{CUSTOM_METRICS}", lambda request: unlisted(meter, request))
        await web.create(2)
        meter.values |= {
            "namespaces/default/pods/*/hits": {"web-1": "30", "web-2": "50"},
            "namespaces/default/services/front/load": "90",
            "namespaces/default/metrics/tenants": "14",
        }
        hits = {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}
        load = {
            "metric": {"name": "load"},
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
            "target": {"type": "AverageValue", "averageValue": "15"},
        }
        tenants = {
            "metric": {"name": "tenants"},
            "describedObject": {"apiVersion": "v1", "kind": "Namespace", "name": "other"},
            "target": {"type": "Value", "value": "10"},
        }
        metrics = (
            {"type": "Pods", "pods": hits},
            {"type": "Object", "object": load},
            {"type": "Object", "object": tenants},
        )
        await manage(cluster, "--horizontal-pod-autoscaler-downscale-stabilization=0s")
        await cluster.client.create(HPAS, autoscaler(web, *metrics, high=20))
        await cluster.advance(5)
        assert await web.replicas() == 4
        found = (await look(cluster)).status.current_metrics
        assert [(one.pods or one.object or one.external).current.average_value for one in found] == ["40", "45", None]
        assert found[2].object is not None
        assert found[2].object.current.value == "14"
        meter.values["namespaces/default/metrics/tenants"] = "10"
        for _ in range(3):
            meter.values["namespaces/default/pods/*/hits"] = {f"web-{n}": "10" for n in range(1, 20)}
            await web.follow()
            await cluster.advance(15)
        assert await web.replicas() == 6


async def unlisted(meter: Meter, request: Request) -> Response:
    """Answer as an adapter whose group has no discovery document."""
    if request.path.count("/") == 2:
        raise InternalError("not now")
    return await meter.answer(request)


async def test_external_metric_request_has_label_selector() -> None:
    async with Cluster() as cluster:
        meter, web = shop(cluster)
        await web.create(1)
        seen: list[tuple[tuple[str, str], ...]] = []

        async def answer(request: Request) -> Response:
            seen.append(request.query)
            return await meter.answer(request)

        cluster.serve_beside(f"/apis/{EXTERNAL_METRICS}", answer)
        meter.values[QUEUE] = "31"
        selector = {"matchLabels": {"queue": "orders"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
        metric = {"name": "queue_length", "selector": selector}
        spec = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}}
        await manage(cluster)
        await cluster.client.create(HPAS, autoscaler(web, {"type": "External", "external": spec}))
        await cluster.advance(5)
        assert await web.replicas() == 4
        assert seen[0] == (("labelSelector", "a,queue=orders"),)
        found = (await look(cluster)).status.current_metrics[0].external
        assert found is not None
        assert found.current.average_value == "31"
        assert found.metric.selector is not None
