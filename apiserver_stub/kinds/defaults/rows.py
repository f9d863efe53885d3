"""The default rows and how they are applied. No kind is named here.

A row is a field name and a rule. A tuple of rows applies to the object in the field or to each item of an array. A
function gets the object around the field and returns the value or None. Anything else is the value. The name "" calls
the function for its side effect. Rows apply from top to bottom, and only to absent fields.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import groupby
from types import MappingProxyType
from typing import Any

from controller_manager.common.api.tree import Tree

Rule = Any
Row = tuple[str, Rule]
Rows = tuple[Row, ...]
# Sets the defaults of one object, in place.
Apply = Callable[[Tree], None]


def applying(rows: Rows) -> Apply:
    """Return a function that applies rows to an object that fits its schema."""
    steps = [_STEPS[sort](tuple(group)) for sort, group in groupby(rows, _sort)]
    return steps[0] if len(steps) == 1 else _in_turn(tuple(steps))


def _sort(row: Row) -> str:
    name, rule = row
    if not name:
        return "act"
    if type(rule) is tuple:
        return "descend"
    return "derive" if callable(rule) else "put"


def _in_turn(steps: tuple[Apply, ...]) -> Apply:
    def apply(tree: Tree) -> None:
        for step in steps:
            step(tree)

    return apply


def _act(rows: Rows) -> Apply:
    acts = tuple(act for _, act in rows)
    return acts[0] if len(acts) == 1 else _in_turn(acts)


def _put(rows: Rows) -> Apply:
    def apply(tree: Tree) -> None:
        for name, value in rows:
            if name not in tree:
                tree[name] = value

    return apply


def _derive(rows: Rows) -> Apply:
    def apply(tree: Tree) -> None:
        for name, rule in rows:
            if name not in tree:
                value = rule(tree)
                if value is not None:
                    tree[name] = value

    return apply


def _descend(rows: Rows) -> Apply:
    inner = tuple((name, _only(rule), applying(rule)) for name, rule in rows)

    def apply(tree: Tree) -> None:
        for name, only, fill in inner:
            if name in tree:
                found = tree[name]
                if type(found) is dict:
                    fill(found)
                    continue
                for item in found or ():  # a list may be null
                    if only is None or only in item:
                        fill(item)

    return apply


def _only(rows: Rows) -> str | None:
    """Return the one field that the rows descend into, or None. Without that field they do nothing."""
    return rows[0][0] if len(rows) == 1 and _sort(rows[0]) == "descend" else None


_STEPS: Mapping[str, Callable[[Rows], Apply]] = MappingProxyType(
    {"act": _act, "put": _put, "derive": _derive, "descend": _descend}
)


def under(path: str, rows: Rows) -> Rows:
    """Return rows that apply to the value at a dotted path."""
    for name in reversed(path.split(".")):
        rows = ((name, rows),)
    return rows


def empty(_parent: Tree) -> Tree:
    """Return a new empty object."""
    return {}


def when(field: str, values: tuple[Any, ...], value: Any) -> Callable[[Tree], Any]:
    """Return a rule that gives `value` (or its result, if it is a function) only if `field` has one of `values`."""

    def rule(parent: Tree) -> Any:
        if parent.get(field) not in values:
            return None
        return value(parent) if callable(value) else value

    return rule


def listed(*values: Any) -> Callable[[Tree], list[Any]]:
    """Return a rule that gives a new list."""
    return lambda _parent: deepcopy(list(values))


def beside(field: str) -> Callable[[Tree], Any]:
    """Return a rule that copies the value of another field of the same object."""
    return lambda parent: deepcopy(parent.get(field))


def in_step(older: str, newer: str, key: str = "") -> Apply:
    """Return a function that synchronizes a list with the older field for its first element.

    With `key`, the elements are objects and the older field equals that key. If both differ, the list is replaced by
    the older field.
    """

    def apply(tree: Tree) -> None:
        value, listed = tree.get(older), tree.get(newer)
        first = (listed[0].get(key, "") if key else listed[0]) if listed else None
        if value and value != first:
            tree[newer] = [{key: value} if key else value]
        elif first:
            tree[older] = first

    return apply
