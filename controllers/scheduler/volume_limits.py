"""How many volumes of a CSI driver a node may have (CSINode), and which of them it has; pure.

volume                                                        counts as
of a claim, or of a pod itself, where it moved to CSI         what its driver calls it, once for all pods
that is to be made for a claim                                one of the driver of its class
that is attached to the node, or on its way (VolumeAttachment) what its driver calls it, though no pod there uses it
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from controller_manager.common.api.core import Pod
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import CSINode, PersistentVolume, class_of

from ..shared.csi_migration import MIGRATED_SOURCES, Untranslatable, translate_inline, translate_volume
from ..shared.volume_plugins import MIGRATED
from .node_info import NodeInfo
from .storage import Storage

Handles = Mapping[str, str]
"""The driver of each volume, by volume handle."""


def has_moved_volumes(pod: Pod) -> bool:
    """Return whether a pod has inline volumes of a driver that moved to CSI."""
    return any(len(getattr(one, source)) for one in pod.spec.volumes for source in MIGRATED_SOURCES)


def handles_of(pod: Pod, claims: Iterable[Key], storage: Storage) -> Handles:
    """Return the CSI volumes of a pod with these claims."""
    found = dict(filter(None, (_of_claim(key, storage) for key in claims)))
    return {**found, **dict(_inline(pod))}


def exceeds(wanted: Handles, node: NodeInfo, storage: Storage) -> bool:
    """Return whether these volumes would exceed a driver's limit on a node."""
    limits = _limits(storage.csi_node(node.name))
    if limits.keys().isdisjoint(wanted.values()):
        return False
    there = dict(_attached(node.name, storage))
    for placed in node.pods.values():
        there.update(handles_of(placed.pod, placed.claims, storage))
    counts = Counter({**there, **wanted}.values())
    new = {driver for handle, driver in wanted.items() if handle not in there}
    return any(counts[driver] > limits.get(driver, counts[driver]) for driver in new)


def _limits(node: CSINode | None) -> Mapping[str, int]:
    return {
        driver.name: driver.allocatable.count
        for driver in (node.spec.drivers if node is not None else ())
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _attached(node: str, storage: Storage) -> Iterator[tuple[str, str]]:
    for one in storage.attachments(node):
        name, driver = one.spec.source.persistent_volume_name, one.spec.attacher
        volume = storage.volume(name) if name else None
        if volume is not None and volume.spec.csi is not None:
            yield f"{driver}/{volume.spec.csi.volume_handle}", driver


def _of_claim(key: Key, storage: Storage) -> tuple[str, str] | None:
    claim = storage.claim(key)
    if claim is None:
        return None
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _of_volume(volume)
    found = storage.storage_class(class_of(claim))
    if found is None:
        return None
    driver = MIGRATED.get(found.provisioner, found.provisioner)
    return f"{driver}-{key}", driver


def _of_volume(volume: PersistentVolume) -> tuple[str, str] | None:
    if volume.spec.csi is not None:
        return f"{volume.spec.csi.driver}/{volume.spec.csi.volume_handle}", volume.spec.csi.driver
    try:
        moved = translate_volume(volume)
    except Untranslatable:
        return None
    return (f"{moved.driver}/{moved.handle}", moved.driver) if moved is not None else None


def _inline(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        try:
            moved = translate_inline(volume, pod.metadata.namespace)
        except Untranslatable:
            continue
        if moved is not None:
            yield f"{moved.driver}/{moved.handle}", moved.driver
