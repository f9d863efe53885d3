"""The scheduler in a whole cluster, in virtual time."""

import contextlib
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from controller_manager.api.apps import REPLICA_SETS
from controller_manager.api.conditions import condition_of
from controller_manager.api.core import EVENTS, NODES, PODS, Node, Pod
from controller_manager.api.devices import (
    DELETE_PROTECTION,
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from controller_manager.api.errors import NotFound
from controller_manager.api.model import Object
from controller_manager.api.resource import Key, Resource
from controller_manager.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from controller_manager.api.wire import Request, Response
from controller_manager.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from controllers._device_claims import devices_of
from controllers.scheduler import SPECS, event_handlers
from controllers.scheduler.controller import SchedulerOptions
from controllers.scheduler.pod_requirements import nominated_node
from tests.scenarios.trials import one_of
from tests.scenarios.workloads import replica_set

pytestmark = pytest.mark.virtual
FLAGS = ("--leader-elect=false", "--controllers=scheduler")
NO_CPU = (
    "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: "
    "2 No preemption victims found for incoming pod."
)
CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, Object)
Tree = Mapping[str, Any]


async def make_node(cluster: Cluster, name: str, cpu: str = "4", pods: str = "110", **parts: Any) -> None:
    labels = {"kubernetes.io/hostname": name, **parts.pop("labels", {})}
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": pods}
    tree = {"metadata": {"name": name, "labels": labels}, "spec": parts, "status": {"allocatable": allocatable}}
    await cluster.client.create(NODES, Node.decode(msgspec.json.encode(tree)))
    taints = parts.get("taints", [])  # a new node has one until it is ready
    await cluster.client.patch(NODES, Key("", name), {"spec": {"taints": taints}})


async def make_pod(cluster: Cluster, name: str, cpu: str = "1", labels: Tree | None = None, **spec: Any) -> None:
    container = {"name": "c", "image": "example.org/app:1", "resources": {"requests": {"cpu": cpu}}}
    tree = {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }
    await cluster.client.create(PODS, Pod.decode(msgspec.json.encode(tree)))


async def make_class(cluster: Cluster, name: str, value: int, policy: str = "PreemptLowerPriority") -> None:
    tree = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
    await cluster.client.create(CLASSES, Object.decode(msgspec.json.encode(tree)))


async def nodes_of(cluster: Cluster) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in (await cluster.client.list(PODS, "default")).items}


async def told(cluster: Cluster, reason: str) -> list[str]:
    return [one.message for one in (await cluster.client.list(EVENTS, "default")).items if one.reason == reason]


async def condition(cluster: Cluster, name: str) -> tuple[str, str, str]:
    pod = await cluster.client.get(PODS, Key("default", name))
    found = condition_of(pod.status.conditions, "PodScheduled")
    assert found is not None
    return found.status, found.reason, found.message


async def test_pods_are_bound_where_there_is_room() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a", cpu="2")
        await make_node(cluster, "b", cpu="2")
        for number in range(5):
            await make_pod(cluster, f"p{number}")
        await cluster.settle()
        found = await nodes_of(cluster)
        assert sorted(found.values()) == ["", "a", "a", "b", "b"]
        left = next(name for name, node in found.items() if not node)
        assert await condition(cluster, left) == ("False", "Unschedulable", NO_CPU)
        assert len(await told(cluster, "Scheduled")) == 4
        assert await told(cluster, "FailedScheduling") == [NO_CPU]
        await cluster.client.delete(PODS, Key("default", next(n for n, node in found.items() if node)), grace=0)
        await cluster.settle()
        assert (await nodes_of(cluster))[left]
        assert (await condition(cluster, left))[0] == "True"


async def test_a_node_that_comes_takes_who_waits() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_pod(cluster, "p", nodeSelector={"disk": "fast"})
        await cluster.settle()
        assert await condition(cluster, "p") == (
            "False",
            "Unschedulable",
            "no nodes available to schedule pods",
        )
        await make_node(cluster, "a")
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": ""}
        await cluster.client.patch(NODES, Key("", "a"), {"metadata": {"labels": {"disk": "fast"}}})
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "a"}


