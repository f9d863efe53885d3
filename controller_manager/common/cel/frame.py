"""The evaluation frame: a flat list of cost, limit and slots, which closures access by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from controller_manager.common.cel.values import CostExceeded, EvaluationError

# A frame starts with the current cost and its limit, a cache of converted values, then the slots of names.
EvaluationFrame = list[Any]
Evaluate = Callable[[EvaluationFrame], Any]

SPENT, LIMIT, MEMO, SLOTS = 0, 1, 2, 3


class _Unset:
    """The content of a slot without a value."""

    __slots__ = ()


UNSET = _Unset()


def charge(frame: EvaluationFrame, cost: int) -> None:
    """Add the cost of a step. Raises CostExceeded, with the cost at the step that exceeded the limit."""
    before = frame[0]
    if before > frame[1]:
        exceeded(frame)
    frame[0] = before + cost
    if frame[0] > frame[1]:
        raise CostExceeded


def exceeded(frame: EvaluationFrame) -> NoReturn:
    """Raise CostExceeded after steps of cost one: the evaluation ends at the first one above the limit."""
    frame[0] = frame[1] + 1
    raise CostExceeded


def failed(evaluate: Evaluate, frame: EvaluationFrame) -> Any:
    """Return the value or the error of an operand, after another operand has failed."""
    try:
        return evaluate(frame)
    except EvaluationError as error:
        return error
