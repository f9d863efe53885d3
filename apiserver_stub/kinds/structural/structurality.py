"""Check that a schema is structural (KEP-1693): each value has one type, given outside of junctors, which only
validate.

Schemas are trees from definitions, fitted to `JSONSchemaProps`.
"""

from collections.abc import Iterator
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key, render
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.regex import compile_regex

DEEPEST = 100
"""The maximum nesting depth of schemas."""
JUNCTORS = ("allOf", "anyOf", "oneOf")
INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
VALIDATIONS = "x-kubernetes-validations"

_EMPTY, _UNDEFINED, _FALSE = (f"must be {what} to be structural" for what in ("empty", "undefined", "false"))
_FORBIDDEN_INSIDE = (
    ("type", _EMPTY), ("default", _UNDEFINED), ("title", _EMPTY), ("description", _EMPTY), ("nullable", _FALSE),
    (PRESERVE, _FALSE), (EMBEDDED, _FALSE), (INT_OR_STRING, _FALSE), (LIST_KEYS, _EMPTY), (LIST_TYPE, _UNDEFINED),
    (MAP_TYPE, _UNDEFINED), (VALIDATIONS, _EMPTY),
)  # fmt: skip
_MAPS = frozenset({"properties", "definitions", "patternProperties", "dependencies"})
_PARTS = _MAPS | {*JUNCTORS, "not", "additionalProperties", "items", "additionalItems"}
_INTEGER_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_MEANINGFUL_EMPTY = frozenset({"default", LIST_TYPE, MAP_TYPE})  # fields whose empty value has a meaning
# Fields of the published API that schemas may not use, with their names in messages.
_UNSUPPORTED = {
    "id": "id", "$schema": "schema", "$ref": "$ref", "patternProperties": "patternProperties",
    "dependencies": "dependencies", "additionalItems": "additionalItems", "definitions": "definitions",
}  # fmt: skip


def check_structural(schema: Tree, at: FieldPath, errors: ErrorList) -> None:
    """Report why the schema of an object is not structural, in kube-apiserver's order."""
    found = ErrorList()
    _check_value(schema, _ROOT, at, found)
    _check_complete(schema, schema, at, at, found)
    errors.causes.extend(sorted(found.causes, key=lambda cause: f"{cause.field}: {cause.message}"))


def unsupported(schema: Any) -> str:
    """Return why a schema cannot be converted to a structural one. Empty if it can."""
    if not isinstance(schema, dict):
        return ""
    for name, shown in _UNSUPPORTED.items():
        if schema.get(name) not in (None, "", {}) or (name == "additionalItems" and name in schema):
            return f"OpenAPIV3Schema '{shown}' is not supported"
    if schema.get(PRESERVE) is False:
        return f"internal error: '{PRESERVE}' must be true or undefined"
    if isinstance(schema.get("items"), list) and schema["items"]:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return next(filter(None, (unsupported(inner) for inner, _ in parts(schema, None))), "")


def parts(schema: Tree, at: FieldPath) -> Iterator[tuple[Any, FieldPath]]:
    """Yield the direct children of a schema with their paths."""
    for name, found in schema.items():
        if name not in _PARTS:
            continue
        if name in _MAPS:
            for inner_name, inner in found.items():
                yield inner, ((at, name), key(inner_name))
        elif type(found) is dict:
            yield found, (at, name)
        elif type(found) is list:
            for index, inner in enumerate(found):
                yield inner, ((at, name), index)


def every_schema(schema: Any) -> Iterator[Tree]:
    """Yield a schema and all nested ones."""
    if isinstance(schema, dict):
        yield schema
        for inner, _ in parts(schema, None):
            yield from every_schema(inner)


def too_deep(schema: Tree, at: FieldPath = None) -> FieldPath:
    """Return the path of the first schema that is nested too deeply, or None."""
    level: list[tuple[Any, FieldPath]] = [(schema, at)]
    for _ in range(DEEPEST):
        level = [inner for outer, where in level if isinstance(outer, dict) for inner in parts(outer, where)]
    return level[0][1] if level else None


def _check_value(schema: Tree, level: str, at: FieldPath, errors: ErrorList) -> None:
    """Report errors in a schema outside of junctors."""
    if errors.full:
        return
    kind, properties, more = schema.get("type", ""), schema.get("properties", {}), schema.get("additionalProperties")
    if kind == "array" and schema.get("items") is None:
        errors.required((at, "items"), "must be specified")
    if isinstance(schema.get("items"), dict):
        _check_value(schema["items"], _ITEM, (at, "items"), errors)
    for name, inner in properties.items():
        _check_value(inner, _FIELD, ((at, "properties"), key(name)), errors)
    if more is not None and level is _ROOT:
        errors.forbidden((at, "additionalProperties"), "must not be used at the root")
    if isinstance(more, dict):
        _check_value(more, _FIELD, (at, "additionalProperties"), errors)
    _check_extensions(schema, at, errors)
    first = schema.get("allOf", ({},))[0]
    _check_junctors(schema, at, errors, of_any=_is_integer_or_string(schema), of_first=_is_integer_or_string(first))
    _check_type(schema, level, at, errors)
    _check_embedded(schema, level, at, errors)