async def test_metrics_tell_what_brought_pods_to_which_queue() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await cluster.settle()
        await make_node(cluster, "a", cpu="1")
        await make_pod(cluster, "large", cpu="2")
        await make_pod(cluster, "gated", schedulingGates=[{"name": "example.com/wait"}])
        await cluster.settle()
        await make_node(cluster, "b")
        await cluster.client.patch(PODS, Key("default", "gated"), {"spec": {"schedulingGates": []}})
        await cluster.advance(10)
        assert (await nodes_of(cluster))["large"] == "b"
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        family = "scheduler_queue_incoming_pods_total{"
        found = {line.partition("{")[2] for line in bytes(answer.body).decode().splitlines() if line.startswith(family)}
        assert {
            'event="UnschedulablePodAdd",queue="active"} 1',
            'event="UnschedulablePodAdd",queue="unschedulable"} 1',
            'event="UnschedulablePodUpdatePodSchedulingGatesEliminated",queue="active"} 1',
        } <= found
        assert {'event="ScheduleAttemptFailure",queue="unschedulable"', 'event="NodeAdd",queue="active"'} <= {
            line.partition("}")[0] for line in found
        }


async def test_a_binding_that_is_refused_is_an_error_and_tried_again() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.settle()
        await make_node(cluster, "a")
        refused = Response(403, {}, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not yours"}')
        replica.network.intercept(lambda request: refused if request.path.endswith("/binding") else None)
        await make_pod(cluster, "p")
        await cluster.sleep(0.5)
        status, reason, message = await condition(cluster, "p")
        assert (status, reason) == ("False", "SchedulerError")
        assert "not yours" in message
        assert len(await told(cluster, "FailedScheduling")) == 1
        replica.network.intercept(lambda _: None)
        await cluster.advance(10)
        assert await nodes_of(cluster) == {"p": "a"}
        assert (await condition(cluster, "p"))[:2] == ("True", "")


async def test_gated_pods_and_those_of_other_schedulers_are_left_alone() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a")
        await make_pod(cluster, "gated", schedulingGates=[{"name": "example.org/wait"}])
        await make_pod(cluster, "other", schedulerName="somebody")
        await cluster.advance(400)
        assert await nodes_of(cluster) == {"gated": "", "other": ""}
        await cluster.client.patch(PODS, Key("default", "gated"), {"spec": {"schedulingGates": []}})
        await cluster.settle()
        assert await nodes_of(cluster) == {"gated": "a", "other": ""}


async def test_important_pods_go_first() -> None:
    async with Cluster() as cluster:
        await make_node(cluster, "a", cpu="1")
        for name, priority in (("low", 1), ("high", 100), ("middle", 50)):
            await make_class(cluster, name, priority, "Never")
            await make_pod(cluster, name, priorityClassName=name)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        assert await nodes_of(cluster) == {"low": "", "high": "a", "middle": ""}


async def test_a_workload_comes_to_nodes() -> None:
    async with Cluster() as cluster, PodAgent(cluster, binds=False):
        await cluster.manage("--leader-elect=false", "--controllers=*,scheduler")
        for name in ("a", "b", "c"):
            await make_node(cluster, name)
        await cluster.client.create(REPLICA_SETS, replica_set("web", 6))
        await cluster.settle()
        found = await nodes_of(cluster)
        assert sorted(found.values()) == ["a", "a", "b", "b", "c", "c"]
        assert (await cluster.client.get(REPLICA_SETS, Key("default", "web"))).status.ready_replicas == 6


async def test_a_more_important_pod_takes_the_room_of_others() -> None:
    async with Cluster() as cluster, PodAgent(cluster, binds=False, stop=20):
        await cluster.manage(*FLAGS)
        for name, value in (("low", 1), ("high", 100)):
            await make_class(cluster, name, value)
        await make_node(cluster, "a", cpu="2")
        await make_node(cluster, "b", cpu="2")
        for number in range(4):
            await make_pod(cluster, f"p{number}", priorityClassName="low")
        await cluster.settle()
        await make_pod(cluster, "vip", cpu="2", priorityClassName="high")
        await cluster.sleep(10)
        waiting = await cluster.client.get(PODS, Key("default", "vip"))
        nominated = nominated_node(waiting)
        assert nominated in ("a", "b")
        assert not waiting.spec.node_name
        leaving = [one for one in (await cluster.client.list(PODS, "default")).items if one.metadata.deletion_timestamp]
        assert [one.spec.node_name for one in leaving] == [nominated, nominated]
        for one in leaving:
            why = condition_of(one.status.conditions, "DisruptionTarget")
            assert why is not None
            assert (why.status, why.reason) == ("True", "PreemptionByScheduler")
        await cluster.advance(60)
        found = await nodes_of(cluster)
        assert found.pop("vip") == nominated
        assert len(found) == 2
        assert len(await told(cluster, "Preempted")) == 2


async def test_who_may_not_take_the_room_of_others_waits() -> None:
    async with Cluster() as cluster, PodAgent(cluster, binds=False):
        await cluster.manage(*FLAGS)
        await make_class(cluster, "polite", 100, "Never")
        await make_node(cluster, "a", cpu="1")
        await make_pod(cluster, "p")
        await cluster.settle()
        await make_pod(cluster, "vip", priorityClassName="polite")
        await cluster.advance(60)
        assert await nodes_of(cluster) == {"p": "a", "vip": ""}


async def make_claim(cluster: Cluster, provisioner: str) -> None:
    meta = {"name": "late", "namespace": "default"}
    late = {"metadata": {"name": "late"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.client.create(STORAGE_CLASSES, StorageClass.decode(msgspec.json.encode(late)))
    claim = PersistentVolumeClaim.decode(msgspec.json.encode({"metadata": meta, "spec": spec}))
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim)


async def make_volume(cluster: Cluster, node: str, claim: Tree | None = None) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "late",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **({"claimRef": claim} if claim else {}),
    }
    volume = PersistentVolume.decode(msgspec.json.encode({"metadata": {"name": "v"}, "spec": spec}))
    await cluster.client.create(PERSISTENT_VOLUMES, volume)


USING: Tree = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "late"}}]}
WITH_VOLUMES = ("--leader-elect=false", "--controllers=scheduler,persistentvolume-binder-controller")


