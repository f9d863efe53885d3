"""Decisions about claims and volumes."""

from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.storage import PersistentVolume, PersistentVolumeClaim
from controllers.persistent_volume_binder.changes import (
    bound_claim,
    bound_volume,
    migrated,
    unbound_volume,
    with_bound_status,
    with_finalizers,
    with_phase,
    with_provisioner,
)
from controllers.persistent_volume_binder.decide import (
    AssignClass,
    Bind,
    Lose,
    Misbound,
    Provision,
    Reclaim,
    Refuse,
    Surroundings,
    VolumeStep,
    Wait,
    decide_claim,
    decide_reclaim,
    decide_volume,
    default_class,
)
from controllers.persistent_volume_binder.host_path import is_deletable
from controllers.persistent_volume_binder.recycler import Progress, progress_of, template_from, volume_name
from tests.scenarios.storage import claim, pod, storage_class, volume

DONE = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}, "uid": "u"}
OURS = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}, "uid": "u"}
CHOSEN = {"annotations": {"volume.kubernetes.io/selected-node": "n"}, "uid": "u"}
MINE = {"claimRef": {"namespace": "default", "name": "c", "uid": "u"}}
RESERVED = {"claimRef": {"namespace": "default", "name": "c"}}
OTHERS = {"claimRef": {"namespace": "default", "name": "c", "uid": "other"}}
WAITING = storage_class(volumeBindingMode="WaitForFirstConsumer")
IN_TREE = "kubernetes.io/host-path"


def of(uid: str = "u", **given: Any) -> PersistentVolumeClaim:
    found: PersistentVolumeClaim = claim(meta={"uid": uid, **given.pop("meta", {})}, **given)
    return found


@pytest.mark.parametrize(
    ("asked", "there", "step"),
    [
        (of(meta=DONE), None, "Lose ClaimLost"),
        (of(meta=DONE, volumeName="v"), None, "Lose ClaimLost"),
        (of(meta=DONE, volumeName="v"), volume(), "Bind v"),
        (of(meta=DONE, volumeName="v"), volume(**MINE), "Bind v"),
        (of(meta=DONE, volumeName="v"), volume(**OTHERS), "Lose ClaimMisbound"),
        (of(meta=DONE, volumeName="v"), volume(**RESERVED), "Lose ClaimMisbound"),
        (of(volumeName="v"), None, "Wait"),
        (of(volumeName="v"), volume(), "Bind v"),
        (of(volumeName="v"), volume(**RESERVED), "Bind v"),
        (of(volumeName="v"), volume(**MINE), "Bind v"),
        (of(volumeName="v"), volume(**OTHERS), "Wait FailedBinding"),
        (of(volumeName="v", meta=OURS), volume(**OTHERS), "Misbound"),
        (of(volumeName="v", size="2Gi"), volume(), "Wait VolumeMismatch"),
        (of(volumeName="v", size="1025Mi"), volume(), "Wait VolumeMismatch"),
        (of(volumeName="v", storageClassName="x"), volume(), "Wait VolumeMismatch"),
        (of(volumeName="v", volumeMode="Block"), volume(), "Wait VolumeMismatch"),
        (of(volumeName="v", volumeAttributesClassName="x"), volume(), "Wait VolumeMismatch"),
        (of(volumeName="v", accessModes=["ReadWriteMany"]), volume(), "Wait VolumeMismatch"),
        (of(volumeName="v"), volume(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "Wait VolumeMismatch"),
    ],
)
def test_step_for_claim_with_volume(asked: PersistentVolumeClaim, there: PersistentVolume | None, step: str) -> None:
    assert step_text(decide_claim(asked, Surroundings(named=there))) == step


@pytest.mark.parametrize(
    ("asked", "there", "step"),
    [
        (of(), Surroundings(match=volume()), "Bind v"),
        (of(), Surroundings(), "Wait FailedBinding"),
        (of(), Surroundings(default=storage_class()), "Wait FailedBinding"),
        (of(storageClassName=None), Surroundings(default=storage_class()), "AssignClass fast"),
        (of(storageClassName=None), Surroundings(), "Wait FailedBinding"),
        (
            of(storageClassName=None, meta={"annotations": {"volume.beta.kubernetes.io/storage-class": ""}}),
            Surroundings(default=storage_class()),
            "Wait FailedBinding",
        ),
        (of(storageClassName="fast"), Surroundings(storage_class=WAITING), "Wait WaitForFirstConsumer"),
        (
            of(storageClassName="fast"),
            Surroundings(storage_class=WAITING, unscheduled=["p"]),
            "Wait WaitForPodScheduled",
        ),
        (of(storageClassName="fast", meta=CHOSEN), Surroundings(storage_class=WAITING), "Provision "),
        (of(storageClassName="fast"), Surroundings(storage_class=storage_class()), "Provision "),
        (
            of(storageClassName="fast"),
            Surroundings(storage_class=storage_class(provisioner=IN_TREE)),
            f"Provision {IN_TREE}",
        ),
        (
            of(storageClassName="fast"),
            Surroundings(storage_class=storage_class(provisioner="kubernetes.io/cinder")),
            "Provision ",
        ),
        (
            of(storageClassName="fast"),
            Surroundings(storage_class=storage_class(provisioner="kubernetes.io/nfs")),
            "Refuse ProvisioningFailed",
        ),
        (of(storageClassName="fast"), Surroundings(), "Refuse ProvisioningFailed"),
        (of(storageClassName="fast"), Surroundings(provisioning=False), "None"),
    ],
)
def test_step_for_claim_without_volume(asked: PersistentVolumeClaim, there: Surroundings, step: str) -> None:
    assert step_text(decide_claim(asked, there)) == step


def step_text(step: Any) -> str:
    match step:
        case Bind(found):
            return f"Bind {found.metadata.name}"
        case Wait(None):
            return "Wait"
        case Wait(notice) | Lose(notice) | Refuse(notice):
            return f"{type(step).__name__} {notice.reason}"
        case AssignClass(name):
            return f"AssignClass {name}"
        case Provision(_, plugin):
            return f"Provision {plugin}"
        case Misbound():
            return "Misbound"
    return str(step)


MADE = {"annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"}}


