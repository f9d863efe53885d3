"""Rows of defaults and how they are applied: which field, which value; no kind is named here.

A row is a field name and a rule: a tuple of rows descends into an object or into each item of an array; a function is
given the object around the field and returns the value or None; anything else is the value itself. The name "" calls
the function for its effect. Rows apply from top to bottom, to absent fields only.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from apiserver_stub.kinds.schema import Tree

Rule = Any
Rows = tuple[tuple[str, Rule], ...]


def fill(tree: Tree, rows: Rows) -> None:
    """Apply rows to one object."""
    for name, rule in rows:
        if not name:
            rule(tree)
        elif type(rule) is tuple:
            if name in tree:
                _descend(tree[name], rule)
        elif name not in tree:
            value = rule(tree) if callable(rule) else rule
            if value is not None:
                tree[name] = value


def _descend(inner: Any, rows: Rows) -> None:
    if type(inner) is dict:
        fill(inner, rows)
    elif type(inner) is list:
        for item in inner:
            if type(item) is dict:
                fill(item, rows)


def under(path: str, rows: Rows) -> Rows:
    """Rows for what is found at a dotted path."""
    for name in reversed(path.split(".")):
        rows = ((name, rows),)
    return rows


def empty(_parent: Tree) -> Tree:
    """A new empty object."""
    return {}


def when(field: str, values: tuple[Any, ...], value: Any) -> Callable[[Tree], Any]:
    """A rule that gives `value` (or what it returns, when it is a function) only beside certain values of `field`."""

    def rule(parent: Tree) -> Any:
        if parent.get(field) not in values:
            return None
        return value(parent) if callable(value) else value

    return rule


def listed(*values: Any) -> Callable[[Tree], list[Any]]:
    """A rule that gives a new list."""
    return lambda _parent: deepcopy(list(values))


def beside(field: str) -> Callable[[Tree], Any]:
    """A rule that copies the field next to it."""
    return lambda parent: parent.get(field)