async def test_a_claim_that_waits_gets_the_volume_of_a_node() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*WITH_VOLUMES)
        for name in ("a", "b"):
            await make_node(cluster, name)
        await make_claim(cluster, "kubernetes.io/no-provisioner")
        await make_pod(cluster, "p", **USING)
        await cluster.settle()
        assert "available persistent volumes" in (await condition(cluster, "p"))[2]
        await make_volume(cluster, "b")
        await cluster.advance(60)
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "late"))
        assert (claim.status.phase, claim.spec.volume_name) == ("Bound", "v")
        assert await nodes_of(cluster) == {"p": "b"}


async def test_a_volume_is_made_at_the_node_of_its_pod() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*WITH_VOLUMES)
        await make_node(cluster, "a")
        await make_claim(cluster, "example.org/made")
        await make_pod(cluster, "p", **USING)
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "late"))
        assert (claim.metadata.annotations or {})["volume.kubernetes.io/selected-node"] == "a"
        assert await nodes_of(cluster) == {"p": ""}
        meta = claim.metadata
        reference = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid, "kind": "PersistentVolumeClaim"}
        await make_volume(cluster, "a", {**reference, "apiVersion": "v1"})
        await cluster.advance(60)
        assert await nodes_of(cluster) == {"p": "a"}


async def nominated(cluster: Cluster) -> str:
    return nominated_node(await cluster.client.get(PODS, Key("default", "p")))


@pytest.mark.parametrize("gate", [True, False])
async def test_who_waits_for_volumes_says_where_it_is_expected(gate: bool) -> None:
    async with Cluster() as cluster:
        expects = f"--feature-gates=NominatedNodeNameForExpectation={str(gate).lower()}"
        await cluster.manage(*WITH_VOLUMES, expects)
        await make_node(cluster, "a")
        await make_claim(cluster, "example.org/made")
        await make_pod(cluster, "p", **USING)
        await make_pod(cluster, "plain")
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "", "plain": "a"}
        assert await nominated(cluster) == ("a" if gate else "")
        gone = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
        await cluster.client.patch(NODES, Key("", "a"), {"spec": {"unschedulable": True}})
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, Key("default", "late"), gone)
        await cluster.advance(60)
        assert await nominated(cluster) == ""


