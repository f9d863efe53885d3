"""Remove values that a structural schema does not allow: unknown fields, and nulls in fields that are not nullable."""

from typing import Any

from apiserver_stub.kinds.structural.schema import TYPE_META, StructuralSchema
from controller_manager.common.api.tree import Tree


def prune(tree: Tree, schema: StructuralSchema) -> list[str]:
    """Remove unknown fields from a tree, in place. Return their paths, sorted."""
    unknown: list[str] = []
    _prune(tree, schema, "", unknown)
    return sorted(unknown)


def _prune(value: Any, schema: StructuralSchema | None, path: str, unknown: list[str]) -> None:
    if type(value) is dict:
        _fields(value, schema, path, unknown)
    elif type(value) is list:
        items = None if schema is None else schema.items
        for index, item in enumerate(value):
            if type(item) is not dict and type(item) is not list:
                continue
            if schema is None or not schema.preserve:
                _prune(item, items, f"{path}[{index}]", unknown)
            elif items is not None:
                _kept(item, items, f"{path}[{index}]", unknown)


def _fields(tree: Tree, schema: StructuralSchema | None, path: str, unknown: list[str]) -> None:
    for name in list(tree):
        if schema is not None and schema.resource and name in TYPE_META:
            continue
        inner = None if schema is None else schema.properties.get(name)
        at = f"{path}.{name}" if path else name
        if inner is not None:
            _prune(tree[name], inner, at, unknown)
        elif schema is not None and schema.has_additional:
            _prune(tree[name], schema.additional, at, unknown)
        elif schema is None or not schema.preserve:
            unknown.append(at)
            del tree[name]


def _kept(value: Any, schema: StructuralSchema, path: str, unknown: list[str]) -> None:
    """Prune below an array element that preserves unknown fields. Its own elements preserve them as well."""
    if type(value) is list:
        for index, item in enumerate(value):
            if schema.items is not None:
                _kept(item, schema.items, f"{path}[{index}]", unknown)
    elif type(value) is dict:
        for name, item in value.items():
            inner = schema.child(name)
            if (inner is not None or schema.has_additional) and not (schema.resource and name in TYPE_META):
                _prune(item, inner, f"{path}.{name}", unknown)


def prune_nulls(value: Any, schema: StructuralSchema | None) -> None:
    """Remove nulls from objects if the field is neither nullable nor has a default, in place."""
    if schema is None:
        return
    if type(value) is dict:
        gone = []
        for name, inner in value.items():
            child = schema.child(name)
            if inner is None:
                if child is not None and not child.nullable and child.default_value is None:
                    gone.append(name)
            elif child is not None:
                prune_nulls(inner, child)
        for name in gone:
            del value[name]
    elif type(value) is list:
        for item in value:
            prune_nulls(item, schema.items)
