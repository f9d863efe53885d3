"""Plugins for storage: StorageObjectInUseProtection and PersistentVolumeClaimResize.

New claims, volumes and volume attributes classes get a finalizer, which a controller removes when they are unused. A
bound claim may grow if its class allows expansion.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import msgspec

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.default_classes import CLAIM_CLASS_ANNOTATION
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.tree import Tree

_CLAIMS = "persistentvolumeclaims"
_CLASSES = f"storageclasses.storage.{GROUP_DOMAIN}"
_FINALIZERS: Mapping[str, str] = MappingProxyType(
    {
        _CLAIMS: f"{PLATFORM_DOMAIN}/pvc-protection",
        "persistentvolumes": f"{PLATFORM_DOMAIN}/pv-protection",
        f"volumeattributesclasses.storage.{GROUP_DOMAIN}": f"{PLATFORM_DOMAIN}/vac-protection",
    }
)
_SIZE = ("spec", "resources", "requests", "storage")


def storage_object_in_use_protection(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin StorageObjectInUseProtection."""
    rule = Rule(protect, ("create",), tuple(_FINALIZERS))
    return AdmissionPlugin("StorageObjectInUseProtection", mutating=(rule,))


async def protect(attributes: Attributes) -> None:
    """Add the finalizer of its kind to a new object."""
    metadata, finalizer = attributes.tree["metadata"], _FINALIZERS[attributes.kind.storage]
    finalizers = metadata.get("finalizers") or []
    if finalizer not in finalizers:
        metadata["finalizers"] = [*finalizers, finalizer]


def persistent_volume_claim_resize(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin PersistentVolumeClaimResize."""
    rule = Rule(partial(check_size, parts.store), ("update",), (_CLAIMS,))
    return AdmissionPlugin("PersistentVolumeClaimResize", validating=(rule,))


async def check_size(store: WatchCache, attributes: Attributes) -> None:
    """Raises `Forbidden` for a claim that grows although its class does not allow it."""
    new, old = attributes.tree, attributes.old_object or {}
    asked, had = get_in(new, _SIZE) or "0", get_in(old, _SIZE) or "0"
    if asked == had or parse(asked).number <= parse(had).number:
        return
    if get_in(old, ("status", "phase")) != "Bound":
        raise attributes.refused("Only bound persistent volume claims can be expanded")
    name = _class_of(new)
    if not name or name != _class_of(old) or not _may_expand(store, name):
        why = "the storageclass that provisions the pvc must support resize"
        raise attributes.refused(f"only dynamically provisioned pvc can be resized and {why}")


def _class_of(claim: Tree) -> str:
    annotated = get_in(claim, ("metadata", "annotations", CLAIM_CLASS_ANNOTATION))
    return annotated if annotated is not None else get_in(claim, ("spec", "storageClassName")) or ""


class _Class(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    allow_volume_expansion: bool | None = None


_STORED = msgspec.json.Decoder(_Class)


def _may_expand(store: WatchCache, name: str) -> bool:
    row = store.get(_CLASSES, name)
    return row is not None and bool(_STORED.decode(row.data).allow_volume_expansion)
