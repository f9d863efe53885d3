"""Extended resources of device classes in a whole cluster.

`extended_resources.jsonl` was recorded from a control plane of 1.36: a row has the objects, the pods that were created
one after the other, and the resulting state. Generated names have no random suffix.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES, PODS, Pod
from controller_manager.common.api.devices import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, ResourceClaim
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Response
from controller_manager.testing import Cluster
from controllers.shared.device_claims import devices_of

pytestmark = pytest.mark.virtual
FLAGS = ("--leader-elect=false", "--controllers=scheduler,resourceclaim-controller,garbage-collector-controller")
ROWS = [json.loads(line) for line in Path(__file__).with_name("extended_resources.jsonl").read_text().splitlines()]
KINDS = {one.kind: one for one in (NODES, PODS, DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS)}
DRAWN = 5
Tree = Mapping[str, Any]


def row(name: str) -> Any:
    return next(one for one in ROWS if one["name"] == name)


async def make(cluster: Cluster, *trees: Tree) -> None:
    for tree in trees:
        resource = KINDS[tree["kind"]]
        await cluster.client.create(resource, resource.type.decode(msgspec.json.encode(tree)))
        if resource is NODES:
            key = Key("", tree["metadata"]["name"])
            await cluster.client.patch(NODES, key, {"status": tree["status"]}, subresource="status")
            await cluster.client.patch(NODES, key, {"spec": {"taints": None}})
        if resource is DEVICE_CLASSES:
            await cluster.advance(1)


async def pod_of(cluster: Cluster, name: str = "p") -> Pod:
    return await cluster.client.get(PODS, Key("default", name))


async def claims(cluster: Cluster) -> list[ResourceClaim]:
    return list((await cluster.client.list(RESOURCE_CLAIMS, "default")).items)


def seen(pod: Pod) -> Tree:
    tree = json.loads(pod.raw)
    claim_status = tree["status"].get("extendedResourceClaimStatus")
    if claim_status:
        claim_status["resourceClaimName"] = claim_status["resourceClaimName"][:-DRAWN]
    found = condition_of(pod.status.conditions, "PodScheduled")
    message = found.message.split(". ")[0] if found is not None and found.status == "False" else ""
    return {"name": pod.metadata.name, "node": pod.spec.node_name, "extended": claim_status, "message": message}


def drawn(claim: ResourceClaim) -> Tree:
    tree: dict[str, Any] = json.loads(claim.raw)
    meta = tree["metadata"]
    kept = ("annotations", "finalizers", "generateName", "name", "namespace", "ownerReferences")
    tree["metadata"] = {key: meta[key] for key in kept if key in meta}
    for one in tree["metadata"].get("ownerReferences", ()):
        del one["uid"]
    if "generateName" in meta:
        tree["metadata"]["name"] = meta["name"][:-DRAWN]
    tree["status"].get("allocation", {}).pop("allocationTimestamp", None)
    for one in tree["status"].get("reservedFor", ()):
        del one["uid"]
    return {key: tree[key] for key in ("metadata", "spec", "status")}


@pytest.mark.parametrize("recorded", ROWS, ids=lambda one: one["name"])
async def test_pods_get_devices_as_recorded(recorded: Any) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make(cluster, *recorded["objects"])
        for tree in recorded["pods"]:
            await make(cluster, tree)
            await cluster.settle()
        assert [seen(one) for one in (await cluster.client.list(PODS, "default")).items] == recorded["seen"]
        assert [drawn(one) for one in await claims(cluster)] == recorded["claims"]


async def test_new_device_class_schedules_pending_pod() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        known = row("explicit")
        node, devices, device_class = known["objects"]
        await make(cluster, node, devices, *known["pods"])
        await cluster.settle()
        assert seen(await pod_of(cluster))["message"].endswith("1 Insufficient example.com/gpu")
        await make(cluster, device_class)
        await cluster.settle()
        assert (await pod_of(cluster)).spec.node_name == "a"


async def test_claim_is_deleted_with_pod_and_devices_are_reused() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        known = row("taken")
        await make(cluster, *known["objects"], *known["pods"])
        await cluster.settle()
        taken = (await claims(cluster))[0].metadata.name
        first, other = ("p", "q") if taken.startswith("p-") else ("q", "p")
        await cluster.client.delete(PODS, Key("default", first), grace=0)
        await cluster.advance(60)
        assert (await pod_of(cluster, other)).spec.node_name == "a"
        assert [one.metadata.name[:-DRAWN] for one in await claims(cluster)] == [f"{other}-extended-resources-"]


async def test_rejected_binding_deletes_the_created_claim() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        known = row("explicit")
        refused = Response(403, {}, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not yours"}')
        replica.network.intercept(lambda request: refused if request.path.endswith("/binding") else None)
        await make(cluster, *known["objects"], *known["pods"])
        await cluster.sleep(0.5)
        assert await claims(cluster) == []
        replica.network.intercept(lambda _: None)
        await cluster.advance(60)
        assert (await pod_of(cluster)).spec.node_name == "a"
        (claim,) = await claims(cluster)
        claim_status = (await pod_of(cluster)).status.extended_resource_claim_status
        assert claim_status is not None
        assert claim_status.resource_claim_name == claim.metadata.name


async def test_leftover_unallocated_claim_is_replaced() -> None:
    async with Cluster() as cluster:
        known = row("explicit")
        await make(cluster, *known["objects"], *known["pods"])
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        owner["uid"] = (await pod_of(cluster)).metadata.uid
        (recorded,) = known["claims"]
        meta = {**recorded["metadata"], "name": "left-over", "ownerReferences": [owner]}
        await make(cluster, {"kind": "ResourceClaim", "metadata": meta, "spec": recorded["spec"]})
        await cluster.manage(*FLAGS)
        await cluster.advance(60)
        assert (await pod_of(cluster)).spec.node_name == "a"
        assert [one.metadata.name[:-DRAWN] for one in await claims(cluster)] == ["p-extended-resources-"]


async def test_device_classes_are_ignored_without_feature_gate() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS, "--feature-gates=DRAExtendedResource=false")
        known = row("explicit")
        await make(cluster, *known["objects"], *known["pods"])
        await cluster.settle()
        assert seen(await pod_of(cluster))["message"].endswith("1 Insufficient example.com/gpu")
        assert await claims(cluster) == []


@pytest.mark.virtual(seeds=100)
async def test_each_device_is_allocated_once_despite_faults() -> None:
    """Requests fail, get no answer, or are answered after a disconnection."""
    async with Cluster() as cluster:
        node, devices, device_class = row("implicit")["objects"]
        (pod,) = row("explicit")["pods"]
        device_class["spec"]["extendedResourceName"] = "example.com/gpu"
        await make(cluster, node, devices, device_class)
        for number in range(3):
            await make(cluster, {**pod, "metadata": {**pod["metadata"], "name": f"p{number}"}})
        replica = await cluster.manage(*FLAGS, faults=0.3, strict=False)
        await cluster.sleep(120)
        replica.network.rate = 0.0
        await cluster.advance(400)
        pods = [await pod_of(cluster, f"p{number}") for number in range(3)]
        placed = [one for one in pods if one.spec.node_name]
        assert len(placed) == 2
        found = {one.metadata.name: one for one in await claims(cluster)}
        had = [device.device for one in found.values() for device in devices_of(one)]
        assert sorted(had) == ["d0", "d1"]
        for one in placed:
            claim_status = one.status.extended_resource_claim_status
            assert claim_status is not None
            users = [user.name for user in found[claim_status.resource_claim_name].status.reserved_for]
            assert users == [one.metadata.name]
