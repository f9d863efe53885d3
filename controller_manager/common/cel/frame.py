"""What an evaluation works with: a flat list of cost, limit and slots, which closures read and write by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from controller_manager.common.cel.values import CostExceeded, EvaluationError

# A frame begins with the cost so far and its limit; then come a memo of converted values and the slots of names.
EvaluationFrame = list[Any]
Evaluate = Callable[[EvaluationFrame], Any]

SPENT, LIMIT, MEMO, SLOTS = 0, 1, 2, 3


class _Unset:
    """The content of a slot whose name has no value (yet)."""

    __slots__ = ()


UNSET = _Unset()


def charge(frame: EvaluationFrame, cost: int) -> None:
    """Add a cost of more than one step. Raises CostExceeded, with what was spent at the step that was too much."""
    before = frame[0]
    if before > frame[1]:
        exceeded(frame)
    frame[0] = before + cost
    if frame[0] > frame[1]:
        raise CostExceeded


def exceeded(frame: EvaluationFrame) -> NoReturn:
    """Raise CostExceeded after steps that cost one each: the first that was too much is where it ended."""
    frame[0] = frame[1] + 1
    raise CostExceeded


def failed(evaluate: Evaluate, frame: EvaluationFrame) -> Any:
    """Return the value of an operand, or its error, where another operand has failed before."""
    try:
        return evaluate(frame)
    except EvaluationError as error:
        return error