@pytest.mark.parametrize(
    ("found", "there", "step"),
    [
        (volume(), None, VolumeStep.AVAILABLE),
        (volume(**RESERVED), of(), VolumeStep.AVAILABLE),
        (volume(**MINE), None, VolumeStep.RECLAIM),
        (volume(**MINE), of("other"), VolumeStep.RECLAIM),
        (volume(**MINE), of(), VolumeStep.CLAIM_DECIDES),
        (volume(**MINE), of(volumeMode="Block"), VolumeStep.MISMATCH),
        (volume(**MINE), of(volumeName="v"), VolumeStep.BOUND),
        (volume(**MINE), of(volumeName="w"), VolumeStep.UNBIND),
        (volume(meta=MADE, **MINE), of(volumeName="w"), VolumeStep.UNBIND),
        (
            volume(meta=MADE, persistentVolumeReclaimPolicy="Delete", **MINE),
            of(volumeName="w"),
            VolumeStep.RECLAIM,
        ),
    ],
)
def test_step_for_volume(found: PersistentVolume, there: PersistentVolumeClaim | None, step: VolumeStep) -> None:
    assert decide_volume(found, there) is step


def made_by(maker: str, **more: str) -> dict[str, Any]:
    return {"annotations": {"pv.kubernetes.io/provisioned-by": maker, **more}}


@pytest.mark.parametrize(
    ("meta", "policy", "source", "plugin", "reclaim"),
    [
        ({}, "Retain", {}, IN_TREE, Reclaim.KEEP),
        ({}, "Recycle", {}, IN_TREE, Reclaim.RECYCLE),
        ({}, "Delete", {}, IN_TREE, Reclaim.DELETE),
        ({}, "Delete", {}, "kubernetes.io/nfs", Reclaim.UNDELETABLE),
        ({}, "Delete", {}, "", Reclaim.UNDELETABLE),
        ({}, "Delete", {"csi": {"driver": "d", "volumeHandle": "h"}}, "", Reclaim.KEEP),
        (made_by("csi.example.com"), "Delete", {}, IN_TREE, Reclaim.KEEP),
        (made_by(IN_TREE), "Delete", {}, IN_TREE, Reclaim.DELETE),
        (made_by("kubernetes.io/unheard-of"), "Delete", {}, IN_TREE, Reclaim.UNDELETABLE),
        (
            made_by("kubernetes.io/gce-pd", **{"pv.kubernetes.io/migrated-to": "x"}),
            "Delete",
            {},
            "",
            Reclaim.KEEP,
        ),
        ({}, "Burn", {}, IN_TREE, Reclaim.UNKNOWN),
    ],
)
def test_reclaim_action_for_volume(
    meta: dict[str, Any], policy: str, source: dict[str, Any], plugin: str, reclaim: Reclaim
) -> None:
    assert decide_reclaim(volume(meta=meta, persistentVolumeReclaimPolicy=policy, **source), plugin) is reclaim


def test_newest_default_class_wins() -> None:
    def default(name: str, made: str, key: str = "storageclass.kubernetes.io", value: str = "true") -> Any:
        meta = {"annotations": {f"{key}/is-default-class": value}, "creationTimestamp": f"2026-01-0{made}T00:00:00Z"}
        return storage_class(name, meta=meta)

    old, new, same = default("a", "1"), default("c", "2", "storageclass.beta.kubernetes.io"), default("b", "2")
    found = default_class([old, new, same, default("d", "3", value="false"), storage_class()])
    assert found is same
    assert default_class([storage_class()]) is None


