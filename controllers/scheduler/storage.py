"""Lookups of claims and volumes for decisions."""

from collections.abc import Callable, Iterable

import msgspec

from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


def _none(_: str) -> Iterable[VolumeAttachment]:
    return ()


class Storage(msgspec.Struct, frozen=True):
    """Lookups of claims and volumes. `attachments` are those to a node. `taken` are volumes being bound to a claim."""

    claim: Callable[[Key], PersistentVolumeClaim | None]
    volume: Callable[[str], PersistentVolume | None]
    volumes: Callable[[], Iterable[PersistentVolume]]
    storage_class: Callable[[str], StorageClass | None]
    csi_node: Callable[[str], CSINode | None]
    csi_driver: Callable[[str], CSIDriver | None]
    capacities: Callable[[], Iterable[CSIStorageCapacity]]
    attachments: Callable[[str], Iterable[VolumeAttachment]] = _none
    taken: dict[str, Key] = {}
