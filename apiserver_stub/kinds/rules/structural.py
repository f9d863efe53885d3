"""Check that the schema of a custom resource is structural: every value has a type, given once, outside of junctors."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_DEEPEST = 100
_INT_OR_STRING = "x-kubernetes-int-or-string"
_OPEN = "x-kubernetes-preserve-unknown-fields"
_FORBIDDEN_INSIDE = ("additionalProperties", "default", "description", "nullable", "title", "type")
# Extensions and the types they belong to.
_EXTENSIONS: Mapping[str, str] = MappingProxyType({
    "x-kubernetes-list-type": "array", "x-kubernetes-list-map-keys": "array", "x-kubernetes-map-type": "object",
    "x-kubernetes-embedded-resource": "object",
})  # fmt: skip
_LIST_TYPES, _MAP_TYPES = ("atomic", "map", "set"), ("atomic", "granular")


def structural(schema: Any, at: FieldPath, errors: ErrorList) -> None:
    """Report all errors of the schema of a whole object."""
    if isinstance(schema, dict) and schema.get("type") not in (None, "", "object"):
        errors.invalid((at, "type"), schema["type"], "must be object at the root")
    _value(schema, at, errors, 0)


def _value(schema: Any, at: FieldPath, errors: ErrorList, depth: int) -> None:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    kind = schema.get("type")
    if not kind and not schema.get(_INT_OR_STRING) and not schema.get(_OPEN):
        errors.required(
            (at, "type"), "must not be empty for specified object fields" if depth else "must not be empty at the root"
        )
    elif kind and kind not in _TYPES:
        errors.unsupported((at, "type"), kind, _TYPES)
    for name, needed in _EXTENSIONS.items():
        if schema.get(name) and kind and kind != needed:
            errors.invalid((at, "type"), kind, f"must be {needed} if {name} is specified")
    _lists(schema, at, errors)
    for name in _JUNCTORS:
        for index, inner in enumerate(_list(schema.get(name))):
            _inside(inner, ((at, name), index), errors, depth + 1)
    _inside(schema.get("not"), (at, "not"), errors, depth + 1)
    _children(schema, at, errors, depth + 1)


def _children(schema: Mapping[str, Any], at: FieldPath, errors: ErrorList, depth: int) -> None:
    properties, more = _dict(schema.get("properties")), schema.get("additionalProperties")
    if properties and isinstance(more, dict):
        errors.forbidden((at, "additionalProperties"), "additionalProperties and properties are mutual exclusive")
    if more is False:
        errors.forbidden((at, "additionalProperties"), "additionalProperties cannot be set to false")
    for name, inner in properties.items():
        _value(inner, ((at, "properties"), key(name)), errors, depth)
    _value(more, (at, "additionalProperties"), errors, depth)
    _value(schema.get("items"), (at, "items"), errors, depth)


def _lists(schema: Mapping[str, Any], at: FieldPath, errors: ErrorList) -> None:
    kind, keys = schema.get("x-kubernetes-list-type"), _list(schema.get("x-kubernetes-list-map-keys"))
    if kind and kind not in _LIST_TYPES:
        errors.unsupported((at, "x-kubernetes-list-type"), kind, _LIST_TYPES)
    if kind == "map" and not keys:
        errors.required((at, "x-kubernetes-list-map-keys"), "must not be empty if x-kubernetes-list-type is map")
    elif kind != "map" and keys:
        errors.required((at, "x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty")
    merge = schema.get("x-kubernetes-map-type")
    if merge and merge not in _MAP_TYPES:
        errors.unsupported((at, "x-kubernetes-map-type"), merge, _MAP_TYPES)
    if schema.get("type") == "array" and schema.get("items") is None:
        errors.required((at, "items"), "must be specified")


def _inside(schema: Any, at: FieldPath, errors: ErrorList, depth: int) -> None:
    """Within junctors only values are judged, not described."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    judged = schema.get(_INT_OR_STRING) or schema.get("type") in ("integer", "string")
    for name in _FORBIDDEN_INSIDE:
        if schema.get(name) and not (name == "type" and judged):
            errors.forbidden((at, name), "must be undefined to be structural")
    for name in _JUNCTORS:
        for index, inner in enumerate(_list(schema.get(name))):
            _inside(inner, ((at, name), index), errors, depth + 1)
    for name, inner in _dict(schema.get("properties")).items():
        _inside(inner, ((at, "properties"), key(name)), errors, depth + 1)
    _inside(schema.get("items"), (at, "items"), errors, depth + 1)
    _inside(schema.get("not"), (at, "not"), errors, depth + 1)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
