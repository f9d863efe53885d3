"""Embedded resources: coerce their metadata when an object arrives, and validate it with the rest."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key, render, shown
from apiserver_stub.kinds.published import OBJECT_META, schemas
from apiserver_stub.kinds.schema.clean import Report, clean_tree
from apiserver_stub.kinds.structural.schema import TYPE_META, StructuralSchema
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

# Reports errors in the metadata of a resource.
CheckMetadata = Callable[[Tree, FieldPath, ErrorList], None]


_JSON_TYPES: Mapping[type, str] = MappingProxyType({str: "string", bool: "bool", list: "array"})
_WRONG_TYPE = re.compile(r"(\w+)((?:\[|\.).*?)?: expected (\w+), got (\w+)")
_GO_TYPES = MappingProxyType({"integer": "int64", "boolean": "bool"})
_GO_STRUCTS = MappingProxyType({"ownerReferences": "OwnerReference", "managedFields": "ManagedFieldsEntry"})
_GO_FIELDS = MappingProxyType({
    "labels": "map[string]string", "annotations": "map[string]string", "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference", "managedFields": "[]v1.ManagedFieldsEntry",
})  # fmt: skip


class WrongMetadataError(Exception):
    """The metadata, apiVersion or kind of a resource has the wrong type."""


def fit_metadata(metadata: Any) -> Report:
    """Fit the metadata of an object to their schema, in place. Metadata that are not an object are wrong."""
    if type(metadata) is not dict:
        what = _JSON_TYPES.get(type(metadata), "number")
        return Report(wrong=(f"json: cannot unmarshal {what} into Go value of type v1.ObjectMeta",))
    report = clean_tree(metadata, schemas().node(OBJECT_META))
    return Report(report.unknown, tuple(map(_in_go, report.wrong)))


def _in_go(wrong: str) -> str:
    """Return Go's decoding error for metadata, if the error is about types."""
    found = _WRONG_TYPE.fullmatch(wrong)
    if found is None:
        return wrong
    field, inner, expected, got = found[1], found[2], _GO_TYPES.get(found[3], found[3]), found[4]
    if got == "integer":
        got = "number"
    if inner and field in _GO_STRUCTS:
        inner = re.sub(r"\[\d+\]", "", inner)
        return (
            f"json: cannot unmarshal {got} into Go struct field {_GO_STRUCTS[field]}.{field}{inner} of type {expected}"
        )
    if not inner:
        expected = _GO_FIELDS.get(field, expected)
    return f"json: cannot unmarshal {got} into Go struct field ObjectMeta.{field} of type {expected}"


def coerce(tree: Tree, schema: StructuralSchema, *, drop: bool = False, itself: bool = False) -> list[str]:
    """Fit the metadata of all embedded resources, in place. Return the sorted paths of unknown fields, which are
    removed.

    Fields of the wrong type raise `WrongMetadataError`, or are removed if `drop` is set. `itself` treats the tree as a
    resource too.
    """
    unknown: list[str] = []
    for resource, at in _resources(tree, schema, None, itself=itself):
        for name in TYPE_META & resource.keys():
            _coerce(resource, name, at, unknown, drop)
    return sorted(unknown)


def _coerce(resource: Tree, name: str, at: FieldPath, unknown: list[str], drop: bool) -> None:
    value, where = resource[name], render((at, name))
    if name == "metadata" and value is None:
        wrong, resource[name] = "", {}
    elif name == "metadata":
        report = fit_metadata(value)
        unknown += (f"{where}.{path}" for path in report.unknown)
        wrong = "; ".join(report.wrong)
    else:
        wrong = "" if type(value) is str else "must be a string"
    if wrong and drop:
        del resource[name]
    elif wrong:
        raise WrongMetadataError(f"{where}: Invalid value: {shown(value)}: {wrong}")


def check_embedded(
    tree: Tree,
    schema: StructuralSchema,
    check_metadata: CheckMetadata,
    errors: ErrorList,
    at: FieldPath = None,
    *,
    itself: bool = False,
) -> None:
    """Report errors in embedded resources. `itself` treats the tree at `at` as a resource too."""
    for resource, where in _resources(tree, schema, at, itself=itself):
        for name in ("apiVersion", "kind"):
            if name not in resource:
                errors.required((where, name))
        _check_version(resource.get("apiVersion", "v1"), (where, "apiVersion"), errors)
        _check_kind(resource.get("kind", "kind"), (where, "kind"), errors)
        if "metadata" in resource:
            check_metadata(resource["metadata"], (where, "metadata"), errors)


def _check_version(version: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(version) is not str:
        errors.invalid(at, version, "must be a string")
    elif not version:
        errors.invalid(at, version, "must not be empty")
    elif version.count("/") > 1:
        errors.invalid(at, version, f"unexpected GroupVersion string: {version}")


def _check_kind(kind: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(kind) is not str:
        errors.invalid(at, kind, "must be a string")
    elif not kind:
        errors.invalid(at, kind, "must not be empty")
    elif why := names.old_label(kind.lower()):
        errors.invalid(at, kind, f"may have mixed case, but should otherwise match: {why}")


def _resources(
    value: Any, schema: StructuralSchema, at: FieldPath, *, itself: bool
) -> Iterator[tuple[Tree, FieldPath]]:
    if itself and type(value) is dict:
        yield value, at
    yield from _embedded(value, schema, at)


def _embedded(value: Any, schema: StructuralSchema, at: FieldPath) -> Iterator[tuple[Tree, FieldPath]]:
    """Yield the resources embedded in a value, with their paths. The value itself is not included."""
    if not schema.derived(has_embedded):
        return
    for inner, child, where in _children(value, schema, at):
        if child.resource and type(inner) is dict:
            yield inner, where
        yield from _embedded(inner, child, where)


def _children(value: Any, schema: StructuralSchema, at: FieldPath) -> Iterator[tuple[Any, StructuralSchema, FieldPath]]:
    if type(value) is dict:
        for name, inner in value.items():
            if name in schema.properties:
                yield inner, schema.properties[name], (at, name)
            elif schema.additional is not None:
                yield inner, schema.additional, (at, key(name))
    elif type(value) is list and schema.items is not None:
        for index, inner in enumerate(value):
            yield inner, schema.items, (at, index)


def has_embedded(schema: StructuralSchema) -> bool:
    """Return whether a schema allows embedded resources below its value."""
    return any(child.resource or child.derived(has_embedded) for child in schema.nodes())
