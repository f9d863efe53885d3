"""Loops over lists and maps as closures: the general one, and optimized ones for common macros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from controller_manager.common.cel.frame import LIMIT, SPENT, UNSET, Evaluate, EvaluationFrame, charge, exceeded
from controller_manager.common.cel.shown import go_type
from controller_manager.common.cel.values import (
    EvaluationError,
    GrowingList,
    GrowingMap,
)


class Loop(NamedTuple):
    """The parts of a comprehension; `variable2` is the slot of the second variable, if there are two."""

    range: Evaluate
    variable: int
    variable2: int | None
    accumulator: int
    init: Evaluate
    result: Evaluate


def _items(ranged: Any) -> Iterator[Any]:
    """Return the elements for a loop with one variable. Raises EvaluationError."""
    if isinstance(ranged, list | dict):
        return iter(ranged)
    raise EvaluationError(f"got '{go_type(ranged)}', expected iterable type")


def _pairs(ranged: Any) -> Iterator[tuple[Any, Any]]:
    """Return the pairs for a loop with two variables. Raises EvaluationError."""
    if isinstance(ranged, dict):
        return iter(ranged.items())
    if isinstance(ranged, list):
        return enumerate(ranged)
    raise EvaluationError(f"unsupported comprehension range type: {go_type(ranged)}")


def _advance(frame: EvaluationFrame, ranged: Any, loop: Loop) -> Iterator[None]:
    """Put each element in its slot, and stop when the cost limit is exceeded."""
    if loop.variable2 is None:
        for item in _items(ranged):
            frame[loop.variable] = item
            yield
            if frame[SPENT] > frame[LIMIT]:
                exceeded(frame)
        return
    for key, item in _pairs(ranged):
        frame[loop.variable] = key
        frame[loop.variable2] = item
        yield
        if frame[SPENT] > frame[LIMIT]:
            exceeded(frame)


def _attempt(evaluate: Evaluate, frame: EvaluationFrame) -> Any:
    try:
        return evaluate(frame)
    except EvaluationError as error:
        return error


def general(loop: Loop, condition: Evaluate, step: Evaluate) -> Evaluate:
    """Return the closure of any comprehension; errors of steps stay in the accumulator."""
    slot, init, result = loop.accumulator, loop.init, loop.result

    def fold(frame: EvaluationFrame) -> Any:
        ranged = loop.range(frame)
        frame[slot] = _growing(_attempt(init, frame))
        for _ in _advance(frame, ranged, loop):
            holds = _attempt(condition, frame)
            if holds is False:
                break
            frame[slot] = _attempt(step, frame)
        return finished(result(frame))

    return fold


def _growing(value: Any) -> Any:
    if type(value) is list and not value:
        return GrowingList()
    return GrowingMap() if type(value) is dict and not value else value


def finished(value: Any) -> Any:
    """Convert the list or map of a comprehension to an ordinary one."""
    if type(value) is GrowingList:
        return list(value)
    return dict(value) if type(value) is GrowingMap else value


def bound(slot: int, result: Evaluate) -> Evaluate:
    """Return the closure of a bound name, which is evaluated on first use."""

    def bind(frame: EvaluationFrame) -> Any:
        frame[slot] = UNSET
        return result(frame)

    return bind


def quantified(loop: Loop, predicate: Evaluate, stop: bool) -> Evaluate:
    """Return `all` (stops at false) or `exists` (stops at true); errors count only if it does not stop."""
    look = 3 if stop else 2  # the cost of the condition; `exists` has a negation

    def fold(frame: EvaluationFrame) -> bool:
        ranged = loop.range(frame)
        held: Any = not stop
        for _ in _advance(frame, ranged, loop):
            frame[SPENT] += look
            if held is stop:
                break
            frame[SPENT] += 1
            value = _attempt(predicate, frame)
            if value is stop:
                held = stop
            elif value is not (not stop) and type(held) is bool:
                held = value if isinstance(value, EvaluationError) else EvaluationError("no such overload")
        frame[SPENT] += 1
        if isinstance(held, EvaluationError):
            raise held
        return held  # type: ignore[no-any-return]

    return fold


def mapped(loop: Loop, transform: Evaluate, condition: Evaluate | None, list_cost: int) -> Evaluate:
    """Return `map` or `filter`: an error does not stop the loop but is the result. Each element is added as a list."""

    def fold(frame: EvaluationFrame) -> list[Any]:
        ranged = loop.range(frame)
        made: list[Any] = []
        error: EvaluationError | None = None
        for _ in _advance(frame, ranged, loop):
            if condition is not None:
                holds = _attempt(condition, frame)
                if holds is False:
                    continue
                if holds is not True:
                    error = holds if isinstance(holds, EvaluationError) else EvaluationError("no such overload")
                    continue
            frame[SPENT] += 1
            value = _attempt(transform, frame)
            charge(frame, list_cost)
            frame[SPENT] += 1
            if isinstance(value, EvaluationError):
                error = error or value
            elif error is None:
                made.append(value)
        frame[SPENT] += 1
        if error is not None:
            raise error
        return made

    return fold
