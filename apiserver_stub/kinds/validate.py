"""Validate an object against its schema and all rules of its kind (`rules/`, a file per subject)."""

from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.resource_info import ResourceInfo, ValidationResult
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.rules.metadata import check_metadata
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.schema.schema_types import complete, takes
from apiserver_stub.kinds.values.trees import same_but
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.tree import Tree

_PLAIN = KindRules()
_SPEC = (None, "spec")
_REQUIRED, _MISSING = "FieldValueRequired", "Required value"
_OF_FORM = frozenset({"FieldValueInvalid", "FieldValueNotSupported"})
# Subresources that write a status. The rest of the object is not validated again: the rules may have changed.
_OF_STATUS = frozenset({"status", "approval"})


def judge(kind: ResourceInfo, new: Tree, old: Tree | None, subresource: str = "") -> ValidationResult:
    """Return the errors of a new object, or of an update of `old` through `subresource`, by the rules of its kind or by
    the kind's own `judge`.
    """
    if kind.judge is not None:
        return kind.judge(new, old, subresource)
    return ValidationResult(validate(kind, new, old, subresource))


def validate(kind: ResourceInfo, new: Tree, old: Tree | None, subresource: str = "") -> list[Cause]:
    """Return all errors of a new object, or of an update of `old` through `subresource`. The list is empty if it is
    valid.
    """
    found = ErrorList()
    rules = kind.rules
    check_metadata(rules.name, new, old, found, namespaced=kind.namespaced)
    if old is None:
        _judge_spec(rules, new, found)
        rules.body(new, None, found)
        rules.on_create(new, None, found)
    else:
        _judge_change(rules, new, old, subresource or _implied(new, old), found)
    return _once([*found.causes, *_unmet_of(new, old, kind.schema)]) if rules.by_schema else found.causes


def _once(causes: list[Cause]) -> list[Cause]:
    """Return each cause once. A missing value gets no error about its form. If a rule has a reason why a value is
    required, its message replaces the one from the schema.
    """
    if not causes:
        return causes
    explained = {cause.field for cause in causes if cause.reason == _REQUIRED and cause.message != _MISSING}
    missing = {cause.field for cause in causes if cause.reason == _REQUIRED} - explained
    return [
        cause
        for cause in dict.fromkeys(causes)
        if (cause.reason not in _OF_FORM or cause.field not in missing)
        and (cause.message != _MISSING or cause.field not in explained)
    ]


def _implied(new: Tree, old: Tree) -> str:
    return "status" if same_but(("status",), new, old) else ""


def _judge_change(rules: KindRules, new: Tree, old: Tree, subresource: str, found: ErrorList) -> None:
    if subresource in _OF_STATUS:
        rules.subresources.get(subresource, _PLAIN.change)(new, old, found)
    else:
        if new.get("spec") is not old.get("spec"):
            _judge_spec(rules, new, found)
        rules.body(new, None, found)
        rules.subresources.get(subresource, rules.change)(new, old, found)


def _judge_spec(rules: KindRules, tree: Tree, found: ErrorList) -> None:
    spec = tree.get("spec")
    if not spec and rules.no_spec is not None:
        spec = rules.no_spec
    if spec is not None:
        rules.spec(spec, _SPEC, found)


_ABSENT = (None, "")
_JUDGED = frozenset({"ownerReferences"})  # validated by the rules of metadata; never validated in a template


def check_schema(tree: Tree, node: Schema) -> list[Cause]:
    """Return all missing fields and values that are not allowed."""
    return [] if takes(complete(node), tree) else unmet(tree, node)


def _unmet_of(new: Tree, old: Tree | None, schema: Schema) -> list[Cause]:
    """Return the same for an object. An update skips the parts that it shares with the stored object, which were
    validated when they were new.
    """
    if old is None:
        return check_schema(new, schema)
    for name in schema.required:
        if new.get(name) in _ABSENT:
            return unmet(new, schema)
    for name, part in new.items():
        if part is not old.get(name) and (field := schema.fields.get(name)) is not None:
            shape = complete(field)
            if shape is not Any and not takes(shape, part):
                return unmet(new, schema)
    return []


def unmet(tree: Tree, node: Schema) -> list[Cause]:
    """Return the missing fields and the values that are not allowed. Checks each field without using a shape."""
    found = ErrorList()
    _object(tree, node, None, found)
    return found.causes


def _object(tree: Tree, node: Schema, at: FieldPath, found: ErrorList) -> None:
    for name in node.required:
        if tree.get(name) in _ABSENT:
            found.required((at, name))
    for name, value in tree.items():
        if name in node.fields and name not in _JUDGED:
            _value(value, node.fields[name], (at, name), found)


def _value(value: Any, node: Schema, at: FieldPath, found: ErrorList) -> None:
    if type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            _value(item, node.items, (at, index), found)
    elif type(value) is dict and node.values is not None:
        for name, inner in value.items():
            _value(inner, node.values, (at, key(name)), found)
    elif type(value) is dict:
        _object(value, node, at, found)
    elif type(value) is str and node.enum and value not in node.enum:
        found.unsupported(at, value, node.enum)