async def test_who_waits_for_volumes_keeps_nobody_else_waiting() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*WITH_VOLUMES, "--concurrent-bindings=1")
        await make_node(cluster, "a", cpu="64")
        await make_claim(cluster, "example.org/made")
        for number in range(5):
            await make_pod(cluster, f"waits-{number}", **USING)
        await cluster.settle()
        await make_pod(cluster, "plain")
        await cluster.settle()
        assert (await nodes_of(cluster))["plain"] == "a"


async def test_a_volume_that_cannot_be_made_at_a_node_is_tried_elsewhere() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*WITH_VOLUMES)
        await make_node(cluster, "a")
        await make_claim(cluster, "example.org/made")
        await make_pod(cluster, "p", **USING)
        await cluster.settle()
        await make_node(cluster, "b", cpu="64")
        await cluster.client.patch(NODES, Key("", "a"), {"spec": {"unschedulable": True}})
        gone = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, Key("default", "late"), gone)
        await cluster.advance(60)
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "late"))
        assert (claim.metadata.annotations or {})["volume.kubernetes.io/selected-node"] == "b"
        assert any("no volume could be made at a" in one for one in await told(cluster, "FailedScheduling"))


async def publish(cluster: Cluster, node: str, *devices: str, **spec: Any) -> None:
    where = {"driver": "d.org", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}
    tree = {"metadata": {"name": node}, "spec": {**where, "devices": [{"name": one} for one in devices], **spec}}
    await cluster.client.create(RESOURCE_SLICES, ResourceSlice.decode(msgspec.json.encode(tree)))


async def make_device_class(cluster: Cluster, name: str = "gpu", *expressions: str, **spec: Any) -> None:
    selectors = [{"cel": {"expression": one}} for one in expressions]
    tree = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
    await cluster.client.create(DEVICE_CLASSES, DeviceClass.decode(msgspec.json.encode(tree)))


async def make_device_claim(cluster: Cluster, name: str = "gpu", **exactly: Any) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": requests}}}
    await cluster.client.create(RESOURCE_CLAIMS, ResourceClaim.decode(msgspec.json.encode(tree)))


async def device_claim(cluster: Cluster, name: str = "gpu") -> ResourceClaim:
    return await cluster.client.get(RESOURCE_CLAIMS, Key("default", name))


