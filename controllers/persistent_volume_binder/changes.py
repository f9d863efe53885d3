"""Claims and volumes with the changes to write; pure. An object without changes is returned as it is."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from controller_manager.common.api.core import ObjectReference
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.storage import (
    BOUND,
    PENDING,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
)

from ..shared.claims import PRE_RESIZE_CAPACITY, size_of
from ..shared.volume_plugins import IN_TREE, MIGRATED
from .decide import BIND_COMPLETED, BOUND_BY_CONTROLLER, MIGRATED_TO, PROVISIONED_BY
from .volumes import is_bound_to

PROVISIONER = f"volume.{PLATFORM_DOMAIN}/storage-provisioner"
BETA_PROVISIONER = f"volume.beta.{PLATFORM_DOMAIN}/storage-provisioner"
KEPT_BY_CONTROLLER = f"{PLATFORM_DOMAIN}/pv-controller"
KEPT_BY_PROVISIONER = f"external-provisioner.volume.{PLATFORM_DOMAIN}/finalizer"

_YES = "yes"

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)


def annotated(one: PersistentVolume | PersistentVolumeClaim) -> dict[str, str]:
    """Return a mutable copy of the annotations of a claim or volume."""
    return dict(one.metadata.annotations or {})


def with_annotations(one: T, annotations: Mapping[str, str]) -> T:
    """Return a claim or a volume with the annotations replaced."""
    if annotations == (one.metadata.annotations or {}):
        return one
    return replace(one, metadata=replace(one.metadata, annotations=annotations or None))


def bound_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return a volume bound to a claim. If it was not reserved, an annotation records that the controller chose it."""
    annotations, meta, reference = annotated(volume), claim.metadata, volume.spec.claim_ref
    if not is_bound_to(volume, claim):
        annotations.setdefault(BOUND_BY_CONTROLLER, _YES)
    volume = with_annotations(volume, annotations)
    if reference is not None and (reference.namespace, reference.name, reference.uid) == (
        meta.namespace,
        meta.name,
        meta.uid,
    ):
        return volume
    return replace(volume, spec=replace(volume.spec, claim_ref=claim_reference(claim)))


def claim_reference(claim: PersistentVolumeClaim) -> ObjectReference:
    """Return the reference to a claim that a volume has."""
    meta, kind = claim.metadata, PERSISTENT_VOLUME_CLAIMS
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def bound_claim(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim:
    """Return a claim bound to a volume. If it did not name it, an annotation records that the controller chose it."""
    annotations = annotated(claim)
    if claim.spec.volume_name != volume.metadata.name:
        annotations.setdefault(BOUND_BY_CONTROLLER, _YES)
        claim = replace(claim, spec=replace(claim.spec, volume_name=volume.metadata.name))
    annotations.setdefault(BIND_COMPLETED, _YES)
    return with_annotations(claim, annotations)


def with_bound_status(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim:
    """Return a claim with the status of its volume. Its capacity is taken over when it is bound."""
    status = replace(claim.status, phase=BOUND, access_modes=volume.spec.access_modes)
    if claim.status.phase != BOUND:
        status = replace(status, capacity=_capacity(claim, volume))
        if claim.status.phase == PENDING:
            status = replace(status, current_volume_attributes_class_name=volume.spec.volume_attributes_class_name)
    return claim if status == claim.status else replace(claim, status=status)


def _capacity(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Mapping[str, str] | None:
    """Return the capacity of a claim. During an expansion it is the volume's previous capacity."""
    had = (volume.metadata.annotations or {}).get(PRE_RESIZE_CAPACITY)
    if had is not None:
        return {**(claim.status.capacity or {}), STORAGE: _quantity(had) or (volume.spec.capacity or {})[STORAGE]}
    known = STORAGE in (claim.status.capacity or {})
    same = known and size_of(claim.status.capacity) == size_of(volume.spec.capacity)
    return claim.status.capacity if same else volume.spec.capacity


def _quantity(text: str) -> str:
    try:
        return str(parse(text))
    except ValueError:
        return ""


def with_phase(claim: PersistentVolumeClaim, phase: str) -> PersistentVolumeClaim:
    """Return a claim without a volume in that phase."""
    status = replace(
        claim.status, phase=phase, access_modes=(), capacity=None, current_volume_attributes_class_name=None
    )
    return claim if status == claim.status else replace(claim, status=status)


def in_phase(volume: PersistentVolume, phase: str, message: str = "") -> PersistentVolume:
    """Return a volume in a phase with a message, or the same volume if it is in that phase already."""
    if volume.status.phase == phase:
        return volume
    return replace(volume, status=PersistentVolumeStatus(phase=phase, message=message, reason=volume.status.reason))


def unbound_volume(volume: PersistentVolume) -> PersistentVolume:
    """Return an unbound volume. If a user reserved it for a claim, the reservation is kept."""
    annotations, reference = annotated(volume), volume.spec.claim_ref
    if annotations.pop(BOUND_BY_CONTROLLER, None) is None and reference is not None:
        return replace(volume, spec=replace(volume.spec, claim_ref=replace(reference, uid="")))
    return with_annotations(replace(volume, spec=replace(volume.spec, claim_ref=None)), annotations)


def with_provisioner(claim: PersistentVolumeClaim, provisioner: str) -> PersistentVolumeClaim:
    """Return a claim with the annotations of its provisioner."""
    annotations = annotated(claim)
    if annotations.get(PROVISIONER) == provisioner:
        return claim
    return migrated(with_annotations(claim, {**annotations, BETA_PROVISIONER: provisioner, PROVISIONER: provisioner}))


def migrated(one: T) -> T:
    """Return a claim or a volume with the annotation for the CSI driver that replaced its plugin."""
    annotations = annotated(one)
    names = (PROVISIONED_BY,) if isinstance(one, PersistentVolume) else (PROVISIONER, BETA_PROVISIONER)
    maker = next((annotations[name] for name in names if name in annotations), None)
    if maker is None:
        return one
    if maker in MIGRATED:
        annotations[MIGRATED_TO] = MIGRATED[maker]
    else:
        annotations.pop(MIGRATED_TO, None)
    return with_annotations(one, annotations)


def with_finalizers(volume: PersistentVolume) -> PersistentVolume:
    """Return a volume with the finalizers that delay its deletion until its storage is deleted (KEP-2644)."""
    maker, finalizers = (volume.metadata.annotations or {}).get(PROVISIONED_BY, ""), volume.metadata.finalizers
    if not maker.startswith(IN_TREE):
        return volume
    deletes = volume.spec.persistent_volume_reclaim_policy == "Delete"
    others = tuple(one for one in finalizers if one != KEPT_BY_CONTROLLER)
    if maker in MIGRATED:
        wanted = others
    else:
        wanted = finalizers if deletes and KEPT_BY_CONTROLLER in finalizers else others
        wanted = (*wanted, KEPT_BY_CONTROLLER) if deletes and KEPT_BY_CONTROLLER not in wanted else wanted
        wanted = tuple(one for one in wanted if one != KEPT_BY_PROVISIONER)
    return volume if wanted == finalizers else replace(volume, metadata=replace(volume.metadata, finalizers=wanted))
