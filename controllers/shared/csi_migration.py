"""Translates volumes of former in-tree drivers to their CSI drivers (KEP-625).

Handles, names and attributes are those that the drivers expect. A volume that was attached under one handle cannot be
found under another.

source                  driver                     handle
awsElasticBlockStore    ebs.csi.aws.com            the id, without `aws://zone/`
azureDisk               disk.csi.azure.com         the URI; managed disks only
azureFile               file.csi.azure.com         resource group, account, share, name of the volume and namespace of
                                                   the secret, with `#` between
cinder                  cinder.csi.openstack.org   the id
gcePersistentDisk       pd.csi.storage.gke.io      the path of the disk, with the zones of its labels
portworxVolume          pxd.portworx.com           the id
vsphereVolume           csi.vsphere.vmware.com     the path
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from controller_manager.common.api.core import ZONE, Volume, VolumeSources
from controller_manager.common.api.storage import PersistentVolume
from controller_manager.common.api.tree import FrozenTree

ONCE, READ_ONLY, MANY = "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"

_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_RESOURCE_GROUP = "kubernetes.io/azure-file-resource-group"
_UNSPECIFIED = "UNSPECIFIED"
_EBS_ID = re.compile(r"vol-[^/]*")
_ACCOUNT = re.compile(r"azure-storage-account-(.+)-secret")
_MANAGED = "Managed"


class Untranslatable(Exception):
    """A source that cannot be translated for a CSI driver. The message says why."""


class Owner(NamedTuple):
    """The metadata of a volume, or of a volume within a pod. `namespace` is where its secrets are."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = MappingProxyType({})
    annotations: Mapping[str, str] = MappingProxyType({})


class CSISource(NamedTuple):
    """A volume as its CSI driver identifies it. `tree` has further fields of its source, `title` is its name
    in events.
    """

    driver: str
    handle: str
    tree: FrozenTree
    access_modes: tuple[str, ...]
    title: str


def _ebs(source: FrozenTree, _: Owner) -> CSISource:
    given = source.get("volumeID", "")
    handle = given
    if given.startswith("aws://"):
        handle = urlsplit(given).path.strip("/")
        if not _EBS_ID.fullmatch(handle):
            raise Untranslatable(f"volumeID {given!r} contains no EBS volume ID")
    tree = _source(source, {"partition": str(source.get("partition", 0))})
    return _with_driver("ebs.csi.aws.com", handle, tree)


def _gce(source: FrozenTree, owner: Owner) -> CSISource:
    partition = source.get("partition", 0)
    name = source.get("pdName", "")
    tree = _source(source, {"partition": str(partition) if partition else ""})
    modes = (READ_ONLY if source.get("readOnly") else ONCE,)
    driver = "pd.csi.storage.gke.io"
    return CSISource(
        driver, f"projects/{_UNSPECIFIED}/{_gce_place(owner)}/disks/{name}", tree, modes, f"{driver}-{name}"
    )


def _gce_place(owner: Owner) -> str:
    zones = (owner.labels.get(_OLD_ZONE) or owner.labels.get(ZONE) or "").split("__")
    if len(zones) == 1:
        return f"zones/{zones[0] or _UNSPECIFIED}"
    regions = {zone.rpartition("-")[0] for zone in zones if zone.count("-") == 2}
    if len(regions) != 1 or not all(zone.count("-") == 2 for zone in zones):
        raise Untranslatable(f"the zones {zones} are invalid or in several regions")
    return f"regions/{regions.pop()}"


def _cinder(source: FrozenTree, _: Owner) -> CSISource:
    return _with_driver("cinder.csi.openstack.org", source.get("volumeID", ""), _source(source, {}))


def _azure_disk(source: FrozenTree, _: Owner) -> CSISource:
    kind = source.get("kind")
    if kind is not None and kind.lower() != _MANAGED.lower():
        raise Untranslatable(f"a disk of kind {kind} is not supported by the CSI driver")
    attributes = {"kind": _MANAGED}
    if source.get("cachingMode"):
        attributes["cachingmode"] = source["cachingMode"]
    if source.get("fsType") is not None:
        attributes["fstype"] = source["fsType"]
    uri = source.get("diskURI", "")
    return CSISource("disk.csi.azure.com", uri, _source(source, attributes), (ONCE,), uri)


