"""The horizontal pod autoscaler in a whole cluster, in virtual time."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.autoscaling import scale_of
from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from controller_manager.testing.metering import Meter, Workload, autoscaler
from tests.scenarios.autoscaler import HPAS, QUEUE, WEB, conditions_of, events, external, look, manage, shop

pytestmark = pytest.mark.virtual


async def test_load_above_target_scales_up_once() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        await manage(cluster)
        await cluster.client.create(HPAS, autoscaler(web))
        for _ in range(4):
            await cluster.advance(15)
            await web.follow()
        assert await web.replicas() == 6
        before = cluster.api.store.revision
        await cluster.advance(600)
        assert cluster.api.store.revision == before

        found = await look(cluster)
        assert (found.status.current_replicas, found.status.desired_replicas) == (6, 6)
        (metric,) = found.status.current_metrics
        assert metric.resource is not None
        assert (metric.resource.current.average_utilization, metric.resource.current.average_value) == (50, "50m")
        assert await conditions_of(cluster) == {
            "AbleToScale": ("True", "ReadyForNewScale"),
            "ScalingActive": ("True", "ValidMetricFound"),
            "ScalingLimited": ("False", "DesiredWithinRange"),
        }
        reason = "cpu resource utilization (percentage of request) is above its target"
        assert sorted(await events(cluster)) == [
            ("SuccessfulRescale", f"New size: 4; reason: {reason}"),
            ("SuccessfulRescale", f"New size: 6; reason: {reason}"),
        ]


@pytest.mark.flag("horizontal-pod-autoscaler-downscale-stabilization")
@pytest.mark.parametrize(
    ("flags", "seconds"), [((), 300), (("--horizontal-pod-autoscaler-downscale-stabilization=60s",), 60)]
)
async def test_scale_down_waits_for_stabilization_window(flags: tuple[str, ...], seconds: int) -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(6)
        await manage(cluster, *flags)
        await cluster.client.create(HPAS, autoscaler(web))
        await cluster.advance(40)
        web.load = 100
        web.measure()
        await cluster.advance(seconds - 40)
        assert await web.replicas() == 6
        assert (await conditions_of(cluster))["AbleToScale"] == ("True", "ScaleDownStabilized")
        await cluster.advance(60)
        assert await web.follow() == 2
        assert ("SuccessfulRescale", "New size: 2; reason: no metric is above its target") in await events(cluster)


@pytest.mark.flag("horizontal-pod-autoscaler-sync-period")
@pytest.mark.parametrize(("flags", "looks"), [((), 8), (("--horizontal-pod-autoscaler-sync-period=60s",), 2)])
async def test_autoscaler_is_evaluated_once_per_sync_period(flags: tuple[str, ...], looks: int) -> None:
    async with Cluster() as cluster:
        meter, web = shop(cluster, load=100)
        await web.create(2)
        await cluster.client.create(HPAS, autoscaler(web))
        await manage(cluster, *flags)
        await cluster.sleep(120)
        meter.asked.clear()
        await cluster.sleep(120)
        assert len(meter.asked) == looks


@pytest.mark.flag("horizontal-pod-autoscaler-tolerance")
@pytest.mark.parametrize(("flags", "replicas"), [((), 10), (("--horizontal-pod-autoscaler-tolerance=0.05",), 11)])
async def test_difference_within_tolerance_does_not_scale(flags: tuple[str, ...], replicas: int) -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=540)
        await web.create(10)
        await manage(cluster, *flags)
        await cluster.client.create(HPAS, autoscaler(web, high=20))
        await cluster.advance(60)
        assert await web.replicas() == replicas


@pytest.mark.parametrize(("gate", "replicas"), [("true", 11), ("false", 10)])
async def test_tolerance_of_behavior_overrides_flag(gate: str, replicas: int) -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=540)
        await web.create(10)
        await manage(cluster, f"--feature-gates=HPAConfigurableTolerance={gate}")
        await cluster.client.create(HPAS, autoscaler(web, high=20, behavior={"scaleUp": {"tolerance": "0.05"}}))
        await cluster.advance(60)
        assert await web.replicas() == replicas


async def starting(cluster: Cluster, *flags: str, ready_since: str) -> int:
    """Return the number of replicas when one of four pods is new and has a high load."""
    meter, web = shop(cluster, load=200)
    await web.create(4)
    status = {"startTime": "2026-01-01T00:00:00Z", "conditions": [ready_since and condition("True", ready_since)]}
    await cluster.client.patch(PODS, Key("default", "web-4"), {"status": status}, subresource="status")
    meter.use("web-4", web.labels, cpu="2000m")
    await manage(cluster, *flags)
    await cluster.client.create(HPAS, autoscaler(web, high=100))
    await cluster.advance(5)
    return await web.replicas()


def condition(status: str, since: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "lastTransitionTime": since}


@pytest.mark.flag("horizontal-pod-autoscaler-cpu-initialization-period")
async def test_cpu_use_during_initialization_period_is_ignored() -> None:
    # Ready for 30 seconds, but the window of the first sample began earlier.
    async with Cluster() as cluster:
        assert await starting(cluster, ready_since="2026-01-01T00:00:10Z") == 4
    async with Cluster() as cluster:
        short = "--horizontal-pod-autoscaler-cpu-initialization-period=0s"
        assert await starting(cluster, short, ready_since="2026-01-01T00:00:10Z") == 8


@pytest.mark.flag("horizontal-pod-autoscaler-initial-readiness-delay")
@pytest.mark.parametrize(("delay", "replicas"), [("30s", 8), ("10m", 4)])
async def test_pod_never_ready_after_initial_delay_is_ignored(delay: str, replicas: int) -> None:
    async with Cluster() as cluster:
        meter, web = shop(cluster, load=200)
        await web.create(4)
        status = {"startTime": "2025-12-31T23:50:00Z", "conditions": [condition("False", "2025-12-31T23:55:00Z")]}
        await cluster.client.patch(PODS, Key("default", "web-4"), {"status": status}, subresource="status")
        meter.use("web-4", web.labels, cpu="2000m")
        await manage(cluster, f"--horizontal-pod-autoscaler-initial-readiness-delay={delay}")
        await cluster.client.create(HPAS, autoscaler(web, high=100))
        await cluster.advance(10)
        assert await web.replicas() == replicas


@pytest.mark.flag("concurrent-horizontal-pod-autoscaler-syncs")
@pytest.mark.parametrize("syncs", [1, 4])
async def test_concurrent_syncs_flag_limits_writers(syncs: int) -> None:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        shops = [Workload(cluster, meter, f"web-{number}", load=300) for number in range(12)]
        for each in shops:
            await each.create(2)
            await cluster.client.create(HPAS, autoscaler(each))
        writing = [0]

        async def slow(request: Request) -> Response:
            if request.method == "PUT":
                writing.append(writing[-1] + 1)
                await cluster.sleep(10)
                writing.append(writing[-1] - 1)
            return await cluster.api.handle(request)

        cluster.serve_beside("/apis/apps", slow)
        await manage(cluster, f"--concurrent-horizontal-pod-autoscaler-syncs={syncs}")
        await cluster.sleep(150)
        assert max(writing) == syncs
        assert 2 not in [await each.replicas() for each in shops]


async def test_target_with_zero_replicas_is_not_scaled() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(0)
        await manage(cluster)
        await cluster.client.create(HPAS, autoscaler(web))
        await cluster.advance(60)
        assert await web.replicas() == 0
        assert (await conditions_of(cluster))["ScalingActive"] == ("False", "ScalingDisabled")
        await web.scale(1)
        await web.follow()
        await cluster.advance(15)
        assert await web.replicas() == 4
        assert (await conditions_of(cluster))["ScalingActive"] == ("True", "ValidMetricFound")


@pytest.mark.parametrize(
    ("replicas", "wanted", "reason"),
    [
        (12, 10, "more replicas than there may be, above Spec.MaxReplicas"),
        (1, 3, "fewer replicas than there must be, below Spec.MinReplicas"),
    ],
)
async def test_replica_bounds_apply_without_metrics(replicas: int, wanted: int, reason: str) -> None:
    async with Cluster() as cluster:
        meter, web = shop(cluster)
        await web.create(replicas)
        meter.hanging.add("metrics.k8s.io")
        await manage(cluster)
        await cluster.client.create(HPAS, autoscaler(web, low=3, high=10))
        await cluster.sleep(2)
        assert await web.replicas() == wanted
        assert await events(cluster) == [("SuccessfulRescale", f"New size: {wanted}; reason: {reason}")]
        assert (await conditions_of(cluster))["AbleToScale"] == ("True", "SucceededRescale")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}, "other"),
        ({"apiVersion": "apps/v1", "kind": "Spaceship", "name": "web"}, "Spaceship"),
        ({"apiVersion": "batch/v1", "kind": "Deployment", "name": "web"}, "Deployment"),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "name": "web"}, "no scale subresource"),
    ],
)
async def test_missing_target_is_reported(reference: dict[str, str], why: str) -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        await manage(cluster)
        await cluster.client.create(HPAS, autoscaler(web, scaleTargetRef=reference))
        await cluster.advance(60)
        assert (await conditions_of(cluster))["AbleToScale"] == ("False", "FailedGetScale")
        ((reason, message),) = await events(cluster)
        assert reason == "FailedGetScale"
        assert why in message


async def test_target_with_unserved_version_is_scaled() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        await manage(cluster)
        reference = {"apiVersion": "apps/v1beta2", "kind": "Deployment", "name": "web"}
        await cluster.client.create(HPAS, autoscaler(web, scaleTargetRef=reference))
        await cluster.advance(5)
        assert await web.replicas() == 4


@pytest.mark.parametrize("plural", ["replicasets", "statefulsets", "replicationcontrollers"])
async def test_other_kinds_with_scale_are_scaled(plural: str) -> None:
    kinds = {
        "replicasets": "ReplicaSet",
        "statefulsets": "StatefulSet",
        "replicationcontrollers": "ReplicationController",
    }
    group = "" if plural == "replicationcontrollers" else "apps"
    resource = Resource(group, "v1", plural, kinds[plural], True, Object)
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        selector: Any = web.labels if not group else {"matchLabels": web.labels}
        template = {"metadata": {"labels": web.labels}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
        tree = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 2, "selector": selector, "template": template},
        }
        await cluster.client.create(resource, Object.decode(msgspec.json.encode(tree)))
        await manage(cluster)
        reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": "web"}
        await cluster.client.create(HPAS, autoscaler(web, scaleTargetRef=reference))
        await cluster.advance(5)
        assert (await cluster.client.get(scale_of(resource), WEB, subresource="scale")).spec.replicas == 4
        assert await web.replicas() == 2


async def test_two_autoscalers_of_same_pods_do_not_scale() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        await manage(cluster)
        for name in ("web", "more"):
            made = autoscaler(web)
            meta = msgspec.structs.replace(made.metadata, name=name)
            await cluster.client.create(HPAS, msgspec.structs.replace(made, metadata=meta, raw=b""))
        await cluster.advance(60)
        more = Key("default", "more")
        assert (await conditions_of(cluster))["ScalingActive"] == ("False", "AmbiguousSelector")
        assert (await conditions_of(cluster, more))["ScalingActive"] == ("False", "AmbiguousSelector")
        await cluster.client.delete(HPAS, more)
        replicas = await web.follow()
        await cluster.advance(60)
        assert await web.replicas() > replicas


async def test_behavior_policies_limit_scaling_rate() -> None:
    slow = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    behavior = {"scaleUp": slow, "scaleDown": {**slow, "stabilizationWindowSeconds": 0}}
    async with Cluster() as cluster:
        _, web = shop(cluster, load=500)
        await web.create(1)
        await manage(cluster)
        await cluster.client.create(HPAS, autoscaler(web, behavior=behavior))
        seen = []
        for minute in range(6):
            if minute == 3:
                web.load = 50
            seen.append(await web.follow())
            await cluster.advance(59)
        assert seen == [1, 3, 4, 5, 3, 2]
        assert (await conditions_of(cluster))["ScalingLimited"][1] in ("ScaleDownLimit", "DesiredWithinRange")


async def test_external_metric_scales_to_zero_and_back() -> None:
    async with Cluster(("--feature-gates=HPAScaleToZero=true",)) as cluster:
        meter, web = shop(cluster)
        meter.values[QUEUE] = "0"
        await web.create(2)
        stabilize = "--horizontal-pod-autoscaler-downscale-stabilization=30s"
        await manage(cluster, "--feature-gates=HPAScaleToZero=true", stabilize)
        await cluster.client.create(HPAS, autoscaler(web, external({"type": "Value", "value": "10"}), low=0))
        await cluster.advance(60)
        assert await web.follow() == 0
        assert (await conditions_of(cluster))["ScaledToZero"] == ("True", "ScaledToZero")
        meter.values[QUEUE] = "25"
        await cluster.advance(15)
        assert await web.follow() == 3
        assert (await conditions_of(cluster))["ScaledToZero"] == ("False", "NotScaledToZero")
        await web.scale(0)
        await web.follow()
        await cluster.advance(60)
        assert await web.replicas() == 0
        assert (await conditions_of(cluster))["ScalingActive"] == ("False", "ScalingDisabled")


async def test_zero_min_replicas_is_rejected_without_feature_gate() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster)
        await web.create(2)
        with pytest.raises(ApiError, match="minReplicas"):
            await cluster.client.create(HPAS, autoscaler(web, external({"type": "Value", "value": "10"}), low=0))


async def test_metrics_have_upstream_names() -> None:
    async with Cluster() as cluster:
        _, web = shop(cluster, load=300)
        await web.create(2)
        replica = await manage(cluster, "--authorization-always-allow-paths=/metrics")
        await cluster.client.create(HPAS, autoscaler(web))
        await cluster.advance(10)
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        lines = page.body.decode().splitlines()
        prefix = "horizontal_pod_autoscaler_controller_"
        for line in (
            'desired_replicas{hpa_name="web",namespace="default"} 4',
            "num_horizontal_pod_autoscalers 1",
            'reconciliations_total{action="scale_up",error="none"} 1',
            'reconciliation_duration_seconds_count{action="scale_up",error="none"} 1',
            'metric_computation_total{action="scale_up",error="none",metric_type="Resource"} 1',
            'reconciliation_duration_seconds_bucket{action="scale_up",error="none",le="16.384"} 1',
        ):
            assert prefix + line in lines
