"""Protection of claims and volumes that are in use, in virtual time."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PV_PROTECTION,
    PVC_PROTECTION,
)
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from tests.scenarios.faults import break_watches
from tests.scenarios.storage import add, claim, is_gone, pod, the_claim, the_volume, volume

pytestmark = pytest.mark.virtual

ON = ("--leader-elect=false", "--controllers=pvc-protection,pv-protection")
CLAIM = Key("default", "c")


async def test_claim_stays_while_scheduled_pod_uses_it() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, claim(), pod(nodeName="node-1"))
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.settle()
        assert PVC_PROTECTION in (await the_claim(cluster)).metadata.finalizers
        change = {"status": {"phase": "Succeeded"}}
        await cluster.client.patch(PODS, Key("default", "p"), change, subresource="status")
        await cluster.settle()
        assert not await is_gone(cluster, PERSISTENT_VOLUME_CLAIMS, "c")
        await cluster.client.delete(PODS, Key("default", "p"), grace=0)
        await cluster.settle()
        assert await is_gone(cluster, PERSISTENT_VOLUME_CLAIMS, "c")


async def test_claims_of_unscheduled_pods_are_deleted_with_few_lists() -> None:
    listed: list[str] = []

    def note(request: Request) -> Response | None:
        if request.method == "GET" and request.path == PODS.path("default"):
            listed.append(request.path)
        return None

    async with Cluster() as cluster:
        for number in range(20):
            await add(cluster, claim(f"c{number}"), pod(f"p{number}", f"c{number}"))
            await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", f"c{number}"))
        replica = await cluster.manage(*ON)
        replica.network.intercept(note)
        await cluster.settle()
        assert (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS)).items == []
        assert len(listed) < 5


async def test_stale_pod_cache_does_not_delete_used_claim() -> None:
    """The manager's watch misses that the pod was scheduled."""

    def break_watch(request: Request) -> Response | None:
        return Response(500, {}, b"") if request.path == PODS.path() else None

    async with Cluster() as cluster:
        replica = await cluster.manage(*ON)
        await add(cluster, claim())
        await cluster.settle()
        replica.network.intercept(break_watch)
        replica.network.cut()
        replica.network.heal()
        await add(cluster, pod(nodeName="node-1"))
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.sleep(60)
        assert not await is_gone(cluster, PERSISTENT_VOLUME_CLAIMS, "c")


async def test_claim_of_pod_missed_by_watch_is_deleted() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*ON)
        await add(cluster, claim())
        await cluster.settle()
        replica.network.intercept(break_watches(PODS.path()))
        replica.network.cut()
        replica.network.heal()
        await add(cluster, pod(nodeName="node-1"))
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.sleep(10)
        assert PVC_PROTECTION in (await the_claim(cluster)).metadata.finalizers
        await cluster.client.delete(PODS, Key("default", "p"), grace=0)
        await cluster.sleep(10)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await is_gone(cluster, PERSISTENT_VOLUME_CLAIMS, "c")


async def test_missing_protection_finalizer_is_added() -> None:
    async with Cluster(["--disable-admission-plugins=StorageObjectInUseProtection"]) as cluster:
        await add(cluster, claim(), volume())
        assert (await the_claim(cluster)).metadata.finalizers == ()
        await cluster.manage(*ON)
        await cluster.settle()
        assert (await the_claim(cluster)).metadata.finalizers == (PVC_PROTECTION,)
        assert (await the_volume(cluster)).metadata.finalizers == (PV_PROTECTION,)


async def test_bound_volume_stays() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, volume())
        bound = await the_volume(cluster)
        bound = replace(bound, status=replace(bound.status, phase="Bound"))
        bound = await cluster.client.update(PERSISTENT_VOLUMES, bound, subresource="status")
        await cluster.client.delete(PERSISTENT_VOLUMES, Key("", "v"))
        await cluster.settle()
        bound = await the_volume(cluster)
        released = replace(bound, status=replace(bound.status, phase="Released"))
        await cluster.client.update(PERSISTENT_VOLUMES, released, subresource="status")
        await cluster.settle()
        assert await is_gone(cluster, PERSISTENT_VOLUMES, "v")


def _ephemeral(owner: str) -> Pod:
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    tree: dict[str, Any] = {
        "metadata": {"name": owner, "namespace": "default"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}],
        },
    }
    return Pod.decode(json.dumps(tree).encode())


@pytest.mark.parametrize("is_owner", [True, False])
async def test_ephemeral_claim_stays_only_for_its_owner_pod(is_owner: bool) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        made = await cluster.client.create(PODS, _ephemeral("p"))
        uid = made.metadata.uid if is_owner else "another"
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        await add(cluster, claim("p-data", meta={"ownerReferences": [reference]}))
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "p-data"))
        await cluster.settle()
        assert await is_gone(cluster, PERSISTENT_VOLUME_CLAIMS, "p-data") is not is_owner
