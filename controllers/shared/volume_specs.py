"""Resolves the volumes of pods to attachable volumes: the unique name, the driver, and whether one node at a time may
use them.

volume of a pod                                      resolves to
claim bound to a persistent volume that is bound     the persistent volume, if it is CSI, migrated to CSI, FC,
  to it; an ephemeral claim must be the pod's          iSCSI or of a FlexVolume driver
inline FC, iSCSI, migrated to CSI, FlexVolume        itself
any other                                            nothing
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from controller_manager.common.api.core import Pod, Volume, VolumeSources
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.storage import (
    CSI_DRIVERS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.framework import Informer, Informers, Key

from .claims import claim_name, is_for_pod
from .csi_migration import (
    MANY,
    MIGRATED_SOURCES,
    READ_ONLY,
    CSISource,
    Untranslatable,
    inline_spec,
    source_of,
    translate_inline,
    translate_volume,
)

CSI = f"{PLATFORM_DOMAIN}/csi"
FC = f"{PLATFORM_DOMAIN}/fc"
ISCSI = f"{PLATFORM_DOMAIN}/iscsi"
ATTACHABLE_SOURCES = ("iscsi", "fc", "flex_volume", *MIGRATED_SOURCES)
_OPTION_PREFIX = f"{PLATFORM_DOMAIN}/"


class VolumeSpec(NamedTuple):
    """A volume that can be attached. `name` is unique in the cluster and appears in the node status.

    `title` is its name in events. `volume` is the name of the persistent volume, or `inline` is the spec of an inline
    volume. `exclusive` means that it can be attached to only one node at a time. `options` are the JSON options for a
    FlexVolume driver.
    """

    name: str
    plugin: str
    title: str
    driver: str = ""
    handle: str = ""
    volume: str = ""
    inline: Mapping[str, Any] | None = None
    exclusive: bool = False
    migrated: bool = False
    options: str = ""

    @property
    def is_flex(self) -> bool:
        """Return whether the plugin is a FlexVolume driver."""
        return self.plugin not in (CSI, FC, ISCSI)

    @property
    def kind(self) -> str:
        """Return the plugin name of the metrics, with the driver."""
        return f"{self.plugin}:{self.driver}" if self.driver else self.plugin


def spec_of_name(name: str, flex_drivers: Container[str] = ()) -> VolumeSpec | None:
    """Return the volume of a unique name, which is enough to detach it, or None for an unknown name.

    Its access modes are unknown. Of other plugins only those in `flex_drivers` are recognized.
    """
    flex, _, _ = name.rpartition("/")
    if flex in flex_drivers:
        return VolumeSpec(name, flex, name)
    domain, _, rest = name.partition("/")
    kind, _, volume = rest.partition("/")
    plugin = f"{domain}/{kind}"
    driver, separator, handle = volume.partition("^")
    if plugin == CSI:
        return VolumeSpec(name, CSI, name, driver, handle) if separator else None
    return VolumeSpec(name, plugin, name) if plugin in (FC, ISCSI) and volume else None


def spec_of_volume(volume: PersistentVolume, *, read_only: bool = False) -> VolumeSpec | None:
    """Return the attachable volume of a persistent volume, or None if it is not attachable or cannot be translated to
    CSI.

    `read_only` is the setting of the pod, which FlexVolume drivers receive.
    """
    spec, title = volume.spec, volume.metadata.name
    exclusive = bool(spec.access_modes) and not {MANY, READ_ONLY}.intersection(spec.access_modes)
    if spec.csi is not None:
        return _csi(spec.csi.driver, spec.csi.volume_handle, title)._replace(volume=title, exclusive=exclusive)
    try:
        migrated = translate_volume(volume)
    except Untranslatable:
        return None
    if migrated is not None:
        return _migrated(migrated)._replace(volume=title)
    found = _of_fabric(spec, title) or _of_flex(spec, title, read_only=read_only)
    return found._replace(exclusive=exclusive) if found is not None else None


def spec_of_inline(volume: Volume, namespace: str) -> VolumeSpec | None:
    """Return the attachable volume of an inline volume of a pod, or None."""
    try:
        migrated = translate_inline(volume, namespace)
    except Untranslatable:
        return None
    if migrated is not None:
        return _migrated(migrated)._replace(inline=inline_spec(migrated))
    return _of_fabric(volume, volume.name) or _of_flex(volume, volume.name)


def _csi(driver: str, handle: str, title: str) -> VolumeSpec:
    return VolumeSpec(f"{CSI}/{driver}^{handle}", CSI, title, driver, handle)


def _migrated(source: CSISource) -> VolumeSpec:
    modes = source.access_modes
    exclusive = bool(modes) and not {MANY, READ_ONLY}.intersection(modes)
    return _csi(source.driver, source.handle, source.title)._replace(exclusive=exclusive, migrated=True)


def _of_fabric(volume: VolumeSources, title: str) -> VolumeSpec | None:
    """Return a volume that nodes connect to by themselves but still wait for as if it were attached."""
    iscsi = source_of(volume, "iscsi")
    if iscsi is not None:
        target = f"{iscsi.get('targetPortal', '')}:{iscsi.get('iqn', '')}:{iscsi.get('lun', 0)}"
        return VolumeSpec(f"{ISCSI}/{target}", ISCSI, title)
    fc = source_of(volume, "fc")
    if fc is None:
        return None
    names, lun, ids = fc.get("targetWWNs"), fc.get("lun"), fc.get("wwids")
    if names and lun is not None:
        return VolumeSpec(f"{FC}/[{' '.join(names)}]:{lun}", FC, title)
    return VolumeSpec(f"{FC}/[{' '.join(ids)}]", FC, title) if ids else None


def _of_flex(volume: VolumeSources, title: str, *, read_only: bool = False) -> VolumeSpec | None:
    """Return a volume of a FlexVolume driver. Options of the source override the built-in ones."""
    flex = source_of(volume, "flex_volume")
    if flex is None:
        return None
    options = {
        f"{_OPTION_PREFIX}fsType": flex.get("fsType", ""),
        f"{_OPTION_PREFIX}pvOrVolumeName": title,
        f"{_OPTION_PREFIX}readwrite": "ro"
        if read_only or (isinstance(volume, Volume) and flex.get("readOnly"))
        else "rw",
        **(flex.get("options") or {}),
    }
    driver = flex.get("driver", "")
    return VolumeSpec(f"{driver}/{title}", driver, title, options=msgspec.json.encode(options, order="sorted").decode())


def has_volumes(pod: Pod) -> bool:
    """Return whether a pod may have attachable volumes. Most pods have none."""
    return any(map(_may_be_attached, pod.spec.volumes))


def _may_be_attached(volume: Volume) -> bool:
    if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
        return True
    return any(len(getattr(volume, name)) for name in ATTACHABLE_SOURCES)


class VolumeSpecs:
    """Resolves the volumes of pods from the caches of claims, volumes and drivers."""

    def __init__(self, informers: Informers) -> None:
        self._claims: Informer[PersistentVolumeClaim] = informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._volumes: Informer[PersistentVolume] = informers.get(PERSISTENT_VOLUMES)
        self._drivers: Informer[CSIDriver] = informers.get(CSI_DRIVERS)

    def of_pod(self, pod: Pod) -> Iterator[tuple[Volume, VolumeSpec]]:
        """Yield the volumes of a pod that can be resolved, each with its attachable volume."""
        for volume in pod.spec.volumes:
            found = self.of(pod, volume)
            if found is not None:
                yield volume, found

    def of(self, pod: Pod, volume: Volume) -> VolumeSpec | None:
        """Return the attachable volume of a pod's volume, or None if it is unknown or not attachable."""
        name = claim_name(pod, volume)
        if not name:
            return spec_of_inline(volume, pod.metadata.namespace)
        claim = self._claims.get(Key(pod.metadata.namespace, name))
        if claim is None or claim.status.phase != "Bound" or not claim.spec.volume_name:
            return None
        if volume.ephemeral is not None and not is_for_pod(claim, pod):
            return None
        found = self._volumes.get(Key("", claim.spec.volume_name))
        if found is None or found.spec.claim_ref is None or found.spec.claim_ref.uid != claim.metadata.uid:
            return None
        source = volume.persistent_volume_claim
        return spec_of_volume(found, read_only=source is not None and source.read_only)

    def is_attachable(self, spec: VolumeSpec) -> bool:
        """Return whether a volume must be attached before it is mounted, by its CSIDriver. The default is true."""
        driver = self._drivers.get(Key("", spec.driver)) if spec.driver else None
        return driver is None or driver.spec.attach_required is not False
