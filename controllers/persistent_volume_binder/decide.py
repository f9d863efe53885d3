"""What is to be done about a claim and about a volume, decided on what was observed; pure."""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.storage import (
    BOUND,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of,
)

from ..shared.volume_plugins import HOST_PATH, IN_TREE, MIGRATED
from .volumes import is_bound_to, mismatch

BIND_COMPLETED = f"pv.{PLATFORM_DOMAIN}/bind-completed"
BOUND_BY_CONTROLLER = f"pv.{PLATFORM_DOMAIN}/bound-by-controller"
PROVISIONED_BY = f"pv.{PLATFORM_DOMAIN}/provisioned-by"
SELECTED_NODE = f"volume.{PLATFORM_DOMAIN}/selected-node"
_DEFAULT = (
    f"storageclass.{PLATFORM_DOMAIN}/is-default-class",
    f"storageclass.beta.{PLATFORM_DOMAIN}/is-default-class",
)
_BETA_CLASS = f"volume.beta.{PLATFORM_DOMAIN}/storage-class"
_WAITS = "WaitForFirstConsumer"


class EventText(NamedTuple):
    """An event about a claim: its type, reason and note."""

    type: str
    reason: str
    note: str


class Bind(msgspec.Struct, frozen=True):
    """Bind the claim to a volume."""

    volume: PersistentVolume


class Wait(msgspec.Struct, frozen=True):
    """The claim stays pending, for the reason that `said` gives."""

    said: EventText | None = None


class AssignClass(msgspec.Struct, frozen=True):
    """Give the claim the default class."""

    name: str


class Provision(msgspec.Struct, frozen=True):
    """Have a volume made, by the plugin of that name; without one by an external provisioner."""

    storage_class: StorageClass
    plugin: str = ""


class Refuse(msgspec.Struct, frozen=True):
    """No volume can be made."""

    said: EventText


class Lose(msgspec.Struct, frozen=True):
    """The claim has lost its volume, unless the server knows better."""

    said: EventText


class Misbound(msgspec.Struct, frozen=True):
    """The volume of the claim is bound to another claim, and always was."""


ClaimStep = Bind | Wait | AssignClass | Provision | Refuse | Lose | Misbound | None


class Surroundings(msgspec.Struct, frozen=True):
    """What there is for a claim: the volume that it names; the best one for it, which is looked for only if it names
    none; its class, and that of those who name none; the pods with it that wait for a node.
    """

    named: PersistentVolume | None = None
    match: PersistentVolume | None = None
    storage_class: StorageClass | None = None
    default: StorageClass | None = None
    unscheduled: Sequence[str] = ()
    provisioning: bool = True


# Observed: a claim that was bound completely.                     Decided:
#   it names no volume, or one that is not there                     it is lost
#   its volume is bound to nobody, or to it                          it is bound, whatever of that is missing
#   its volume is bound to another claim                             it is lost
# A claim that names a volume:
#   the volume is not there                                          it waits
#   the volume is not claimed: what the claim asks for               it is bound
#                              anything else                         it waits, and is told why
#   the volume is bound to it, or reserved for it                    it is bound
#   the volume is bound to another claim                             it waits, and is told, unless that was done here
# A claim that names none:
#   a volume fits                                                    it is bound
#   it says nothing of a class, and there is a default               it gets that class
#   its class waits for the first pod, and no node was chosen        it waits, and is told for whom
#   it has a class                                                   a volume is made, if anybody can
#   anything else                                                    it waits, and is told


def decide_claim(claim: PersistentVolumeClaim, there: Surroundings) -> ClaimStep:
    """Return the step for a claim."""
    annotations = claim.metadata.annotations or {}
    if BIND_COMPLETED in annotations:
        return _decide_completed(claim, there.named)
    if claim.spec.volume_name:
        return _decide_named(claim, there.named)
    if there.match is not None:
        return Bind(there.match)
    if there.default is not None and not has_class(claim):
        return AssignClass(there.default.metadata.name)
    if waits_for_pod(there.storage_class) and SELECTED_NODE not in annotations:
        return Wait(_awaited(there.unscheduled))
    if class_of(claim):
        return _decide_provisioning(claim, there)
    return Wait(EventText("Normal", "FailedBinding", "No volume fits this claim, and it has no storage class"))