def test_binding_sets_fields_of_claim_and_volume() -> None:
    asked, given = of(), volume(size="2Gi", volumeAttributesClassName="x")
    given = bound_volume(given, asked)
    assert given.metadata.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert bound_volume(given, asked) == given
    taken = bound_claim(asked, given)
    assert taken.spec.volume_name == "v"
    assert set(taken.metadata.annotations or {}) == {
        "pv.kubernetes.io/bound-by-controller",
        "pv.kubernetes.io/bind-completed",
    }
    taken = with_phase(taken, "Pending")
    has = with_bound_status(taken, given)
    assert (has.status.phase, has.status.capacity) == ("Bound", {"storage": "2Gi"})
    assert has.status.current_volume_attributes_class_name == "x"
    assert with_bound_status(has, given) is has
    larger = replace(given, spec=replace(given.spec, capacity={"storage": "3Gi"}))
    assert with_bound_status(has, larger) is has
    assert with_phase(has, "Lost").status.capacity is None


def test_claim_of_growing_volume_keeps_earlier_capacity() -> None:
    given = volume(size="2Gi", meta={"annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi"}})
    assert with_bound_status(of(), given).status.capacity == {"storage": "1Gi"}


def test_unbinding_reserved_volume_keeps_reservation() -> None:
    given = bound_volume(volume(**RESERVED), of())
    assert given.metadata.annotations is None
    free = unbound_volume(given)
    assert free.spec.claim_ref is not None
    assert (free.spec.claim_ref.name, free.spec.claim_ref.uid) == ("c", "")
    assert unbound_volume(bound_volume(volume(), of())) == volume()


def test_provisioner_and_migration_annotations() -> None:
    asked = with_provisioner(of(), "ebs.csi.aws.com")
    assert set(asked.metadata.annotations or {}) == {
        "volume.kubernetes.io/storage-provisioner",
        "volume.beta.kubernetes.io/storage-provisioner",
    }
    old = volume(meta=made_by("kubernetes.io/aws-ebs"))
    assert (migrated(old).metadata.annotations or {})["pv.kubernetes.io/migrated-to"] == "ebs.csi.aws.com"
    assert migrated(migrated(old)) == migrated(old)
    back = volume(meta=made_by("csi.example.com", **{"pv.kubernetes.io/migrated-to": "x"}))
    assert "pv.kubernetes.io/migrated-to" not in (migrated(back).metadata.annotations or {})


CONTROLLER, PROVISIONER = "kubernetes.io/pv-controller", "external-provisioner.volume.kubernetes.io/finalizer"


@pytest.mark.parametrize(
    ("maker", "policy", "before", "after"),
    [
        (IN_TREE, "Delete", ["a"], ["a", CONTROLLER]),
        (IN_TREE, "Delete", [CONTROLLER, "a"], [CONTROLLER, "a"]),
        (IN_TREE, "Retain", [CONTROLLER, "a"], ["a"]),
        (IN_TREE, "Delete", [PROVISIONER], [CONTROLLER]),
        ("kubernetes.io/cinder", "Delete", [CONTROLLER, PROVISIONER], [PROVISIONER]),
        ("csi.example.com", "Delete", [CONTROLLER, PROVISIONER], [CONTROLLER, PROVISIONER]),
        (None, "Delete", [CONTROLLER], [CONTROLLER]),
    ],
)
def test_finalizers_of_volume_by_provisioner_and_policy(
    maker: str | None, policy: str, before: list[str], after: list[str]
) -> None:
    meta = {**(made_by(maker) if maker else {}), "finalizers": before}
    found = with_finalizers(volume(meta=meta, persistentVolumeReclaimPolicy=policy))
    assert list(found.metadata.finalizers) == after


@pytest.mark.parametrize(
    ("path", "deletable"),
    [
        ("/tmp/hostpath_pv/a", True),
        ("/tmp", False),
        ("/tmp/", False),
        ("/tmp/../etc", False),
        ("/data/tmp/a", False),
        ("/tmpfile", False),
        ("", False),
    ],
)
def test_only_host_paths_below_tmp_are_deletable(path: str, deletable: bool) -> None:
    assert is_deletable(path) is deletable


def test_recycling_progress_from_pod_phase() -> None:
    def made(phase: str) -> Any:
        found = pod()
        return replace(found, metadata=replace(found.metadata, uid="u"), status=replace(found.status, phase=phase))

    assert progress_of(None, "") is Progress.NONE
    assert progress_of(made("Succeeded"), "") is Progress.FOREIGN
    assert progress_of(made("Pending"), "u") is Progress.RUNNING
    assert progress_of(made("Succeeded"), "u") is Progress.DONE
    assert progress_of(made("Failed"), "u") is Progress.FAILED
    assert (volume_name("recycler-for-v"), volume_name("other")) == ("v", "")


@pytest.mark.parametrize(
    "text", ["", "[]", "spec: {}", "spec: {volumes: []}", "spec: {volumes: [{name: 1}]}", "kind: Job\nspec: {}", "{"]
)
def test_unusable_recycler_template_raises_value_error(text: str, tmp_path: Any) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r".+"):
        template_from(str(file))