def _azure_file(source: FrozenTree, owner: Owner) -> CSISource:
    secret, share = source.get("secretName", ""), source.get("shareName", "")
    account = _ACCOUNT.search(secret)
    namespace = source.get("secretNamespace") or owner.namespace
    if not namespace:
        raise Untranslatable("the namespace of the secret is unknown; set secretNamespace")
    group = owner.annotations.get(_RESOURCE_GROUP, "")
    handle = "#".join((group, account[1] if account is not None else secret, share, owner.name, namespace))
    tree = {
        "readOnly": bool(source.get("readOnly")),
        "volumeAttributes": {"sharename": share},
        "nodeStageSecretRef": {"name": secret, "namespace": namespace},
    }
    return CSISource("file.csi.azure.com", handle, tree, (MANY,), handle)


def _vsphere(source: FrozenTree, _: Owner) -> CSISource:
    policy = source.get("storagePolicyName")
    tree = _source(source, {"storagepolicyname": policy} if policy else {})
    return _with_driver("csi.vsphere.vmware.com", source.get("volumePath", ""), tree)


def _portworx(source: FrozenTree, _: Owner) -> CSISource:
    found = _with_driver("pxd.portworx.com", source.get("volumeID", ""), {"fsType": source.get("fsType", "")})
    return found._replace(access_modes=(READ_ONLY,)) if source.get("readOnly") else found


def _source(source: FrozenTree, attributes: FrozenTree) -> FrozenTree:
    return {
        "readOnly": bool(source.get("readOnly")),
        "fsType": source.get("fsType") or "",
        "volumeAttributes": attributes,
    }


def _with_driver(driver: str, handle: str, tree: FrozenTree) -> CSISource:
    return CSISource(driver, handle, tree, (ONCE,), f"{driver}-{handle}")


_TRANSLATIONS: tuple[tuple[str, Callable[[FrozenTree, Owner], CSISource]], ...] = (
    ("aws_elastic_block_store", _ebs),
    ("azure_disk", _azure_disk),
    ("azure_file", _azure_file),
    ("cinder", _cinder),
    ("gce_persistent_disk", _gce),
    ("portworx_volume", _portworx),
    ("vsphere_volume", _vsphere),
)
MIGRATED_SOURCES = tuple(name for name, _ in _TRANSLATIONS)
"""The fields of volumes whose drivers moved to CSI."""


def source_of(volume: VolumeSources, name: str) -> FrozenTree | None:
    """Return the source with that field name of a volume, or None."""
    raw: msgspec.Raw = getattr(volume, name)
    found = msgspec.json.decode(raw) if len(raw) else None
    return found if isinstance(found, dict) else None


def _translated(volume: VolumeSources, owner: Callable[[], Owner]) -> CSISource | None:
    for name, translate in _TRANSLATIONS:
        source = source_of(volume, name)
        if source is not None:
            return translate(source, owner())
    return None


def translate_volume(volume: PersistentVolume) -> CSISource | None:
    """Return the CSI source of a persistent volume, or None if its driver did not move to CSI.

    Raises Untranslatable. The access modes of GCE disks are reduced to those that the driver supports.
    """
    meta, claim = volume.metadata, volume.spec.claim_ref
    namespace = claim.namespace if claim is not None else ""
    found = _translated(volume.spec, lambda: Owner(meta.name, namespace, meta.labels or {}, meta.annotations or {}))
    if found is None:
        return None
    modes = volume.spec.access_modes
    if len(volume.spec.gce_persistent_disk) and modes:
        modes = (READ_ONLY,) if set(modes) == {READ_ONLY} else (ONCE,)
    return found._replace(access_modes=modes, title=meta.name)


def translate_inline(volume: Volume, namespace: str) -> CSISource | None:
    """Return the CSI source of an inline volume of a pod in that namespace. Raises Untranslatable."""
    return _translated(volume, lambda: Owner(volume.name, namespace or "default"))


def inline_spec(source: CSISource) -> FrozenTree:
    """Return the spec of a persistent volume for an inline volume, as VolumeAttachments contain it.

    Empty fields are omitted.
    """
    further = {name: value for name, value in source.tree.items() if value}
    csi = {"driver": source.driver, "volumeHandle": source.handle, **further}
    return {"csi": csi, "accessModes": list(source.access_modes), "volumeMode": "Filesystem"}
