"""Validation of constants in a type-checked expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from controller_manager.common.base.regex import compile_regex
from controller_manager.common.cel.library.conversions import to_duration, to_timestamp
from controller_manager.common.cel.library.formatting import Clause, interpolate, not_taken, takes
from controller_manager.common.cel.syntax import Call, Issue, ListLiteral, Literal, MapLiteral, Node, children, issue_at
from controller_manager.common.cel.types import Type
from controller_manager.common.cel.values import EvaluationError

_EXEMPT = frozenset({"format"})  # functions whose list arguments may have mixed types


def validate(text: str, tree: Node) -> list[Issue]:
    """Return the errors in constants."""
    found = [*_arguments(tree, exempt=False)]
    return [issue_at(text, node.position, message) for node, message in found]


def _arguments(node: Node, exempt: bool) -> Iterator[tuple[Node, str]]:
    if isinstance(node, Call):
        yield from _call(node)
        exempt = exempt or node.function in _EXEMPT
    elif isinstance(node, ListLiteral) and not exempt:
        yield from _list(node)
    elif isinstance(node, MapLiteral) and not exempt:
        yield from _map(node)
    for child in children(node):
        yield from _arguments(child, exempt)


def _call(node: Call) -> Iterator[tuple[Node, str]]:
    if node.function == "format":
        yield from _format(node)
    judge = _LITERALS.get(node.function)
    if judge is None or not node.arguments or not isinstance(argument := node.arguments[0], Literal):
        return
    try:
        judge(argument.value)
    except (EvaluationError, ValueError):
        yield argument, f"invalid {node.function} argument"


def _format(node: Call) -> Iterator[tuple[Node, str]]:
    """Yield the errors in a constant format string and its arguments."""
    template, values = node.target, node.arguments[0]
    if not (isinstance(template, Literal) and type(template.value) is str and isinstance(values, ListLiteral)):
        return
    asked = 0
    where: list[Node] = [node]

    def argument(index: int) -> Node:
        nonlocal asked
        asked += 1
        return values.elements[index] if index < len(values.elements) else node

    def write(clause: Clause, value: Node) -> str:
        unfit = _unfit(clause, value)
        if unfit is not None:
            where.append(unfit)
            raise not_taken(clause, unfit.type.name)
        return ""

    try:
        interpolate(template.value, argument, len(values.elements), write)
    except EvaluationError as error:
        yield where[-1], error.message
        return
    if len(values.elements) > asked:
        counts = f"expected {asked}, got {len(values.elements)}"
        yield node, f"too many arguments supplied to string.format ({counts})"


def _unfit(clause: Clause, value: Node) -> Node | None:
    """Return a value that cannot fill a clause, or for `%s` a nested one."""
    if not takes(clause, value.type.kind):
        return value
    if clause[0] != "s" or not isinstance(value, ListLiteral | MapLiteral):
        return None
    return next((unfit for one in children(value) if (unfit := _unfit(clause, one)) is not None), None)


_LITERALS: dict[str, Callable[[Any], Any]] = {
    "duration": to_duration,
    "timestamp": to_timestamp,
    "matches": compile_regex,
}


def _list(node: ListLiteral) -> Iterator[tuple[Node, str]]:
    first: Type | None = None
    for index, element in enumerate(node.elements):
        checked = element.type.parameters[0] if index in node.optional else element.type
        if first is not None and not _equivalent(first, checked):
            yield element, f"expected type '{first}' but found '{checked}'"
            return
        first = first or checked


def _map(node: MapLiteral) -> Iterator[tuple[Node, str]]:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        value = entry.value.type.parameters[0] if entry.optional else entry.value.type
        found = (entry.key.type, value)
        first = first or found
        for node_, expected, actual in zip((entry.key, entry.value), first, found, strict=True):
            if not _equivalent(expected, actual):
                yield node_, f"expected type '{expected}' but found '{actual}'"


def _equivalent(one: Type, other: Type) -> bool:
    return one == other