def _check_type(schema: Tree, level: str, at: FieldPath, errors: ErrorList) -> None:
    kind = schema.get("type", "")
    if schema.get(EMBEDDED) and kind != "object":
        why = f"must be object if {EMBEDDED} is true"
        if kind:
            errors.invalid((at, "type"), kind, why)
        else:
            errors.required((at, "type"), why)
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        errors.required((at, "type"), f"must not be empty {level}")
    if level is _ROOT and kind and kind != "object":
        errors.invalid((at, "type"), kind, "must be object at the root")


def _check_embedded(schema: Tree, level: str, at: FieldPath, errors: ErrorList) -> None:
    """Report missing or forbidden keywords for the type and metadata of an object."""
    properties, embedded = schema.get("properties", {}), schema.get(EMBEDDED)
    if embedded and schema.get("additionalProperties") is not None:
        errors.forbidden((at, "additionalProperties"), f"must not be used if {EMBEDDED} is set")
    is_object = level is _ROOT or embedded
    for name in ("kind", "apiVersion"):
        if is_object and name in properties and properties[name].get("type") != "string":
            place = ((at, "properties"), key(name))
            errors.invalid((place, "type"), properties[name].get("type", ""), "must be string")
    if "metadata" in properties:
        metadata, place = properties["metadata"], ((at, "properties"), key("metadata"))
        if is_object and metadata.get("type") != "object":
            errors.invalid((place, "type"), metadata.get("type", ""), "must be object")
        if level is _ROOT and _restricts_more(metadata):
            why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.forbidden(place, why)
    if embedded and not schema.get(PRESERVE) and not properties:
        why = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        errors.required((at, "properties"), why)


def _restricts_more(metadata: Tree) -> bool:
    """Return whether a schema of metadata restricts other fields than the names."""
    named = set(metadata.get("properties", {}))
    restricted = set(metadata) - {"type", "default"}
    if named and named <= {"name", "generateName"}:
        restricted.discard("properties")
    return bool(restricted)


def _check_extensions(schema: Tree, at: FieldPath, errors: ErrorList) -> None:
    if schema.get(INT_OR_STRING):
        for name in (PRESERVE, EMBEDDED):
            if schema.get(name):
                errors.invalid((at, name), True, f"must be false if {INT_OR_STRING} is true")


def _check_junctors(
    schema: Tree, at: FieldPath, errors: ErrorList, *, of_any: bool = False, of_first: bool = False
) -> None:
    """Report errors in the junctors and the pattern of a schema.

    `of_any` exempts its `anyOf`, `of_first` that of its first `allOf`, if they only say that a value is an integer or a
    string.
    """
    if not of_any:
        _check_each(schema, "anyOf", at, errors)
    for index, inner in enumerate(schema.get("allOf", ())):
        _check_inside(inner, ((at, "allOf"), index), errors, of_any=of_first and index == 0)
    _check_each(schema, "oneOf", at, errors)
    if "not" in schema:
        _check_inside(schema["not"], (at, "not"), errors)
    if pattern := schema.get("pattern"):
        try:
            compile_regex(pattern)
        except ValueError as error:
            errors.invalid((at, "pattern"), pattern, f"must be a valid regular expression, but isn't: {error}")


def _check_each(schema: Tree, junctor: str, at: FieldPath, errors: ErrorList) -> None:
    for index, inner in enumerate(schema.get(junctor, ())):
        _check_inside(inner, ((at, junctor), index), errors)


def _is_integer_or_string(schema: Tree) -> bool:
    return schema.get("anyOf") == _INTEGER_OR_STRING


def _check_inside(schema: Tree, at: FieldPath, errors: ErrorList, *, of_any: bool = False) -> None:
    """Report keywords that are not allowed inside a junctor."""
    if errors.full:
        return
    _check_junctors(schema, at, errors, of_any=of_any)
    if isinstance(schema.get("items"), dict):
        _check_inside(schema["items"], (at, "items"), errors)
    for name, inner in schema.get("properties", {}).items():
        _check_inside(inner, ((at, "properties"), key(name)), errors)
    for name, why in _FORBIDDEN_INSIDE:
        value = schema.get(name)
        if value or (value is not None and name in _MEANINGFUL_EMPTY):
            errors.forbidden((at, name), why)
    if schema.get("additionalProperties") not in (None, False):
        errors.forbidden((at, "additionalProperties"), _UNDEFINED)
    if "metadata" in schema.get("properties", {}):
        errors.forbidden(((at, "properties"), key("metadata")), "must not be specified in a nested context")


def _check_complete(judging: Tree, schema: Tree | None, at: FieldPath, place: FieldPath, errors: ErrorList) -> None:
    """Report values that the junctors of `judging` (at `at`) validate but the schema (at `place`) does not declare."""
    for name in JUNCTORS:
        for index, inner in enumerate(judging.get(name, ())):
            _check_described(inner, schema, ((at, name), index), place, errors)
    if "not" in judging:
        _check_described(judging["not"], schema, (at, "not"), place, errors)


def _check_described(judging: Tree, schema: Tree | None, at: FieldPath, place: FieldPath, errors: ErrorList) -> None:
    if schema is None:
        errors.required(place, f"because it is defined in {render(at)}")
        return
    _check_complete(judging, schema, at, place, errors)
    if isinstance(judging.get("items"), dict):
        items = schema.get("items")
        _check_described(judging["items"], items, (at, "items"), (place, "items"), errors)
    described = schema.get("properties", {})
    for name, inner in judging.get("properties", {}).items():
        steps = ((at, "properties"), key(name)), ((place, "properties"), key(name))
        _check_described(inner, described.get(name), *steps, errors)
