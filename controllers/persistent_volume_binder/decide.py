"""Decides the next step for a claim or a volume from the observed objects; pure."""

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
    """The claim stays pending for the reason in `event`."""

    event: EventText | None = None


class AssignClass(msgspec.Struct, frozen=True):
    """Set the default class."""

    name: str


class Provision(msgspec.Struct, frozen=True):
    """Provision a volume with that in-tree plugin, or with an external provisioner if it is empty."""

    storage_class: StorageClass
    plugin: str = ""


class Refuse(msgspec.Struct, frozen=True):
    """No volume can be provisioned."""

    event: EventText


class Lose(msgspec.Struct, frozen=True):
    """The claim has lost its volume, if the server confirms it."""

    event: EventText


class Misbound(msgspec.Struct, frozen=True):
    """The volume of the claim has always been bound to another claim."""


ClaimStep = Bind | Wait | AssignClass | Provision | Refuse | Lose | Misbound | None


class Surroundings(msgspec.Struct, frozen=True):
    """The objects that matter for a claim.

    `named` is the volume that it names. `match` is the best volume, which is searched only without a name. `default`
    is the default class. The pods are those with the claim that wait for a node.
    """

    named: PersistentVolume | None = None
    match: PersistentVolume | None = None
    storage_class: StorageClass | None = None
    default: StorageClass | None = None
    unscheduled: Sequence[str] = ()
    provisioning: bool = True


# Observed: a claim with the annotation bind-completed.          Decided:
#   it names no volume, or a missing one                         lost
#   its volume is unbound, or bound to it                        complete the binding
#   its volume is bound to another claim                         lost
# A claim that names a volume:
#   the volume does not exist                                    wait
#   the volume is unclaimed and matches                          bind
#   the volume is unclaimed and does not match                   wait, with an event
#   the volume is bound to it, or reserved for it                bind
#   the volume is bound to another claim                         wait, with an event unless the controller did that
# A claim without a volume name:
#   a volume matches                                             bind
#   it has no class, and there is a default class                set the default class
#   its class waits for the first consumer, and no node is set   wait, with an event
#   it has a class                                               provision a volume, if possible
#   otherwise                                                    wait, with an event


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
    """Return whether a claim specifies a class, which may be empty."""
    return claim.spec.storage_class_name is not None or _BETA_CLASS in (claim.metadata.annotations or {})


def waits_for_pod(storage_class: StorageClass | None) -> bool:
    """Return whether the scheduler chooses the volumes of a class together with the node (WaitForFirstConsumer)."""
    return storage_class is not None and storage_class.volume_binding_mode == _WAITS


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class: the newest of several, then the first by name."""
    found = [one for one in classes if any((one.metadata.annotations or {}).get(name) == "true" for name in _DEFAULT)]
    newest = max((one.metadata.creation_timestamp or "" for one in found), default="")
    last = [one for one in found if (one.metadata.creation_timestamp or "") == newest]
    return min(last, key=lambda one: one.metadata.name, default=None)


class VolumeStep(Enum):
    """The step for a volume."""

    AVAILABLE = auto()
    """It waits for a claim, possibly for a reserved one."""
    BOUND = auto()
    CLAIM_DECIDES = auto()
    """Enqueue the claim that it is bound to."""
    MISMATCH = auto()
    """The claim that it is bound to does not match."""
    UNBIND = auto()
    RECLAIM = auto()


# Observed: a volume, and the claim that it is bound to.         Decided:
#   it is unbound, or reserved for a claim that is not bound     available
#   the claim is gone, or replaced by one of that name           reclaim
#   the claim names no volume and has another volume mode        events for both
#   the claim names no volume otherwise                          enqueue the claim
#   the claim names it                                           bound
#   the claim names another volume: provisioned for the claim,   reclaim
#     with policy Delete
#   the claim names another volume otherwise                     unbind


def decide_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeStep:
    """Return the step for a volume. `claim` is the present object under the name that the volume is bound to."""
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
    """The action on a released volume."""

    KEEP = auto()
    """Keep it; another component may reclaim it."""
    RECYCLE = auto()
    DELETE = auto()
    UNDELETABLE = auto()
    UNKNOWN = auto()


def decide_reclaim(volume: PersistentVolume, plugin: str) -> Reclaim:
    """Return the action on a released volume of that plugin. Migrated volumes are left to CSI drivers."""
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
    """Return whether a volume may be recycled or deleted, given the objects on the server."""
    return volume.status.phase != BOUND and decide_volume(volume, claim) is VolumeStep.RECLAIM
