"""Expansion of claims, in virtual time: an external resizer is notified, or the volume gets the new size."""

from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import ObjectReference
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE,
    PersistentVolumeClaimStatus,
)
from controller_manager.testing import Cluster
from tests.scenarios.storage import add, claim, reasons, storage_class, the_claim, the_volume, volume

pytestmark = pytest.mark.virtual

ON = ("--leader-elect=false", "--controllers=persistentvolume-expander")
FLEX = {"flexVolume": {"driver": "example.com/flex"}}


async def make_bound(cluster: Cluster, mode: str = "Filesystem", **source: Any) -> None:
    """Create a claim of 1 Gi that is bound to a volume of that size."""
    await add(cluster, storage_class(allowVolumeExpansion=True))
    await add(cluster, claim(volumeName="v", storageClassName="fast", volumeMode=mode))
    uid = (await the_claim(cluster)).metadata.uid
    reference = ObjectReference(kind="PersistentVolumeClaim", namespace="default", name="c", uid=uid)
    made = volume(storageClassName="fast", volumeMode=mode, **{"hostPath": None, **source})
    await add(cluster, replace(made, spec=replace(made.spec, claim_ref=reference)))
    status = PersistentVolumeClaimStatus(phase="Bound", capacity={STORAGE: "1Gi"})
    bound = replace(await the_claim(cluster), status=status)
    await cluster.client.update(PERSISTENT_VOLUME_CLAIMS, bound, subresource="status")


async def ask_for(cluster: Cluster, size: str) -> None:
    change = {"spec": {"resources": {"requests": {"storage": size}}}}
    await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, Key("default", "c"), change)
    await cluster.settle()


async def test_csi_volume_is_left_to_external_resizer() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await make_bound(cluster, csi={"driver": "csi.example.com", "volumeHandle": "h"})
        await cluster.settle()
        assert await reasons(cluster, "c") == []
        await ask_for(cluster, "2Gi")
        assert await reasons(cluster, "c") == ["ExternalExpanding"]
        assert (await the_claim(cluster)).metadata.annotations is None


async def test_migrated_volume_names_its_csi_resizer() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await make_bound(cluster, awsElasticBlockStore={"volumeID": "v"})
        await ask_for(cluster, "2Gi")
        assert await reasons(cluster, "c") == ["ExternalExpanding"]
        resizer = {"volume.kubernetes.io/storage-resizer": "ebs.csi.aws.com"}
        assert (await the_claim(cluster)).metadata.annotations == resizer


async def test_flex_volume_is_resized_on_its_node() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await make_bound(cluster, **FLEX)
        await ask_for(cluster, "2Gi")
        asked, grown = await the_claim(cluster), await the_volume(cluster)
        assert grown.spec.capacity == {STORAGE: "2Gi"}
        assert grown.metadata.annotations == {"volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi"}
        assert asked.status.allocated_resource_statuses == {STORAGE: "NodeResizePending"}
        status = replace(asked.status, capacity={STORAGE: "2Gi"})
        await cluster.client.update(PERSISTENT_VOLUME_CLAIMS, replace(asked, status=status), subresource="status")
        await cluster.settle()
        assert (await the_volume(cluster)).metadata.annotations is None


async def test_block_volume_is_resized_at_once() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await make_bound(cluster, mode="Block", **FLEX)
        await ask_for(cluster, "2Gi")
        asked = await the_claim(cluster)
        assert (asked.status.conditions, asked.status.capacity) == ((), {STORAGE: "2Gi"})
        assert await reasons(cluster, "c") == ["VolumeResizeSuccessful"]
