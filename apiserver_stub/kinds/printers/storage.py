"""Rows of volumes, claims, classes, attachments and storage drivers."""

from collections.abc import Iterable, Mapping
from typing import Any

from apiserver_stub.kinds.printers.cells import (
    AGE,
    NAME,
    UNSET,
    age,
    columns,
    deleting,
    joined,
    name,
    part,
)
from apiserver_stub.kinds.resource_info import Column, Printer
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree

_CLASS = f"volume.beta.{PLATFORM_DOMAIN}/storage-class"
_IS_DEFAULT = (
    f"storageclass.{PLATFORM_DOMAIN}/is-default-class",
    f"storageclass.beta.{PLATFORM_DOMAIN}/is-default-class",
)
_ARE_DEFAULT_ATTRIBUTES = (f"volumeattributesclass.alpha.{PLATFORM_DOMAIN}/is-default-class",)
_MODES: Mapping[str, str] = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_DRIVER_COLUMNS: tuple[Column, ...] = (
    NAME,
    ("AttachRequired", "boolean", "", 0),
    ("PodInfoOnMount", "boolean", "", 0),
    ("StorageCapacity", "boolean", "", 0),
    ("TokenRequests", "string", "", 0),
    ("RequiresRepublish", "boolean", "", 0),
    ("Modes", "string", "", 0),
    AGE,
)


def _volume(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    claim = part(spec, "claimRef")
    return [
        name(tree),
        part(spec, "capacity").get("storage", "0"),
        _modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(tree),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(tree),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age(tree),
        spec.get("volumeMode", UNSET),
    ]


def _claim(tree: Tree) -> list[Any]:
    """Return the cells of a claim. Capacity and access modes are those of its volume."""
    spec, status = part(tree, "spec"), part(tree, "status")
    bound = bool(spec.get("volumeName"))
    return [
        name(tree),
        _phase(tree),
        spec.get("volumeName", ""),
        part(status, "capacity").get("storage", "0") if bound else "",
        _modes(status) if bound else "",
        _class(tree),
        spec.get("volumeAttributesClassName", UNSET),
        age(tree),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(tree: Tree) -> list[Any]:
    return [
        _class_name(tree, _IS_DEFAULT),
        tree.get("provisioner", ""),
        tree.get("reclaimPolicy", "Delete"),
        tree.get("volumeBindingMode", "Immediate"),
        tree.get("allowVolumeExpansion", False),
        age(tree),
    ]


def _attributes_class(tree: Tree) -> list[Any]:
    return [_class_name(tree, _ARE_DEFAULT_ATTRIBUTES), tree.get("driverName", ""), age(tree)]


def _attachment(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    source = part(spec, "source").get("persistentVolumeName", "")
    attached = part(tree, "status").get("attached", False)
    return [name(tree), spec.get("attacher", ""), source, spec.get("nodeName", ""), attached, age(tree)]


def _driver(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    tokens = spec.get("tokenRequests")
    return [
        name(tree),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        UNSET if tokens is None else ",".join(token.get("audience", "") for token in tokens),
        spec.get("requiresRepublish", False),
        joined(spec.get("volumeLifecycleModes", ())),
        age(tree),
    ]


def _driver_node(tree: Tree) -> list[Any]:
    return [name(tree), len(part(tree, "spec").get("drivers") or ()), age(tree)]


def _class_name(tree: Tree, marks: Iterable[str]) -> str:
    """Return the name of a class, marked if an annotation makes it the default."""
    annotations = part(tree, "metadata", "annotations")
    return f"{name(tree)} (default)" if any(annotations.get(mark) == "true" for mark in marks) else name(tree)


def _phase(tree: Tree) -> str:
    return "Terminating" if deleting(tree) else str(part(tree, "status").get("phase", ""))


def _class(tree: Tree) -> str:
    annotated = part(tree, "metadata", "annotations").get(_CLASS)
    return str(annotated if annotated is not None else part(tree, "spec").get("storageClassName", ""))


def _modes(owner: Tree) -> str:
    found = owner.get("accessModes", ())
    return ",".join(short for mode, short in _MODES.items() if mode in found)


PRINTERS = {
    ("", "PersistentVolume"): Printer(columns("persistentVolume"), _volume),
    ("", "PersistentVolumeClaim"): Printer(columns("persistentVolumeClaim"), _claim),
    ("storage.k8s.io", "CSIDriver"): Printer(_DRIVER_COLUMNS, _driver),
    ("storage.k8s.io", "CSINode"): Printer(columns("csiNode"), _driver_node),
    ("storage.k8s.io", "StorageClass"): Printer(columns("storageClass"), _storage_class),
    ("storage.k8s.io", "VolumeAttachment"): Printer(columns("volumeAttachment"), _attachment),
    ("storage.k8s.io", "VolumeAttributesClass"): Printer(columns("volumeAttributesClass"), _attributes_class),
}
