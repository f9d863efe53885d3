"""Validation of metadata: names, labels, annotations, owners, finalizers, managed fields, immutable fields."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import NameRule, ValueRule, at_least, both, form, one_of, record, shorter
from apiserver_stub.kinds.rules.formats import prefixed
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

_ANNOTATIONS_LIMIT = 256 * 1024  # bytes
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_NEVER_CHANGED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_AT: FieldPath = (None, "metadata")
MANAGER_LIMIT, SUBRESOURCE_LIMIT = 128, 256
"""The maximum bytes of the manager and the subresource in a managed fields entry."""


def labels(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a map of labels."""
    for name, value in values.items():
        if why := names.qualified(name):
            errors.malformed(at, name, why)
        if why := names.label_value(value):
            errors.malformed(at, value, why)


def annotations(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a map of annotations."""
    for name in values:
        if why := names.qualified(name.lower()):
            errors.malformed(at, name, why)
    if not fit(values):
        errors.too_long(at, _ANNOTATIONS_LIMIT)


def fit(annotations: Mapping[str, str]) -> bool:
    """Return whether the annotations are within the total size limit of an object."""
    return sum(map(_size, annotations)) + sum(map(_size, annotations.values())) <= _ANNOTATIONS_LIMIT


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def finalizers(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the finalizers of an object."""
    for index, name in enumerate(values):
        _finalizer(name, at, (at, index), errors)
    if "orphan" in values and "foregroundDeletion" in values:
        errors.invalid(at, values, "orphan and foregroundDeletion exclude each other")


def qualified_finalizers(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the finalizers of a custom object, which may have any qualified name."""
    for name in values:
        if why := names.qualified(name):
            errors.malformed(at, name, why)
    if "orphan" in values and "foregroundDeletion" in values:
        errors.invalid(at, values, "orphan and foregroundDeletion exclude each other")


def namespace_finalizers(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the finalizers in the spec of a namespace."""
    for name in values:
        _finalizer(name, at, at, errors)


def _finalizer(name: str, at: FieldPath, known_at: FieldPath, errors: ErrorList) -> None:
    """Check a finalizer. A wrong format is reported at `at`, an unknown name without a domain at `known_at`."""
    if why := names.qualified(name):
        errors.malformed(at, name, why)
    if "/" not in name and name not in _STANDARD_FINALIZERS:
        errors.invalid(known_at, name, "must be a standard finalizer or fully qualified")


def _is_version(text: str) -> bool:
    """Return whether the text is `<group>/<version>` or `<version>`."""
    return bool(text) and text.count("/") < 2 and not text.endswith("/")


def owner_references(owners: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a list of owners. Errors are reported at the list, because Kubernetes' causes have no index."""
    controller = ""
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not _is_version(version):
            errors.invalid((at, "apiVersion"), version, "must be <group>/<version> or <version>")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                errors.invalid((at, name), "", "must not be empty")
        if owner.get("kind") == "Event" and version == "v1":
            errors.invalid(at, owner, "an event owns nothing")
        if owner.get("controller") is not True:
            continue
        named = f"{owner.get('kind')}/{owner.get('name')}"
        if controller:
            errors.invalid(at, owners, f"only one owner may be the controller, not {controller} and {named}")
        controller = controller or named


def _printable(text: str) -> str:
    return "" if text.isprintable() else "must have printable characters only"


def _fields_type(text: str) -> str:
    return "" if text == "FieldsV1" else "must be `FieldsV1`"


_MANAGER = record({
    "operation": one_of("Apply", "Update"),
    "fieldsType": form(_fields_type),
    "manager": both(shorter(MANAGER_LIMIT), form(_printable)),
    "subresource": shorter(SUBRESOURCE_LIMIT),
})  # fmt: skip


@lru_cache(1024)
def _is_valid_manager(operation: str, fields_type: str, manager: str, subresource: str) -> bool:
    """Return whether a managed fields entry is valid. Results are cached, since there are few managers."""
    found = ErrorList()
    entry = {"operation": operation, "fieldsType": fields_type, "manager": manager, "subresource": subresource}
    _MANAGER(entry, None, found)
    return not found.causes


def _managed(entries: Any, at: FieldPath, errors: ErrorList) -> None:
    for index, entry in enumerate(entries):
        get = entry.get
        if not _is_valid_manager(
            get("operation", ""), get("fieldsType", ""), get("manager", ""), get("subresource", "")
        ):
            _MANAGER(entry, (at, index), errors)


TEMPLATE = record({"labels": labels, "annotations": annotations})


def _nothing_else(metadata: Any, at: FieldPath, errors: ErrorList) -> None:
    for name, value in metadata.items():
        if value and name not in ("labels", "annotations"):
            errors.forbidden((at, name), "cannot be set")


CLAIM_METADATA = both(TEMPLATE, _nothing_else)
"""The rule for the metadata in claim templates."""
_ANY: ValueRule = record({
    "labels": labels,
    "annotations": annotations,
    "finalizers": finalizers,
    "generation": at_least(0),
    "managedFields": _managed,
    "ownerReferences": owner_references,
})  # fmt: skip


def check_embedded_metadata(metadata: Tree, at: FieldPath, errors: ErrorList) -> None:
    """Report all errors in the metadata of an embedded resource. It may have no name."""
    _OF_CUSTOM(metadata, at, errors)
    for part, check in (("generateName", prefixed(names.path_segment)), ("name", names.path_segment)):
        if metadata.get(part) and (why := check(metadata[part])):
            errors.malformed((at, part), metadata[part], why)
    if metadata.get("namespace") and (why := names.label(metadata["namespace"])):
        errors.malformed((at, "namespace"), metadata["namespace"], why)


_AGAIN: ValueRule = record({
    "labels": labels,
    "annotations": annotations,
    "managedFields": _managed,
    "ownerReferences": owner_references,
})  # fmt: skip
_OF_CUSTOM: ValueRule = both(_AGAIN, record({"finalizers": qualified_finalizers, "generation": at_least(0)}))


def finalizer_warnings(new: Tree, old: Tree | None) -> list[str]:
    """Return warnings for new finalizers of a custom object whose names may collide with others."""
    before = () if old is None else old.get("metadata", {}).get("finalizers") or ()
    messages = []
    for name in sorted(set(new.get("metadata", {}).get("finalizers") or ()) - set(before)):
        if why := names.qualified(name):
            messages.append(f'metadata.finalizers: "{name}": {why}')
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            why = f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts"
            messages.append(f'metadata.finalizers: "{name}": {why} with other finalizer writers')
    return messages


def check_custom_metadata(new: Tree, old: Tree | None, errors: ErrorList, *, namespaced: bool) -> None:
    """Report all errors in the metadata of a custom object, whose finalizers need not be known. Errors of an update are
    reported once.
    """
    _OF_CUSTOM(new["metadata"], _AT, errors)
    if old is None:
        _name(namespaced, names.subdomain, new["metadata"], errors)


def check_custom_change(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Report the metadata errors of an updated custom object that kube-apiserver checks repeatedly."""
    _AGAIN(new["metadata"], _AT, errors)
    _unchanged(new["metadata"], old["metadata"], errors)


def check_metadata(rule: NameRule, new: Tree, old: Tree | None, errors: ErrorList, *, namespaced: bool) -> None:
    """Report all errors in an object's metadata. `rule` checks the format of its name."""
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        errors.required(_AT)
        return
    if old is None:
        _ANY(metadata, _AT, errors)
        _name(namespaced, rule, metadata, errors)
    else:
        before = old.get("metadata", {})
        _ANY(_changed(metadata, before), _AT, errors)
        _unchanged(metadata, before, errors)


def _changed(new: Tree, old: Tree) -> Tree:
    """Return the fields that differ from the old metadata. For labels only those that differ."""
    found = {name: value for name, value in new.items() if (before := old.get(name)) is not value and before != value}
    if (labels := found.get("labels")) and (before := old.get("labels")):
        found["labels"] = {name: value for name, value in labels.items() if before.get(name) != value}
    return found


def _name(namespaced: bool, rule: NameRule, metadata: Tree, errors: ErrorList) -> None:
    name, prefix, namespace = (metadata.get(part, "") for part in ("name", "generateName", "namespace"))
    if prefix and (why := prefixed(rule)(prefix)):
        errors.malformed((_AT, "generateName"), prefix, why)
    if not name:
        errors.required((_AT, "name"), "name or generateName is required")
    elif why := rule(name):
        errors.malformed((_AT, "name"), name, why)
    if namespaced and not namespace:
        errors.required((_AT, "namespace"))
    elif not namespaced and namespace:
        errors.forbidden((_AT, "namespace"), "not allowed on this type")
    elif namespace and (why := names.label(namespace)):
        errors.malformed((_AT, "namespace"), namespace, why)


def _unchanged(new: Mapping[str, Any], old: Mapping[str, Any], errors: ErrorList) -> None:
    for name in _NEVER_CHANGED:
        if new.get(name) != old.get(name):
            errors.invalid((_AT, name), new.get(name), IMMUTABLE)
    if new.get("generation", 0) < old.get("generation", 0):
        errors.invalid((_AT, "generation"), new.get("generation", 0), "must not be decremented")
    if old.get("deletionTimestamp") and new.get("finalizers"):
        added = sorted(set(new["finalizers"]) - set(old.get("finalizers", ())))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            errors.forbidden(place("metadata.finalizers"), why)
