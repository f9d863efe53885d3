"""Pods that wait for volumes are bound to nodes where these exist or can be provisioned."""

import msgspec
import pytest

from controller_manager.common.api.core import NODES
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from controller_manager.testing import Cluster
from tests.scenarios.scheduler import Tree, condition, events_of, make_node, make_pod, nodes_of, nominated

pytestmark = pytest.mark.virtual


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


async def test_waiting_claim_is_bound_to_volume_of_chosen_node() -> None:
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


async def test_volume_is_provisioned_on_node_of_its_pod() -> None:
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


@pytest.mark.parametrize("gate", [True, False])
async def test_pod_waiting_for_volume_has_nominated_node_name(gate: bool) -> None:
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


async def test_pods_waiting_for_volumes_do_not_block_others() -> None:
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


async def test_failed_provisioning_is_retried_on_other_node() -> None:
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
        assert any("no volume could be made at a" in one for one in await events_of(cluster, "FailedScheduling"))
