"""Validate schemas beyond structurality: allowed keywords, lists and maps, CEL rules."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.structural.field_path import resolve_path
from apiserver_stub.kinds.structural.structurality import (
    EMBEDDED,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    VALIDATIONS,
    unsupported,
)
from controller_manager.common.api.tree import Tree

TYPES = ("array", "boolean", "integer", "number", "object", "string")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_LIST_TYPES, _MAP_TYPES = ("atomic", "set", "map"), ("atomic", "granular")
_TYPE_AND_METADATA = frozenset({"metadata", "kind", "apiVersion"})
_UNUSABLE = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_GRANULAR = (None, "granular")


@dataclass(frozen=True, slots=True)
class Ratchets:
    """The rules that a stored object may still break. They are not applied then."""

    types: bool = True
    atomic_sets: bool = True
    list_keys: bool = True


@dataclass(frozen=True, slots=True)
class SchemaScope:
    """The context of a schema.

    It has the reason why a default is not allowed (empty if it is), whether the schema is for type or metadata of an
    object, the path of the outermost schema whose values have no old value, and how often its value may occur in an
    object (None means unbounded).
    """

    no_default: str = ""
    of_metadata: bool = False
    uncorrelatable: FieldPath = None
    cardinality: int | None = 1


# Validates the CEL rules of a schema.
CheckExpressions = Callable[[Tree, FieldPath, SchemaScope, ErrorList], None]


@dataclass(slots=True)
class SchemaRules:
    """One validation of a schema. CEL rules are only checked if there are no errors at or below their schema."""

    ratchets: Ratchets
    expressions: CheckExpressions | None
    errors: ErrorList = field(default_factory=ErrorList)
    cel_errors: ErrorList = field(default_factory=ErrorList)

    def check(self, schema: Tree, at: FieldPath, scope: SchemaScope, *, is_root: bool = False) -> None:
        """Report errors in a schema and all nested ones."""
        if self.errors.full:
            return
        before = len(self.errors.causes)
        self._check_keywords(schema, at, scope)
        self._check_within(schema, at, scope, is_root=is_root)
        self._check_kinds_of_lists(schema, at)
        self._check_list_map(schema, at)
        if self.ratchets.list_keys:
            check_keys(schema, at, self.errors)
        for index, rule in enumerate(schema.get(VALIDATIONS, ())):
            self._check_rule(rule, schema, ((at, VALIDATIONS), index))
        if self.expressions and schema.get(VALIDATIONS) and len(self.errors.causes) == before:
            self.expressions(schema, at, scope, self.cel_errors)

    def _check_keywords(self, schema: Tree, at: FieldPath, scope: SchemaScope) -> None:
        errors, kind = self.errors, schema.get("type", "")
        if self.ratchets.types and kind and kind not in TYPES:
            errors.unsupported((at, "type"), kind, TYPES)
        if scope.no_default and schema.get("default") is not None:
            errors.forbidden((at, "default"), f"must not be set {scope.no_default}")
        for name in _UNUSABLE:
            if name in schema:
                errors.forbidden((at, name), f"{name} is not supported")
        if kind == "null":
            errors.forbidden((at, "type"), "type cannot be set to null, use nullable as an alternative")
        if isinstance(schema.get("items"), list) and schema["items"]:
            errors.forbidden((at, "items"), "items must be a schema object and not an array")
        if scope.of_metadata and schema.get(EMBEDDED):
            errors.forbidden((at, EMBEDDED), "must not be used inside of resource meta")
        if schema.get("uniqueItems"):
            why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            errors.forbidden((at, "uniqueItems"), why)

    def _check_within(self, schema: Tree, at: FieldPath, scope: SchemaScope, *, is_root: bool) -> None:
        times = _times(scope.cardinality, _most_elements(schema))
        within = scope if times == scope.cardinality else replace(scope, cardinality=times)
        self._check_more(schema, at, within)
        self._check_properties(schema, at, within, is_root=is_root)
        if "not" in schema:
            self.check(schema["not"], (at, "not"), scope)
        for name in ("allOf", "oneOf", "anyOf"):
            for index, inner in enumerate(schema.get(name, ())):
                self.check(inner, ((at, name), index), scope)
        for name, inner in schema.get("definitions", {}).items():
            self.check(inner, ((at, "definitions"), key(name)), scope)
        if items := schema.get("items"):
            if schema.get(LIST_TYPE) != "map":
                within = _uncorrelated(within, at)
            for inner, where in _each_of(items, (at, "items")):
                self.check(inner, where, within)
        for name, inner in schema.get("dependencies", {}).items():
            if isinstance(inner, dict):
                self.check(inner, ((at, "dependencies"), key(name)), scope)

    def _check_more(self, schema: Tree, at: FieldPath, scope: SchemaScope) -> None:
        more, place = schema.get("additionalProperties"), (at, "additionalProperties")
        if schema.get("properties") and more is not None and more is not True:
            self.errors.forbidden(place, "additionalProperties and properties are mutual exclusive")
        if isinstance(more, dict):
            if scope.of_metadata:
                scope = replace(scope, no_default="inside additionalProperties applying to object metadata")
            self.check(more, place, scope)

    def _check_properties(self, schema: Tree, at: FieldPath, scope: SchemaScope, *, is_root: bool) -> None:
        if schema.get(MAP_TYPE) not in _GRANULAR:
            scope = _uncorrelated(scope, at)
        for name, inner in schema.get("properties", {}).items():
            below = scope
            if name in _TYPE_AND_METADATA and (is_root or schema.get(EMBEDDED)):
                below = replace(scope, of_metadata=True)
                if is_root:
                    below = replace(below, no_default=f"in top-level {name}")
            self.check(inner, ((at, "properties"), key(name)), below)

    def _check_kinds_of_lists(self, schema: Tree, at: FieldPath) -> None:
        errors, kind = self.errors, schema.get("type", "")
        list_type, map_type = schema.get(LIST_TYPE), schema.get(MAP_TYPE)
        if schema.get(PRESERVE) is False:
            errors.invalid((at, PRESERVE), False, "must be true or undefined")
        _need_type("object", kind, MAP_TYPE if map_type is not None else "", at, errors)
        if map_type is not None and map_type not in _MAP_TYPES:
            errors.unsupported((at, MAP_TYPE), map_type, _MAP_TYPES)
        _need_type("array", kind, LIST_TYPE if list_type is not None else "", at, errors)
        if kind == "array" and list_type == "set" and self.ratchets.atomic_sets:
            name = no_atom(schema)
            if name:
                why = "must be atomic as item of a list with x-kubernetes-list-type=set"
                errors.invalid(((at, "items"), name), schema["items"].get(LIST_TYPE), why)
        if list_type is not None and list_type not in _LIST_TYPES:
            errors.unsupported((at, LIST_TYPE), list_type, _LIST_TYPES)
        if schema.get(LIST_KEYS) and list_type != "map":
            why = f"must be map if {LIST_KEYS} is non-empty"
            if list_type is None:
                errors.required((at, LIST_TYPE), why)
            else:
                errors.invalid((at, LIST_TYPE), list_type, why)

    def _check_list_map(self, schema: Tree, at: FieldPath) -> None:
        if schema.get(LIST_TYPE) != "map":
            return
        errors, keys, items, if_map = self.errors, schema.get(LIST_KEYS, []), schema.get("items"), "is map"
        if not keys:
            errors.required((at, LIST_KEYS), f"must not be empty if {LIST_TYPE} {if_map}")
        if items is None:
            errors.required((at, "items"), f"must have a schema if {LIST_TYPE} {if_map}")
        elif not isinstance(items, dict):
            errors.invalid((at, "items"), items, f"must only have a single schema if {LIST_TYPE} {if_map}")
        elif items.get("type") != "object":
            why = f"must be object if parent array's {LIST_TYPE} {if_map}"
            errors.invalid(((at, "items"), "type"), items.get("type", ""), why)
        else:
            self._check_key_fields(keys, items, at)

    def _check_key_fields(self, keys: list[str], items: Tree, at: FieldPath) -> None:
        properties, seen = items.get("properties", {}), set[str]()
        for name in keys:
            if name not in properties:
                self.errors.invalid((at, LIST_KEYS), keys, "entries must all be names of item properties")
            elif properties[name].get("type") in ("array", "object"):
                place = ((((at, "items"), "properties"), key(name)), "type")
                self.errors.invalid(place, "object", f"must be a scalar type if parent array's {LIST_TYPE} is map")
            if name in seen:
                self.errors.invalid((at, LIST_KEYS), keys, "must not contain duplicate entries")
            seen.add(name)

    def _check_rule(self, rule: Tree, schema: Tree, at: FieldPath) -> None:
        errors = self.errors
        text, message, path = rule.get("rule", ""), rule.get("message", ""), rule.get("fieldPath", "")
        if not text.strip():
            errors.required((at, "rule"), "rule is not specified")
        elif message and not message.strip():
            errors.invalid((at, "message"), message, "must be non-empty if specified")
        elif _has_line_break(message.strip()):
            errors.invalid((at, "message"), message, "must not contain line breaks")
        elif _has_line_break(text.strip()) and not message:
            errors.required((at, "message"), "message must be specified if rule contains line breaks")
        if rule.get("messageExpression") and not rule["messageExpression"].strip():
            errors.required((at, "messageExpression"), "messageExpression must be non-empty if specified")
        if rule.get("reason") is not None and rule["reason"] not in REASONS:
            errors.unsupported((at, "reason"), rule["reason"], REASONS)
        if path and not path.strip():
            errors.invalid((at, "fieldPath"), path, "must be non-empty if specified")
        if _has_line_break(path):
            errors.invalid((at, "fieldPath"), path, "must not contain line breaks")
        if path and not _leads_somewhere(path, schema):
            errors.invalid((at, "fieldPath"), path, "must be a valid path")


def check_keys(schema: Tree, at: FieldPath, errors: ErrorList) -> None:
    """Report nullable items of sets and maps, and list keys that are nullable or optional."""
    list_type, items = schema.get(LIST_TYPE), schema.get("items")
    if list_type not in ("set", "map") or not isinstance(items, dict):
        return
    place = (at, "items")
    if items.get("nullable"):
        errors.forbidden((place, "nullable"), f"cannot be nullable when {LIST_TYPE} is {list_type}")
    if list_type == "set":
        return
    subject = f"this property is in {LIST_KEYS}, so it"
    for name in schema.get(LIST_KEYS, ()):
        field_schema = items.get("properties", {}).get(name)
        if field_schema is None:
            continue
        inner = ((place, "properties"), key(name))
        if name not in items.get("required", ()) and field_schema.get("default") is None:
            errors.required((inner, "default"), f"{subject} must have a default or be a required property")
        if field_schema.get("nullable"):
            errors.forbidden((inner, "nullable"), f"{subject} cannot be nullable")


def no_atom(schema: Tree) -> str:
    """Return the field that makes the items of a set not atomic. Empty if they are."""
    items = schema.get("items")
    if not isinstance(items, dict):
        return ""
    kind = items.get("type")
    if kind == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        return LIST_TYPE
    return MAP_TYPE if kind == "object" and items.get(MAP_TYPE) != "atomic" else ""


def _need_type(needed: str, kind: str, extension: str, at: FieldPath, errors: ErrorList) -> None:
    if not extension or kind == needed:
        return
    why = f"must be {needed} if {extension} is specified"
    if kind:
        errors.invalid((at, "type"), kind, why)
    else:
        errors.required((at, "type"), why)


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text


def _leads_somewhere(path: str, schema: Tree) -> bool:
    if unsupported(schema):
        return True  # reported elsewhere
    try:
        resolve_path(path, schema)
    except ValueError:
        return False
    return True


def _each_of(items: Any, at: FieldPath) -> list[tuple[Tree, FieldPath]]:
    return [(items, at)] if isinstance(items, dict) else [(inner, (at, index)) for index, inner in enumerate(items)]


def _uncorrelated(scope: SchemaScope, at: FieldPath) -> SchemaScope:
    return scope if scope.uncorrelatable is not None else replace(scope, uncorrelatable=at)


def _most_elements(schema: Tree) -> int | None:
    """Return the maximum number of values of each inner schema. None means unbounded."""
    kind = schema.get("type")
    if kind == "array":
        most = schema.get("maxItems")
    elif kind == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    else:
        return 1
    return None if most is None else max(most, 0)


def _times(cardinality: int | None, most: int | None) -> int | None:
    return None if cardinality is None or most is None else min(cardinality * most, 2**64 - 1)