def _decide_completed(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimStep:
    if not claim.spec.volume_name:
        return Lose(
            EventText("Warning", "ClaimLost", "The claim was bound and names no volume any more: its data is lost")
        )
    if volume is None:
        return Lose(EventText("Warning", "ClaimLost", "The volume of this claim is gone, and the data with it"))
    reference = volume.spec.claim_ref
    if reference is None or reference.uid == claim.metadata.uid:
        return Bind(volume)
    return Lose(EventText("Warning", "ClaimMisbound", "The volume that this claim names is bound to another claim"))


def _decide_named(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimStep:
    if volume is None:
        return Wait()
    name = volume.metadata.name
    if volume.spec.claim_ref is None:
        why = mismatch(volume, claim)
        note = f"The volume {name} that this claim names cannot be bound to it: {why}"
        return Wait(EventText("Warning", "VolumeMismatch", note)) if why else Bind(volume)
    if is_bound_to(volume, claim):
        return Bind(volume)
    if BOUND_BY_CONTROLLER in (claim.metadata.annotations or {}):
        return Misbound()
    note = f"The volume {name} that this claim names is bound to another claim"
    return Wait(EventText("Warning", "FailedBinding", note))


def _awaited(pods: Sequence[str]) -> EventText:
    if not pods:
        return EventText("Normal", _WAITS, "A volume is chosen once a pod with this claim is there")
    return EventText(
        "Normal", "WaitForPodScheduled", f"A volume is chosen once a node is for {', '.join(sorted(pods))}"
    )


def _decide_provisioning(claim: PersistentVolumeClaim, there: Surroundings) -> ClaimStep:
    if not there.provisioning:
        return None
    found = there.storage_class
    if found is None:
        note = f'storageclass.storage.{GROUP_DOMAIN} "{class_of(claim)}" not found'
        return Refuse(EventText("Warning", "ProvisioningFailed", note))
    if found.provisioner == HOST_PATH:
        return Provision(found, HOST_PATH)
    if found.provisioner in MIGRATED or not found.provisioner.startswith(IN_TREE):
        return Provision(found)
    note = f"No plugin of the name {found.provisioner} makes volumes"
    return Refuse(EventText("Warning", "ProvisioningFailed", note))


def has_class(claim: PersistentVolumeClaim) -> bool:
    """Tell whether a claim says of which class it is, maybe of none."""
    return claim.spec.storage_class_name is not None or _BETA_CLASS in (claim.metadata.annotations or {})


def waits_for_pod(storage_class: StorageClass | None) -> bool:
    """Tell whether volumes of a class are chosen by the scheduler, with the node of the first pod."""
    return storage_class is not None and storage_class.volume_binding_mode == _WAITS


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the class for claims that name none: of several the newest, by name where they are of the same age."""
    found = [one for one in classes if any((one.metadata.annotations or {}).get(name) == "true" for name in _DEFAULT)]
    newest = max((one.metadata.creation_timestamp or "" for one in found), default="")
    last = [one for one in found if (one.metadata.creation_timestamp or "") == newest]
    return min(last, key=lambda one: one.metadata.name, default=None)


class VolumeStep(Enum):
    """The step for a volume."""

    AVAILABLE = auto()
    """It waits for a claim, maybe for one of a certain name."""
    BOUND = auto()
    CLAIM_DECIDES = auto()
    """The claim that it is bound to is to be looked at."""
    MISMATCH = auto()
    """The claim that it is bound to cannot have it."""
    UNBIND = auto()
    RECLAIM = auto()


# Observed: a volume, and the claim that it is bound to.                          Decided:
#   it is bound to nobody, or reserved for a claim that has not got it              available
#   the claim is not there, or is another one of that name                          reclaim
#   the claim names no volume: of another volume mode                               both are told
#                              anything else                                        the claim decides
#   the claim names it                                                              bound
#   the claim names another volume: it was made for the claim, to be deleted        reclaim
#                                   anything else                                   unbind


def decide_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeStep:
    """Return the step for a volume; the claim is what is there under the name that the volume is bound to."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return VolumeStep.AVAILABLE
    if claim is None or claim.metadata.uid != reference.uid:
        return VolumeStep.RECLAIM
    if not claim.spec.volume_name:
        same_mode = claim.spec.volume_mode == volume.spec.volume_mode
        return VolumeStep.CLAIM_DECIDES if same_mode else VolumeStep.MISMATCH
    if claim.spec.volume_name == volume.metadata.name:
        return VolumeStep.BOUND
    made_for_it = PROVISIONED_BY in (volume.metadata.annotations or {})
    wanted = volume.spec.persistent_volume_reclaim_policy != "Delete"
    return VolumeStep.RECLAIM if made_for_it and not wanted else VolumeStep.UNBIND


class Reclaim(Enum):
    """What becomes of a volume that no claim has any more."""

    KEEP = auto()
    """It stays as it is, or somebody else takes care of it."""
    RECYCLE = auto()
    DELETE = auto()
    UNDELETABLE = auto()
    UNKNOWN = auto()


def decide_reclaim(volume: PersistentVolume, plugin: str) -> Reclaim:
    """Return what becomes of a released volume, whose source is of that plugin; migrated ones are left to drivers."""
    annotations = volume.metadata.annotations or {}
    if annotations.get(MIGRATED_TO):
        return Reclaim.KEEP
    match volume.spec.persistent_volume_reclaim_policy:
        case "Retain":
            return Reclaim.KEEP
        case "Recycle":
            return Reclaim.RECYCLE
        case "Delete":
            return _decide_deletion(volume, plugin, annotations.get(PROVISIONED_BY, ""))
    return Reclaim.UNKNOWN


def _decide_deletion(volume: PersistentVolume, plugin: str, maker: str) -> Reclaim:
    if (maker and not maker.startswith(IN_TREE)) or (not maker and volume.spec.csi is not None):
        return Reclaim.KEEP
    return Reclaim.DELETE if (maker or plugin) == HOST_PATH else Reclaim.UNDELETABLE


MIGRATED_TO = f"pv.{PLATFORM_DOMAIN}/migrated-to"


def is_reclaimable(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> bool:
    """Tell whether a volume may be emptied or deleted, by the word of the server about it and its claim."""
    return volume.status.phase != BOUND and decide_volume(volume, claim) is VolumeStep.RECLAIM
