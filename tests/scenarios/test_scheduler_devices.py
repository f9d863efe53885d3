"""Pods with device claims are bound to nodes with these devices, after the claims are allocated and reserved."""

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.devices import (
    DELETE_PROTECTION,
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controllers.scheduler import event_handlers
from controllers.shared.device_claims import devices_of
from tests.scenarios.scheduler import FLAGS, Tree, condition, events_of, make_node, make_pod, nodes_of

pytestmark = pytest.mark.virtual


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


async def test_pod_of_allocated_claim_goes_to_its_node() -> None:
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


async def test_cel_is_loaded_in_a_thread_before_slices_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert loaded == [("controller_manager.common.cel.devices", False)]
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


async def test_failed_cel_selector_keeps_pod_pending() -> None:
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


async def test_unusable_allocation_is_released() -> None:
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


async def test_binding_waits_for_device_binding_conditions() -> None:
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
        assert await events_of(cluster, "BindingConditionsPending") == [
            "waiting for binding conditions for device on node a"
        ]
        await cluster.client.patch(RESOURCE_CLAIMS, Key("default", "gpu"), {"status": status}, subresource="status")
        await cluster.settle()
        assert await nodes_of(cluster) == {"p": "a"}


async def test_device_failing_before_ready_is_released() -> None:
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


@pytest.mark.virtual(seeds=200)
async def test_devices_are_allocated_once_and_locally_despite_faults() -> None:
    """Requests fail, get no answer, or are answered after a disconnection."""
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
