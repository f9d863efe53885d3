"""The rules every object's metadata keeps: names, labels, annotations, owners, finalizers, and what never changes."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.kinds.problems import IMMUTABLE, forbidden, invalid, required, too_long
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts
from controller_manager.api.errors import Cause

ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_NEVER_CHANGED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")


def _address_name(name: str) -> str:
    return names.address(name) or names.path_segment(name)


_NAMES: Mapping[str, Callable[[str], str]] = MappingProxyType({
    "clusterrolebindings.rbac.authorization.k8s.io": names.path_segment,
    "clusterroles.rbac.authorization.k8s.io": names.path_segment,
    "ipaddresses.networking.k8s.io": _address_name,
    "namespaces": names.label,
    "rolebindings.rbac.authorization.k8s.io": names.path_segment,
    "roles.rbac.authorization.k8s.io": names.path_segment,
    "services": names.old_label,
})  # fmt: skip


def check_metadata(kind: Kind, new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of an object's metadata."""
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        yield required("metadata")
        return
    yield from _name(kind, metadata)
    yield from check_labels(metadata.get("labels"), "metadata.labels")
    yield from check_annotations(metadata.get("annotations"), "metadata.annotations")
    yield from _owners(metadata.get("ownerReferences"))
    yield from check_finalizers(metadata.get("finalizers"), "metadata.finalizers")
    if old is not None:
        yield from _unchanged(metadata, old["metadata"])


def _name(kind: Kind, metadata: Tree) -> Iterator[Cause]:
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    rule = _NAMES.get(kind.name, names.subdomain)
    if prefix and (why := rule(prefix.rstrip("-.") + "x")):
        yield invalid("metadata.generateName", prefix, why)
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif why := rule(name):
        yield invalid("metadata.name", name, why)
    namespace = metadata.get("namespace", "")
    if kind.namespaced and not namespace:
        yield required("metadata.namespace")
    elif not kind.namespaced and namespace:
        yield forbidden("metadata.namespace", "not allowed on this type")
    elif namespace and (why := names.label(namespace)):
        yield invalid("metadata.namespace", namespace, why)


def check_labels(labels: Any, field: str) -> Iterator[Cause]:
    """All problems of a map of labels."""
    for key, value in (labels or {}).items():
        if why := names.qualified(key):
            yield invalid(field, key, why)
        if why := names.label_value(value):
            yield invalid(field, value, why)


def check_annotations(annotations: Any, field: str) -> Iterator[Cause]:
    """All problems of a map of annotations."""
    size = 0
    for key, value in (annotations or {}).items():
        size += len(key.encode()) + len(value.encode())
        if why := names.qualified(key.lower()):
            yield invalid(field, key, why)
    if size > ANNOTATIONS_LIMIT:
        yield too_long(field, ANNOTATIONS_LIMIT)


def check_finalizers(finalizers: Any, field: str) -> Iterator[Cause]:
    """All problems of a list of finalizers."""
    for name in finalizers or ():
        if why := names.qualified(name):
            yield invalid(field, name, why)
        elif "/" not in name and name not in _STANDARD_FINALIZERS:
            yield invalid(field, name, "must be a standard finalizer or qualified by a domain and '/'")
    if {"orphan", "foregroundDeletion"} <= set(finalizers or ()):
        yield invalid(field, finalizers, "orphan and foregroundDeletion exclude each other")


def _owners(owners: Any) -> Iterator[Cause]:
    controllers = 0
    for i, owner in dicts(owners):
        for name in _OWNER_FIELDS:
            if not owner.get(name):
                yield required(f"metadata.ownerReferences[{i}].{name}")
        controllers += owner.get("controller") is True
        if owner.get("kind") == "Event":
            yield invalid(f"metadata.ownerReferences[{i}]", owner, "an Event may not own anything")
    if controllers > 1:
        yield invalid("metadata.ownerReferences", owners, "only one reference may have controller set to true")


def _unchanged(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in _NEVER_CHANGED:
        if new.get(name) != old.get(name):
            yield invalid(f"metadata.{name}", new.get(name), IMMUTABLE)
    if old.get("deletionTimestamp") and new.get("finalizers"):
        added = sorted(set(new["finalizers"]) - set(old.get("finalizers", ())))
        if added:
            why = f"no finalizers may be added to an object that is being deleted, found {', '.join(added)}"
            yield forbidden("metadata.finalizers", why)
