"""Claims of stateful sets: retention, and pods whose claims are foreign or missing."""

import msgspec
import pytest

from controller_manager.common.api.apps import STATEFUL_SETS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.stateful_sets import COLLECTING, FLAGS, WEB, change, claims, numbers
from tests.scenarios.workloads import claim_template, events, owned, pods, stateful_set

pytestmark = pytest.mark.virtual


async def release_claims(cluster: Cluster) -> None:
    """Remove the finalizers of claims, as the protection controller does."""
    for one in (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items:
        key = Key("default", one.metadata.name)
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, key, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("scaled", "deleted", "after_scaling", "after_deletion"),
    [
        ("Retain", "Retain", 3, 3),
        ("Retain", "Delete", 3, 0),
        ("Delete", "Retain", 1, 1),
        ("Delete", "Delete", 1, 0),
    ],
)
async def test_claim_retention_policy_is_followed(
    scaled: str, deleted: str, after_scaling: int, after_deletion: int
) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*COLLECTING)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted}}
        spec = {"volumeClaimTemplates": [claim_template()], **policy}
        await cluster.client.create(STATEFUL_SETS, stateful_set(**spec))
        await cluster.settle()
        owners = ["web"] if deleted == "Delete" else []
        assert await claims(cluster) == {f"data-web-{number}": owners for number in range(3)}
        await release_claims(cluster)
        await change(cluster, replicas=1)
        await cluster.advance(30)
        assert len(await claims(cluster)) == after_scaling
        await cluster.client.delete(STATEFUL_SETS, WEB)
        await cluster.advance(30)
        assert await pods(cluster) == []
        assert len(await claims(cluster)) == after_deletion


async def test_changed_retention_policy_changes_claim_owners() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, volumeClaimTemplates=[claim_template()]))
        await cluster.settle()
        for deleted, owners in (("Delete", ["web"]), ("Retain", [])):
            await change(cluster, persistentVolumeClaimRetentionPolicy={"whenDeleted": deleted})
            await cluster.settle()
            assert await claims(cluster) == {"data-web-0": owners, "data-web-1": owners}
        written = [reason for _, reason in await events(cluster)]
        assert written.count("SuccessfulUpdate") == 2  # one per pod; the event is aggregated


async def test_scale_up_waits_for_deletion_of_old_claim() -> None:
    """A set is scaled up again while a claim of a former pod is not deleted yet."""
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*COLLECTING, strict=False)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
        await cluster.client.create(
            STATEFUL_SETS, stateful_set(replicas=2, volumeClaimTemplates=[claim_template()], **policy)
        )
        await cluster.settle()
        before = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-1"))
        await change(cluster, replicas=1)
        await cluster.advance(30)
        await change(cluster, replicas=2)
        await cluster.advance(30)
        assert len(await owned(cluster)) == 1
        await release_claims(cluster)
        await cluster.settle()
        assert await numbers(cluster) == (2, 2, 2, 2, 2)
        after = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-1"))
        assert after.metadata.uid != before.metadata.uid


async def test_lost_claim_of_pending_pod_is_recreated() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda _: False):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(volumeClaimTemplates=[claim_template()]))
        await cluster.settle()
        await release_claims(cluster)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-0"))
        await cluster.settle()
        assert await claims(cluster) == {"data-web-0": []}


async def test_claim_with_foreign_controller_is_left_alone() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        theirs = {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u", "controller": True}
        meta = {"name": "data-web-0", "namespace": "default", "ownerReferences": [theirs]}
        tree = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim_template()["spec"]}
        claim = PersistentVolumeClaim.decode(msgspec.json.encode(tree))
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
        await cluster.client.create(STATEFUL_SETS, stateful_set(volumeClaimTemplates=[claim_template()], **policy))
        await cluster.settle()
        assert await claims(cluster) == {"data-web-0": ["t"], "data-web-1": ["web"], "data-web-2": ["web"]}
