"""What the schema alone demands: required fields are there, and restricted fields have an allowed value."""

from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.schema import Schema, Tree
from apiserver_stub.kinds.shapes import complete, takes
from controller_manager.api.errors import Cause

_MISSING = (None, "")
_JUDGED = frozenset({"ownerReferences"})  # by the rules of metadata, and of a template by nobody


def check_schema(tree: Tree, node: Schema) -> list[Cause]:
    """All missing fields and values that are not allowed."""
    return [] if takes(complete(node), tree) else unmet(tree, node)


def unmet(tree: Tree, node: Schema) -> list[Cause]:
    """The closer look."""
    found = ErrorList()
    _object(tree, node, None, found)
    return found.causes


def _object(tree: Tree, node: Schema, at: FieldPath, found: ErrorList) -> None:
    for name in node.required:
        if tree.get(name) in _MISSING:
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
