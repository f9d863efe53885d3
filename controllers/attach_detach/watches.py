"""Maps changes of objects to the keys to process: pods, volumes, nodes, attachments and drivers; pure."""

from collections.abc import Iterator

import msgspec

from controller_manager.common.api.core import Node, Pod
from controller_manager.common.api.storage import CSIDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from controller_manager.framework import Change, Informers, Key, key_of

from ..shared.claims import pods_of_claim, pods_with_claim
from ..shared.volume_specs import has_volumes
from .decide import is_managed, needs_volumes, node_facts


class VolumeName(msgspec.Struct, frozen=True):
    """A volume, by its unique name."""

    volume: str


class NodeName(msgspec.Struct, frozen=True):
    """A node whose list of attached volumes is read and written."""

    node: str


class AttachmentName(msgspec.Struct, frozen=True):
    """A VolumeAttachment that has changed."""

    attachment: str


class DriverName(msgspec.Struct, frozen=True):
    """A CSI or FlexVolume driver whose need to attach volumes has changed."""

    driver: str


class Verification(msgspec.Struct, frozen=True):
    """A node whose attachments have to be verified."""

    verified: str


def changed_pods(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield a pod with volumes if its need for them may have changed."""
    before, after = (one is not None and needs_volumes(one) for one in (change.before, change.after))
    if before != after and has_volumes(change.object):
        yield change.key


def changed_nodes(_: Informers, change: Change[Node]) -> Iterator[NodeName]:
    """Yield a node whose facts about volumes have changed."""
    before, after = (_facts_of(one) if one is not None else None for one in (change.before, change.after))
    if before != after or change.initial:
        yield NodeName(change.key.name)


def _facts_of(node: Node) -> object:
    status = node.status
    return (node_facts(node, uses=False), is_managed(node), set(status.volumes_in_use), set(status.volumes_attached))


def pods_of_bound_claim(informers: Informers, change: Change[PersistentVolumeClaim]) -> Iterator[Key]:
    """Yield the pods of a claim that was just bound."""
    before, after = change.before, change.after
    if after is None or after.status.phase != "Bound":
        return
    if before is None or (before.status.phase, before.spec.volume_name) != (after.status.phase, after.spec.volume_name):
        yield from pods_of_claim(informers, change)


def pods_of_volume(informers: Informers, change: Change[PersistentVolume]) -> Iterator[Key]:
    """Yield the pods of the claim to which a volume was just bound."""
    now = change.after.spec.claim_ref if change.after is not None else None
    was = change.before.spec.claim_ref if change.before is not None else None
    if now is not None and (was is None or was.uid != now.uid):
        yield from (key_of(pod) for pod in pods_with_claim(informers, Key(now.namespace, now.name)))


def changed_attachments(_: Informers, change: Change[VolumeAttachment]) -> Iterator[AttachmentName]:
    """Yield a VolumeAttachment that has changed."""
    yield AttachmentName(change.key.name)


def changed_drivers(_: Informers, change: Change[CSIDriver]) -> Iterator[DriverName]:
    """Yield a driver whose need to attach volumes has changed."""
    required = [one is None or one.spec.attach_required is not False for one in (change.before, change.after)]
    if required[0] != required[1]:
        yield DriverName(change.key.name)
