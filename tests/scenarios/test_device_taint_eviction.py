"""Evictions of pods whose devices have NoExecute taints, in a whole cluster, in virtual time."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.devices import (
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceTaintRule,
    ResourceSlice,
)
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import utc_now
from controller_manager.testing import Cluster
from tests.scenarios.devices import allocate, bind, claim, claim_of, end, events, pod, tree
from tests.scenarios.test_manager_flags import most_in_work

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=device-taint-eviction-controller")
Tree = Mapping[str, Any]


def taint(key: str = "k", effect: str = "NoExecute", **more: str) -> Tree:
    return {"key": key, "effect": effect, **more}


def toleration(seconds: int | None = None, key: str = "k", effect: str = "NoExecute") -> Tree:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": effect, **limit}


async def publish(
    cluster: Cluster, devices: Mapping[str, Sequence[Tree]], generation: int = 1, name: str = "node-1"
) -> None:
    """Publish devices with these taints; replaces an existing slice."""
    listed = [{"name": one, "taints": list(taints)} for one, taints in devices.items()]
    pool = {"name": "node-1", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.org", "nodeName": "node-1", "pool": pool, "devices": listed}
    made = ResourceSlice.decode(tree(RESOURCE_SLICES, name, spec=spec))
    try:
        await cluster.client.get(RESOURCE_SLICES, Key("", name))
    except NotFound:
        await cluster.client.create(RESOURCE_SLICES, made)
    else:
        await cluster.client.patch(RESOURCE_SLICES, Key("", name), {"spec": spec})


async def use(cluster: Cluster, *tolerations: Tree, name: str = "p", device: str = "gpu-0") -> Pod:
    """Create a running pod that uses a device."""
    user = await cluster.client.create(PODS, pod(name, gpu=f"of-{name}"))
    made = await cluster.client.create(RESOURCE_CLAIMS, claim(f"of-{name}"))
    await allocate(cluster, made, user, device=device, tolerations=tolerations)
    await bind(cluster, user)
    return user


async def stays(cluster: Cluster, name: str = "p") -> bool:
    """Return whether the pod is not being deleted."""
    try:
        return (await cluster.client.get(PODS, Key("default", name))).metadata.deletion_timestamp is None
    except NotFound:
        return False


async def test_pod_of_tainted_device_is_evicted_with_reason() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await publish(cluster, {"gpu-0": [], "gpu-1": []})
        await use(cluster)
        await use(cluster, name="other", device="gpu-1")
        await use(cluster, toleration(), name="tolerant")
        await publish(cluster, {"gpu-0": [taint(effect="NoSchedule"), taint("l", "None")], "gpu-1": []})
        await cluster.settle()
        assert await stays(cluster)
        await publish(cluster, {"gpu-0": [taint()], "gpu-1": []})
        await cluster.settle()
        assert not await stays(cluster)
        assert await stays(cluster, "other")
        assert await stays(cluster, "tolerant")
        found = await cluster.client.get(PODS, Key("default", "p"))
        why = condition_of(found.status.conditions, "DisruptionTarget")
        assert why is not None
        assert (why.status, why.reason) == ("True", "DeletionByDeviceTaintManager")
        assert why.message == "Device Taint manager: deleting due to NoExecute taint"
        assert await events(cluster) == [
            "Normal DeviceTaintManagerEviction: Pod default/p is deleted: a taint of its devices is not tolerated"
        ]


async def test_toleration_seconds_count_from_taint_time() -> None:
    async with Cluster() as cluster:
        await publish(cluster, {"gpu-0": [taint()]})
        await cluster.sleep(30)
        await cluster.manage(*FLAGS)
        await use(cluster, toleration(60))
        await use(cluster, toleration(90), toleration(45), name="shorter")
        await use(cluster, toleration(60), toleration(), name="for-good")
        await cluster.sleep(10)
        assert await stays(cluster, "shorter")
        await cluster.sleep(10)
        assert not await stays(cluster, "shorter")
        assert await stays(cluster)
        await cluster.sleep(15)
        assert not await stays(cluster)
        assert await stays(cluster, "for-good")


async def test_new_manager_continues_toleration_countdown() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await publish(cluster, {"gpu-0": [taint()]})
        await use(cluster, toleration(60))
        await cluster.sleep(40)
        await replica.kill()
        await cluster.sleep(10)
        await cluster.manage(*FLAGS)
        await cluster.sleep(8)
        assert await stays(cluster)
        await cluster.sleep(4)
        assert not await stays(cluster)


async def test_removed_taint_cancels_eviction() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await publish(cluster, {"gpu-0": [taint()]})
        await use(cluster, toleration(60))
        await cluster.sleep(30)
        await publish(cluster, {"gpu-0": []})
        await cluster.advance(100)
        assert await stays(cluster)
        assert await events(cluster) == [
            "Normal DeviceTaintManagerEviction: Pod default/p may stay: the taints of its devices are gone"
        ]


async def test_slices_of_older_generation_are_ignored() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await publish(cluster, {"gpu-0": [taint()]})
        await publish(cluster, {"gpu-0": []}, generation=2, name="newer")
        await use(cluster)
        await cluster.settle()
        assert await stays(cluster)
        await cluster.client.delete(RESOURCE_SLICES, Key("", "newer"))
        await cluster.settle()
        assert not await stays(cluster)


async def test_only_pods_using_the_device_are_evicted() -> None:
    """Pods without node, without reservation, or finished are not evicted."""
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        user = await use(cluster)
        await end(cluster)
        await cluster.client.create(PODS, pod("waits", gpu="of-p"))
        await cluster.client.create(PODS, pod("without", node="node-1", gpu="of-p"))
        await publish(cluster, {"gpu-0": [taint()]})
        await cluster.settle()
        assert await stays(cluster)
        assert await stays(cluster, "waits")
        assert await stays(cluster, "without")
        there = await claim_of(cluster, "of-p")
        assert there is not None
        assert [one.uid for one in there.status.reserved_for] == [user.metadata.uid]
        await allocate(cluster, there, await cluster.client.get(PODS, Key("default", "without")))
        await cluster.settle()
        assert not await stays(cluster, "without")


async def test_taint_removed_on_server_evicts_no_pod() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await publish(cluster, {"gpu-0": [taint(timeAdded=format_time(utc_now()))]})
        await use(cluster, toleration(20))
        await cluster.settle()
        path = RESOURCE_SLICES.path()
        replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == path else None)
        replica.network.cut()
        replica.network.heal()
        await publish(cluster, {"gpu-0": []})
        await cluster.sleep(60)
        assert await stays(cluster)


async def test_evictions_are_counted() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await publish(cluster, {"gpu-0": [taint()]})
        await use(cluster)
        await cluster.settle()
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        lines = page.body.decode().splitlines()
        assert "device_taint_eviction_controller_pod_deletions_total 1" in lines
        assert "device_taint_eviction_controller_pod_deletion_duration_seconds_count 1" in lines


@pytest.mark.parametrize("gates", ["DRADeviceTaints=false", "DRADeviceTaints=true"])
async def test_disabled_feature_evicts_no_pods(gates: str) -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", f"--feature-gates={gates}")
        await publish(cluster, {"gpu-0": [taint()]})
        await use(cluster)
        await cluster.settle()
        assert await stays(cluster) is (gates == "DRADeviceTaints=false")


@pytest.mark.flag("concurrent-device-taint-eviction-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = (*FLAGS, "--cluster-api-qps=0.1", "--cluster-api-burst=1")
        await publish(cluster, {"gpu-0": []})
        for number in range(5):
            await use(cluster, name=f"p-{number}")
        replica = await cluster.manage(*slow, f"--concurrent-device-taint-eviction-syncs={workers}")
        await cluster.sleep(60)
        await publish(cluster, {"gpu-0": [taint()]})
        assert await most_in_work(cluster, replica, "device-taint-eviction-controller") == workers


RULES = "--feature-gates=DRADeviceTaintRules=true"
SERVER = (RULES, "--runtime-config=resource.k8s.io/v1beta2=true")


async def taint_by_rule(
    cluster: Cluster, effect: str = "NoExecute", name: str = "r", key: str = "k", **selector: str
) -> None:
    spec = {"deviceSelector": {"driver": "gpu.example.org", **selector}, "taint": {"key": key, "effect": effect}}
    made = DeviceTaintRule.decode(tree(DEVICE_TAINT_RULES, name, spec=spec))
    await cluster.client.create(DEVICE_TAINT_RULES, made)


async def progress(cluster: Cluster, name: str = "r") -> tuple[str, str, str]:
    rule = await cluster.client.get(DEVICE_TAINT_RULES, Key("", name))
    (condition,) = rule.status.conditions
    assert condition.type == "EvictionInProgress"
    assert condition.observed_generation == rule.metadata.generation
    return condition.status, condition.reason, condition.message


async def test_taint_rule_evicts_pods_and_reports_progress() -> None:
    async with Cluster(SERVER) as cluster:
        await cluster.manage(*FLAGS, RULES)
        await publish(cluster, {"gpu-0": [], "gpu-1": []})
        await use(cluster)
        await use(cluster, toleration(60), name="later")
        await use(cluster, name="other", device="gpu-1")
        await use(cluster, toleration(), name="tolerant")
        await taint_by_rule(cluster, device="gpu-0")
        await cluster.settle()
        assert not await stays(cluster)
        expected = ("True", "PodsPendingEviction", "2 pods need to be evicted in 1 namespace.")
        assert await progress(cluster) == expected
        await cluster.advance(15)
        so_far = "1 pod evicted since starting the controller."
        message = f"1 pod needs to be evicted in 1 namespace. {so_far}"
        assert await progress(cluster) == ("True", "PodsPendingEviction", message)
        assert await stays(cluster, "later")
        await cluster.advance(60)
        assert not await stays(cluster, "later")
        assert await progress(cluster) == ("False", "Completed", "2 pods evicted since starting the controller.")
        assert await stays(cluster, "other")
        assert await stays(cluster, "tolerant")
        await use(cluster, name="next")
        await cluster.advance(25)
        assert not await stays(cluster, "next")
        assert await progress(cluster) == ("False", "Completed", "3 pods evicted since starting the controller.")


async def test_rule_with_effect_none_reports_affected_pods() -> None:
    async with Cluster(SERVER) as cluster:
        await cluster.manage(*FLAGS, RULES)
        await publish(cluster, {"gpu-0": [], "gpu-1": []})
        await use(cluster)
        await taint_by_rule(cluster, "None")
        await cluster.settle()
        assert await stays(cluster)
        status, reason, message = await progress(cluster)
        assert (status, reason) == ("False", "NoEffect")
        assert message.startswith(
            "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace"
        )
        await use(cluster, name="more")
        await cluster.advance(60)
        assert (await progress(cluster))[2] == message
        await cluster.client.patch(DEVICE_TAINT_RULES, Key("", "r"), {"spec": {"taint": {"effect": "NoSchedule"}}})
        await cluster.settle()
        assert await progress(cluster) == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
        await cluster.client.patch(DEVICE_TAINT_RULES, Key("", "r"), {"spec": {"taint": {"effect": "NoExecute"}}})
        await cluster.advance(25)
        assert not await stays(cluster)
        assert not await stays(cluster, "more")


async def test_deleted_rule_cancels_eviction() -> None:
    async with Cluster(SERVER) as cluster:
        await cluster.manage(*FLAGS, RULES)
        await publish(cluster, {"gpu-0": []})
        await use(cluster, toleration(60))
        await taint_by_rule(cluster)
        await taint_by_rule(cluster, name="unused", pool="another")
        await cluster.settle()
        assert await progress(cluster, "unused") == ("False", "NotStarted", "")
        await cluster.client.delete(DEVICE_TAINT_RULES, Key("", "r"))
        await cluster.advance(100)
        assert await stays(cluster)
        assert len(await events(cluster)) == 1


async def test_rules_are_ignored_without_feature_gate() -> None:
    async with Cluster(SERVER) as cluster:
        await cluster.manage(*FLAGS)
        await publish(cluster, {"gpu-0": []})
        await use(cluster)
        await taint_by_rule(cluster)
        await cluster.settle()
        assert await stays(cluster)
        assert (await cluster.client.get(DEVICE_TAINT_RULES, Key("", "r"))).status.conditions == ()