def using(*claims: str) -> Tree:
    return {"resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims]}


async def test_claims_that_have_devices_are_honoured() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        for name in ("a", "b"):
            await make_node(cluster, name)
        await make_device_claim(cluster)
        await make_pod(cluster, "p", **using("gpu"))
        await cluster.settle()
        assert "request r: device class gpu does not exist" in (await condition(cluster, "p"))[2]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
        device = {"request": "r", "driver": "example.org", "pool": "b", "device": "0"}
        allocation = {"devices": {"results": [device]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        change = {"status": {"allocation": allocation}}
        await cluster.client.patch(RESOURCE_CLAIMS, Key("default", "gpu"), change, subresource="status")
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "b"}
        assert [one.name for one in (await device_claim(cluster)).status.reserved_for] == ["p"]


async def test_selectors_are_loaded_by_a_thread_before_slices_count(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, bool]] = []

    def load(name: str) -> None:
        loaded.append((name, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(event_handlers, "importlib", SimpleNamespace(import_module=load))
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a")
        await make_device_class(cluster)
        await make_device_claim(cluster)
        await cluster.settle()
        assert not loaded
        await publish(cluster, "a", "g0")
        await make_pod(cluster, "p", **using("gpu"))
        await cluster.settle()
        assert loaded == [("controller_manager.cel.devices", False)]
        assert await nodes_of(cluster) == {"p": "a"}


async def test_claims_are_allocated_and_reserved_before_pods_are_bound() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        for name in ("a", "b"):
            await make_node(cluster, name)
        await make_device_class(cluster, "gpu", 'device.driver == "d.org"')
        for name in ("x", "y"):
            await make_device_claim(cluster, name)
        await make_pod(cluster, "p", **using("x"))
        await make_pod(cluster, "q", **using("x"))
        await make_pod(cluster, "r", **using("y"))
        await cluster.settle()
        assert "cannot allocate all claims" in (await condition(cluster, "p"))[2]
        await publish(cluster, "b", "d0")
        await cluster.settle()
        nodes = await nodes_of(cluster)
        assert sorted(name for name, node in nodes.items() if node) in (["p", "q"], ["r"])
        assert set(nodes.values()) == {"", "b"}
        taken = [one for name in ("x", "y") if (one := await device_claim(cluster, name)).status.allocation]
        (claim,) = taken
        assert claim.metadata.finalizers == (DELETE_PROTECTION,)
        assert [one.device for one in claim.status.allocation.devices.results] == ["d0"]
        assert len(claim.status.reserved_for) == sum(map(bool, nodes.values()))
        await publish(cluster, "a", "d1")
        await cluster.settle()
        assert all((await nodes_of(cluster)).values())


async def test_an_expression_that_fails_for_one_node_keeps_the_pod_from_all() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_device_class(cluster, "gpu", 'device.attributes["d.org"].exists')
        await make_node(cluster, "a")
        await make_node(cluster, "b")
        await publish(cluster, "a", devices=[{"name": "d0", "attributes": {"exists": {"bool": True}}}])
        await publish(cluster, "b", "d1")
        await make_device_claim(cluster)
        await make_pod(cluster, "p", **using("gpu"))
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": ""}
        _, reason, message = await condition(cluster, "p")
        assert reason == "SchedulerError"
        assert "CEL runtime error: no such key: exists" in message
        await cluster.client.delete(RESOURCE_SLICES, Key("", "b"))
        await cluster.advance(400)
        assert await nodes_of(cluster) == {"p": "a"}


async def test_an_allocation_that_no_node_can_use_is_taken_back() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a")
        await make_device_class(cluster)
        await publish(cluster, "a", "d0")
        await make_device_claim(cluster)
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
        device = {"request": "r", "driver": "d.org", "pool": "gone", "device": "0"}
        allocation = {"devices": {"results": [device]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        change = {"status": {"allocation": allocation}}
        await cluster.client.patch(RESOURCE_CLAIMS, Key("default", "gpu"), change, subresource="status")
        await make_pod(cluster, "p", **using("gpu"))
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "a"}
        found = (await device_claim(cluster)).status.allocation
        assert found is not None
        assert found.devices.results[0].device == "d0"


async def test_devices_that_have_to_be_made_ready_are_waited_for() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a")
        await make_device_class(cluster)
        conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
        await publish(cluster, "a", devices=[{"name": "d0", **conditions}])
        await make_device_claim(cluster)
        await make_pod(cluster, "p", **using("gpu"))
        await cluster.advance(30)
        assert await nodes_of(cluster) == {"p": ""}
        claim = await device_claim(cluster)
        assert claim.status.allocation is not None
        assert claim.status.allocation.allocation_timestamp
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "R",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"devices": [{"driver": "d.org", "pool": "a", "device": "d0", "conditions": [ready]}]}
        assert await told(cluster, "BindingConditionsPending") == [
            "waiting for binding conditions for device on node a"
        ]
        await cluster.client.patch(RESOURCE_CLAIMS, Key("default", "gpu"), {"status": status}, subresource="status")
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "a"}


async def test_a_device_that_breaks_before_it_is_ready_is_given_back() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, "a")
        await make_device_class(cluster)
        conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
        await publish(cluster, "a", devices=[{"name": "d0", **conditions}, {"name": "d1"}])
        await make_device_claim(cluster, selectors=[{"cel": {"expression": "!device.allowMultipleAllocations"}}])
        await make_pod(cluster, "p", **using("gpu"))
        await cluster.advance(10)
        taint = [{"key": "broken", "effect": "NoSchedule"}]
        change = {"spec": {"devices": [{"name": "d0", **conditions, "taints": taint}, {"name": "d1"}]}}
        await cluster.client.patch(RESOURCE_SLICES, Key("", "a"), change)
        when = {"reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        broken = {"type": "Broken", "status": "True", **when}
        status = {"devices": [{"driver": "d.org", "pool": "a", "device": "d0", "conditions": [broken]}]}
        await cluster.client.patch(RESOURCE_CLAIMS, Key("default", "gpu"), {"status": status}, subresource="status")
        await cluster.advance(60)
        assert await nodes_of(cluster) == {"p": "a"}
        claim = await device_claim(cluster)
        assert claim.status.allocation is not None
        assert [one.device for one in claim.status.allocation.devices.results] == ["d1"]


@pytest.mark.flag("scheduler-names")
async def test_pods_are_scheduled_by_the_names_that_are_given() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS, "--scheduler-names=somebody")
        await make_node(cluster, "a")
        await make_pod(cluster, "mine", schedulerName="somebody")
        await make_pod(cluster, "other")
        await cluster.settle()
        assert await nodes_of(cluster) == {"mine": "a", "other": ""}


@pytest.mark.flag("concurrent-bindings")
async def test_so_many_pods_are_bound_at_a_time() -> None:
    (spec,) = SPECS
    assert spec.workers(SchedulerOptions(concurrent_bindings=4)) == 5


@pytest.mark.virtual(seeds=200)
async def test_with_faults_pods_come_to_nodes_once_and_fit() -> None:
    """Requests fail, get no answer, or are answered after they were cut off; nodes never have more than they offer."""
    async with Cluster() as cluster:
        for number in range(3):
            await make_node(cluster, f"n{number}", cpu="2")
        for number in range(7):
            await make_pod(cluster, f"p{number}", labels={"app": "web"})
        replica = await cluster.manage(*FLAGS, faults=0.3, strict=False)
        await cluster.sleep(120)
        replica.network.rate = 0.0
        await cluster.advance(60)
        found = sorted((await nodes_of(cluster)).values())
        assert found == ["", *(f"n{number}" for number in range(3) for _ in range(2))]


@pytest.mark.virtual(seeds=200)
async def test_with_faults_devices_are_had_once_and_by_pods_on_their_nodes() -> None:
    """Requests fail, get no answer, or are answered after they were cut off."""
    async with Cluster() as cluster:
        await make_device_class(cluster)
        for name in ("a", "b"):
            await make_node(cluster, name)
            await publish(cluster, name, "d0", "d1")
        for number in range(6):
            await make_device_claim(cluster, f"c{number}")
            await make_pod(cluster, f"p{number}", **using(f"c{number}"))
        replica = await cluster.manage(*FLAGS, faults=0.3, strict=False)
        await cluster.sleep(120)
        replica.network.rate = 0.0
        await cluster.advance(60)
        nodes = await nodes_of(cluster)
        assert sorted(nodes.values()) == ["", "", "a", "a", "b", "b"]
        had = set()
        for claim in (await cluster.client.list(RESOURCE_CLAIMS, "default")).items:
            users = [one.name for one in claim.status.reserved_for]
            for device in devices_of(claim):
                had.add((device.pool, device.device))
                assert {nodes[one] for one in users} <= {device.pool}
        assert len(had) == 4


@pytest.mark.virtual(seeds=30)
async def test_with_faults_nodes_take_the_pods_that_come_to_them() -> None:
    """Pods come and go; the scheduler and the nodes hear of that late, and not at the same time."""
    async with Cluster() as cluster:
        nodes = ("--virtual-nodes=2", "--virtual-node-bind-address=", "--virtual-node-capacity=cpu=2,memory=1Gi,pods=3")
        flags = ("--leader-elect=false", "--controllers=virtual-node-controller", *nodes)
        replicas = [
            await cluster.manage(*FLAGS, faults=0.3, strict=False),
            await cluster.manage(*flags, faults=0.3, strict=False),
        ]
        names = [f"p{number}" for number in range(15)]
        for name in names:
            await make_pod(cluster, name, cpu=one_of(("1", "500m")), tolerations=[{"operator": "Exists"}])
            with contextlib.suppress(NotFound):
                await cluster.client.delete(PODS, Key("default", one_of(names)), grace=one_of((None, 0, 1)))
            await cluster.sleep(random_source().uniform(0, 4))
        for replica in replicas:
            replica.network.rate = 0.0
        await cluster.advance(900)  # it takes that long to notice that a watch is silent
        found = (await cluster.client.list(PODS, "default")).items
        assert [one.status.reason for one in found if one.status.phase == "Failed"] == []
        assert any(one.status.phase == "Running" for one in found)
