"""The persistent volume binder binds and releases volumes, in virtual time."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import ObjectReference
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE,
)
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from controller_manager.testing.csi_driver import SimulatedDriver
from controller_manager.testing.replica import Replica
from tests.scenarios.storage import (
    add,
    claim,
    is_gone,
    pod,
    reasons,
    storage_class,
    the_claim,
    the_volume,
    volume,
)

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false", "--controllers=persistentvolume-binder,pvc-protection,pv-protection")
CLAIM = Key("default", "c")
PERIOD = 16.0


SHOWN = "--authorization-always-allow-paths=/metrics"


async def test_claim_is_bound_to_smallest_fitting_volume() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, volume("large", "5Gi"), volume("fit", "2Gi"), volume("small", "512Mi"))
        await cluster.settle()
        await add(cluster, claim(size="1Gi"))
        await cluster.settle()
        bound, given = await the_claim(cluster), await the_volume(cluster, "fit")
        assert (bound.spec.volume_name, bound.status.phase) == ("fit", "Bound")
        assert bound.status.capacity == {STORAGE: "2Gi"}
        assert bound.status.access_modes == ("ReadWriteOnce",)
        assert bound.metadata.annotations == {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }
        assert given.status.phase == "Bound"
        assert given.spec.claim_ref is not None
        assert given.spec.claim_ref.uid == bound.metadata.uid
        assert given.metadata.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert (await the_volume(cluster, "large")).status.phase == "Available"


async def test_pending_claim_is_bound_to_volume_created_later() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, claim())
        await cluster.settle()
        assert await reasons(cluster, "c") == ["FailedBinding"]
        await add(cluster, volume())
        await cluster.advance(PERIOD)
        assert (await the_claim(cluster)).status.phase == "Bound"


@pytest.mark.flag("pvclaimbinder-sync-period")
async def test_sync_period_flag_sets_binding_interval() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, "--pvclaimbinder-sync-period=5m")
        await add(cluster, claim())
        await cluster.settle()
        await add(cluster, volume())
        await cluster.advance(200)
        assert (await the_claim(cluster)).status.phase == "Pending"
        await cluster.advance(120)
        assert (await the_claim(cluster)).status.phase == "Bound"


async def test_reserved_volume_and_named_volume_are_bound() -> None:
    """A volume can be reserved for a claim, and a claim can name its volume."""
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        reserved = volume("v", "5Gi", claimRef={"namespace": "default", "name": "c"})
        await add(cluster, volume("near", "1Gi"), reserved, claim(), claim("d", volumeName="near"))
        await cluster.settle()
        assert (await the_claim(cluster)).spec.volume_name == "v"
        assert (await the_claim(cluster, "d")).status.phase == "Bound"
        assert (await the_claim(cluster, "d")).metadata.annotations == {"pv.kubernetes.io/bind-completed": "yes"}
        assert (await the_volume(cluster)).metadata.annotations is None


async def test_claim_of_unfit_named_volume_is_reported() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, volume(), claim(size="2Gi", volumeName="v"))
        await add(cluster, volume("w"), claim("d", volumeName="w"))
        await cluster.settle()
        await add(cluster, claim("e", volumeName="w"))
        await cluster.settle()
        assert await reasons(cluster, "c") == ["VolumeMismatch"]
        assert await reasons(cluster, "e") == ["FailedBinding"]
        assert (await the_claim(cluster)).status.phase == "Pending"


async def test_retained_volume_is_released_when_claim_is_deleted() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, volume(), claim())
        await cluster.advance(PERIOD)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.settle()
        assert (await the_volume(cluster)).status.phase == "Released"
        await add(cluster, claim())
        await cluster.advance(PERIOD)
        assert (await the_claim(cluster)).status.phase == "Pending"
        free = await the_volume(cluster)
        await cluster.client.update(PERSISTENT_VOLUMES, replace(free, spec=replace(free.spec, claim_ref=None)))
        await cluster.advance(PERIOD)
        assert (await the_claim(cluster)).status.phase == "Bound"


async def test_claim_of_deleted_volume_is_lost() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=persistentvolume-binder")
        await add(cluster, volume(), claim())
        await cluster.advance(PERIOD)
        await cluster.client.delete(PERSISTENT_VOLUMES, Key("", "v"))
        bound = await the_volume(cluster)
        await cluster.client.update(PERSISTENT_VOLUMES, replace(bound, metadata=replace(bound.metadata, finalizers=())))
        await cluster.settle()
        lost = await the_claim(cluster)
        assert (lost.status.phase, lost.status.capacity) == ("Lost", None)
        assert "ClaimLost" in await reasons(cluster, "c")


async def test_second_claim_of_same_volume_is_lost() -> None:
    async with Cluster() as cluster:
        annotations = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        reference = {"namespace": "default", "name": "d", "uid": "1"}
        await add(cluster, volume(claimRef=reference), claim(volumeName="v", meta=annotations))
        await cluster.manage(*ON)
        await cluster.settle()
        assert (await the_claim(cluster)).status.phase == "Lost"
        assert await reasons(cluster, "c") == ["ClaimMisbound"]


async def test_csi_driver_provisions_and_deletes_volume() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster) as driver:
        await cluster.manage(*ON)
        await add(cluster, storage_class(), claim(storageClassName="fast"))
        await cluster.settle()
        asked = await the_claim(cluster)
        assert asked.status.phase == "Bound"
        assert await reasons(cluster, "c") == ["ExternalProvisioning"]
        annotations = asked.metadata.annotations or {}
        assert annotations["volume.kubernetes.io/storage-provisioner"] == driver.name
        assert annotations["volume.beta.kubernetes.io/storage-provisioner"] == driver.name
        assert driver.storage == {asked.spec.volume_name}
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.settle()
        assert driver.storage == set()
        assert (await cluster.client.list(PERSISTENT_VOLUMES)).items == []


@pytest.mark.flag("enable-dynamic-provisioning")
async def test_disabled_dynamic_provisioning_creates_no_volume() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster):
        await cluster.manage(*ON, "--enable-dynamic-provisioning=false")
        await add(cluster, storage_class(), claim(storageClassName="fast"))
        await cluster.advance(PERIOD)
        assert (await the_claim(cluster)).metadata.annotations is None
        assert await reasons(cluster, "c") == []


async def test_wait_for_first_consumer_binds_after_pod_is_scheduled() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster):
        await cluster.manage(*ON)
        await add(cluster, storage_class(volumeBindingMode="WaitForFirstConsumer"))
        await add(cluster, volume(storageClassName="fast"), claim(storageClassName="fast"))
        await cluster.settle()
        assert await reasons(cluster, "c") == ["WaitForFirstConsumer"]
        await add(cluster, pod())
        await cluster.advance(PERIOD)
        assert sorted(await reasons(cluster, "c")) == ["WaitForFirstConsumer", "WaitForPodScheduled"]
        chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, CLAIM, chosen)
        await cluster.advance(PERIOD)
        bound = await the_claim(cluster)
        assert (bound.status.phase, bound.spec.volume_name) == ("Bound", f"pvc-{bound.metadata.uid}")


async def test_in_tree_provisioner_is_migrated_to_csi_driver() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster, "ebs.csi.aws.com"):
        await cluster.manage(*ON)
        await add(cluster, storage_class(provisioner="kubernetes.io/aws-ebs"), claim(storageClassName="fast"))
        await add(cluster, claim("d", storageClassName="slow"))
        await add(cluster, storage_class("none", "kubernetes.io/no-provisioner"), claim("e", storageClassName="none"))
        await cluster.settle()
        assert (await the_claim(cluster)).status.phase == "Bound"
        assert await reasons(cluster, "d") == ["ProvisioningFailed"]
        assert await reasons(cluster, "e") == ["ProvisioningFailed"]


async def test_claim_without_class_gets_newest_default_class_later() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster):
        await cluster.manage(*ON)
        await add(cluster, claim(storageClassName=None), claim("none"))
        await cluster.settle()
        default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        await add(cluster, storage_class("old", meta=default))
        await cluster.sleep(2)
        await add(cluster, storage_class("b", meta=default), storage_class("a", meta=default))
        await add(cluster, storage_class("newer"))
        await cluster.advance(PERIOD)
        assert (await the_claim(cluster)).spec.storage_class_name == "a"
        assert (await the_claim(cluster)).status.phase == "Bound"
        assert (await the_claim(cluster, "none")).spec.storage_class_name == ""


def is_folder(path: str) -> bool:
    return os.path.isdir(path)


def folder(path: Path) -> dict[str, Any]:
    return {"hostPath": {"path": str(path)}, "persistentVolumeReclaimPolicy": "Delete"}


@pytest.mark.parametrize("is_kept", [False, True])
async def test_host_path_volume_is_deleted_only_below_tmp(is_kept: bool) -> None:
    """A host path outside of /tmp is not deleted: the volume is marked as failed with the reason."""
    path = Path("/nowhere") if is_kept else Path(tempfile.mkdtemp(dir="/tmp"), "data")
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        if not is_kept:
            (path / "deep").mkdir(parents=True)
        await add(cluster, volume(**folder(path)), claim())
        await cluster.advance(PERIOD)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.settle()
        if is_kept:
            failed = await the_volume(cluster)
            assert (failed.status.phase, await reasons(cluster, "v")) == ("Failed", ["VolumeFailedDelete"])
            assert "/nowhere" in failed.status.message
        else:
            assert await is_gone(cluster, PERSISTENT_VOLUMES, "v")
            assert not path.exists()


@pytest.mark.flag("enable-hostpath-provisioner")
@pytest.mark.parametrize("is_enabled", [True, False])
async def test_hostpath_provisioner_flag_enables_provisioning(is_enabled: bool) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, f"--enable-hostpath-provisioner={str(is_enabled).lower()}")
        await add(cluster, storage_class(provisioner="kubernetes.io/host-path"), claim(storageClassName="fast"))
        await cluster.advance(PERIOD)
        if not is_enabled:
            assert await reasons(cluster, "c") == ["ProvisioningFailed"]
            return
        bound = await the_claim(cluster)
        assert (bound.status.phase, await reasons(cluster, "c")) == ("Bound", ["ProvisioningSucceeded"])
        made = await the_volume(cluster, bound.spec.volume_name)
        path = json.loads(bytes(made.spec.host_path))["path"]
        assert is_folder(path)
        assert "kubernetes.io/pv-controller" in made.metadata.finalizers
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.settle()
        assert not is_folder(path)
        assert await is_gone(cluster, PERSISTENT_VOLUMES, bound.spec.volume_name)


async def test_volume_of_unsupported_type_fails_to_be_deleted() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        nfs = {"hostPath": None, "nfs": {"server": "s", "path": "/"}}
        await add(cluster, volume(persistentVolumeReclaimPolicy="Delete", **nfs), claim())
        await cluster.advance(PERIOD)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.settle()
        assert (await the_volume(cluster)).status.phase == "Failed"
        assert await reasons(cluster, "v") == ["VolumeFailedDelete"]


async def test_second_volume_of_a_claim_is_released() -> None:
    """Another binder has reserved a second volume for a bound claim."""
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await add(cluster, volume(), claim())
        await cluster.advance(PERIOD)
        uid = (await the_claim(cluster)).metadata.uid
        by_controller = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
        reference = {"namespace": "default", "name": "c", "uid": uid}
        await add(cluster, volume("w", meta=by_controller, claimRef=reference), volume("x", claimRef=reference))
        await cluster.settle()
        free, reserved = await the_volume(cluster, "w"), await the_volume(cluster, "x")
        assert (free.spec.claim_ref, free.status.phase, free.metadata.annotations) == (None, "Available", None)
        assert reserved.spec.claim_ref == ObjectReference(namespace="default", name="c", **_of_claim(reserved))


def _of_claim(reserved: Any) -> dict[str, Any]:
    reference = reserved.spec.claim_ref
    return {"kind": reference.kind, "api_version": reference.api_version}


async def test_volume_mode_mismatch_is_reported_on_both() -> None:
    async with Cluster() as cluster:
        await add(cluster, claim(volumeMode="Block"))
        uid = (await the_claim(cluster)).metadata.uid
        await add(cluster, volume(claimRef={"namespace": "default", "name": "c", "uid": uid}))
        await cluster.manage(*ON)
        await cluster.settle()
        assert "VolumeMismatch" in await reasons(cluster, "v")
        assert "VolumeMismatch" in await reasons(cluster, "c")


async def test_100_claims_are_bound_to_100_volumes() -> None:
    async with Cluster() as cluster:
        for number in range(100):
            await add(cluster, volume(f"v{number:04}", f"{1 + number % 7}Gi"))
            await add(cluster, claim(f"c{number:04}", f"{1 + number % 7}Gi"))
        await cluster.manage(*ON)
        await cluster.advance(PERIOD)
        claims = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS)).items
        assert {one.status.phase for one in claims} == {"Bound"}
        assert len({one.spec.volume_name for one in claims}) == 100
        assert all((one.status.capacity or {}) == (one.spec.resources.requests or {}) for one in claims)


COUNTED = """\
pv_collector_total_pv_count{plugin_name="N/A",volume_mode="Filesystem"} 1
pv_collector_total_pv_count{plugin_name="kubernetes.io/host-path",volume_mode="Filesystem"} 1
pv_collector_bound_pv_count{storage_class=""} 1
pv_collector_unbound_pv_count{storage_class="x"} 1
pv_collector_bound_pvc_count{namespace="default",storage_class="",volume_attributes_class=""} 1
pv_collector_unbound_pvc_count{namespace="default",storage_class="zz",volume_attributes_class=""} 1
"""


async def metrics(replica: Replica, *names: str) -> dict[str, float]:
    """Return the samples of the metrics whose names have this prefix."""
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    lines = [line.rpartition(" ") for line in page.body.decode().splitlines() if line.startswith(names)]
    return {sample: float(value) for sample, _, value in lines}


async def test_metrics_count_claims_and_volumes() -> None:
    """The counts are those of kube-controller-manager 1.36."""
    async with Cluster() as cluster:
        replica = await cluster.manage(*ON, SHOWN)
        csi = {"hostPath": None, "csi": {"driver": "d", "volumeHandle": "h"}}
        await add(cluster, volume("a", storageClassName="x", **csi), volume("b"))
        await cluster.settle()
        await add(cluster, claim(), claim("d", storageClassName="zz"))
        await cluster.settle()
        counted = await metrics(replica, "pv_collector_")
        assert counted == {line.rpartition(" ")[0]: 1.0 for line in COUNTED.splitlines()}


async def test_metrics_measure_provisioning_and_failures() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster, delay=4.0):
        replica = await cluster.manage(*ON, SHOWN)
        await add(cluster, storage_class(), claim(storageClassName="fast"))
        await add(cluster, storage_class("host", "kubernetes.io/host-path"), claim("d", storageClassName="host"))
        await cluster.sleep(10)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await cluster.sleep(10)
        counted = await metrics(replica, "volume_operation_")
        for operation in ("provision", "delete"):
            labels = f'operation_name="{operation}",plugin_name="csi.example.com"'
            assert round(counted[f"volume_operation_total_seconds_sum{{{labels}}}"]) == 4
        failed = 'volume_operation_errors_total{operation_name="provision",plugin_name="kubernetes.io/host-path"}'
        assert counted[failed] >= 1


async def stop_watches(cluster: Cluster, replica: Replica, path: str) -> None:
    """Stop a manager's watches of a collection."""
    replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == path else None)
    replica.network.cut()
    replica.network.heal()
    await cluster.sleep(1)


async def test_volume_of_claim_missing_in_cache_is_not_released(tmp_path: Path) -> None:
    """Another binder has bound both, and this one's watch of claims is broken."""
    async with Cluster() as cluster:
        replica = await cluster.manage(*ON)
        await cluster.settle()
        await stop_watches(cluster, replica, PERSISTENT_VOLUME_CLAIMS.path())
        await add(cluster, claim(volumeName="v"))
        reference = {"namespace": "default", "name": "c", "uid": (await the_claim(cluster)).metadata.uid}
        await add(cluster, volume(claimRef=reference, **folder(tmp_path)))
        await cluster.sleep(60)
        assert (await the_volume(cluster)).status.phase == "Bound"
        assert is_folder(str(tmp_path))


async def test_claim_of_volume_missing_in_cache_is_not_lost() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*ON)
        await cluster.settle()
        await stop_watches(cluster, replica, PERSISTENT_VOLUMES.path())
        await add(cluster, volume())
        await add(cluster, claim(volumeName="v", meta={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}))
        await cluster.sleep(60)
        assert (await the_claim(cluster)).status.phase == "Bound"
