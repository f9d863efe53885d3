"""What the schema alone demands: required fields are there, and restricted fields have an allowed value."""

from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds.problems import required, unsupported
from apiserver_stub.kinds.schema import Node, Tree
from controller_manager.api.errors import Cause

_MISSING = (None, "")


def check_schema(tree: Tree, node: Node) -> Iterator[Cause]:
    """All missing fields and values that are not allowed."""
    found: list[Cause] = []
    _object(tree, node, "", found)
    return iter(found)


def _value(value: Any, node: Node, path: str, found: list[Cause]) -> None:
    if type(value) is dict:
        if node.values is None:
            _object(value, node, f"{path}.", found)
        else:
            for name, inner in value.items():
                _value(inner, node.values, f"{path}[{name}]", found)
    elif type(value) is list:
        item = node.items
        if item is not None and item.demands:
            for index, inner in enumerate(value):
                _value(inner, item, f"{path}[{index}]", found)
    elif value and node.enum and value not in node.enum:
        found.append(unsupported(path, value, node.enum))


def _object(tree: Tree, node: Node, path: str, found: list[Cause]) -> None:
    for name in node.required:
        if tree.get(name) in _MISSING:
            found.append(required(path + name))  # noqa: PERF401 (this runs for every object, and finds nothing)
    judged = node.judged
    if judged:
        for name, value in tree.items():
            field = judged.get(name)
            if field is not None:
                _value(value, field, path + name, found)
