"""What the schema alone demands: required fields are there, and restricted fields have an allowed value."""

from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds.problems import required, unsupported
from apiserver_stub.kinds.schema import Node, Tree
from apiserver_stub.kinds.shapes import takes
from controller_manager.api.errors import Cause

_MISSING = (None, "")


def check_schema(tree: Tree, node: Node) -> Iterator[Cause]:
    """All missing fields and values that are not allowed."""
    return iter(()) if takes(node.complete, tree) else unmet(tree, node)


def unmet(tree: Tree, node: Node, path: str = "") -> Iterator[Cause]:
    """The closer look; `path` is what stands before the names of fields."""
    for name in node.required:
        if tree.get(name) in _MISSING:
            yield required(path + name)
    for name, value in tree.items():
        if name in node.fields:
            yield from _value(value, node.fields[name], path + name)


def _value(value: Any, node: Node, path: str) -> Iterator[Cause]:
    if type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            yield from _value(item, node.items, f"{path}[{index}]")
    elif type(value) is dict and node.values is not None:
        for name, inner in value.items():
            yield from _value(inner, node.values, f"{path}[{name}]")
    elif type(value) is dict:
        yield from unmet(value, node, f"{path}.")
    elif value and node.enum and value not in node.enum:
        yield unsupported(path, value, node.enum)
