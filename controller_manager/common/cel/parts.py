"""Compiled parts of a tree: constants, attributes, and closures that are evaluated on a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller_manager.common.cel.attributes import KEY_TYPES, Attribute
from controller_manager.common.cel.frame import Evaluate, EvaluationFrame
from controller_manager.common.cel.values import INT_MAX, Uint


class Constant:
    """A part with a constant value; it has no cost."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


CompiledPart = Constant | Attribute | Evaluate


def closure(part: CompiledPart) -> Evaluate:
    """Return the closure of a part."""
    if isinstance(part, Constant):
        value = part.value
        return lambda _: value
    return part.evaluator() if isinstance(part, Attribute) else part


def folded(parts: list[CompiledPart], make: Callable[[EvaluationFrame], Any]) -> CompiledPart:
    """Return a constant for a literal of constants, else the closure that creates the literal."""
    if all(isinstance(part, Constant) for part in parts):
        return Constant(make([0, INT_MAX, {}]))
    return make


def membership(parts: list[CompiledPart]) -> CompiledPart | None:
    """Return the lookup of a value in a constant list of scalars, which has no cost; None for other lists."""
    members = parts[1]
    if not isinstance(members, Constant):
        return None
    if not members.value:
        return Constant(False)
    known = set()
    for item in members.value:
        if type(item) not in KEY_TYPES:
            return None
        known.add((type(item) is bool, item))
        if type(item) is int or type(item) is Uint:
            known.add((False, float(item)))
    evaluate = closure(parts[0])

    def contained(frame: EvaluationFrame) -> bool:
        value = evaluate(frame)
        return type(value) in KEY_TYPES and (type(value) is bool, value) in known

    return contained
