"""Function calls as closures: overload selection, cost, and handling of operand errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from controller_manager.common.cel.frame import Evaluate, EvaluationFrame, charge, failed
from controller_manager.common.cel.library import Function, Overload, RuntimeCost, unit_cost
from controller_manager.common.cel.syntax import Call
from controller_manager.common.cel.types import Kind, Type, is_dyn
from controller_manager.common.cel.values import Duration, EvaluationError, Timestamp, Uint, type_of


class Chosen(NamedTuple):
    """A selected implementation: if `ordered`, it stops at the first failing operand; otherwise all are evaluated."""

    implementation: Callable[..., Any]
    cost: RuntimeCost | None
    ordered: bool


def choose(call: Call, function: Function) -> Chosen:
    """Select the implementation of a checked call, as far as types determine it."""
    if len(call.overloads) != 1:
        if function.implementation is not None:
            return Chosen(function.implementation, function.cost, ordered=False)
        return Chosen(_dispatcher(function), function.cost, ordered=len(function.overloads) > 1)
    overload = call.overloads[0]
    cost = overload.cost or function.cost
    if cost is unit_cost:
        cost = None
    if function.implementation is not None:
        return Chosen(function.implementation, cost, ordered=False)
    if not function.guarded:
        return Chosen(overload.implementation, cost, overload.ordered)
    return Chosen(_guard(function, overload), cost, overload.ordered)


def _takes_anything(declared: Type) -> bool:
    return is_dyn(declared) or declared.kind is Kind.TYPE_PARAM


def _fits(declared: Type, value: Any) -> bool:
    """Return whether a value has a declared type, judged by its type and those of its first elements."""
    if _takes_anything(declared):
        return True
    actual = type_of(value)
    if actual.kind is not declared.kind or actual.name != declared.name:
        return False
    if not declared.parameters or not value:
        return True
    if declared.kind is Kind.LIST:
        return _fits(declared.parameters[0], value[0])
    return declared.kind is not Kind.MAP or all(map(_fits, declared.parameters, next(iter(value.items()))))


def _no_overload(function: Function, arguments: tuple[Any, ...]) -> EvaluationError:
    names = ", ".join(type_of(argument).name for argument in arguments)
    return EvaluationError(f"no such overload: {function.name}({names})")


def _guard(function: Function, overload: Overload) -> Callable[..., Any]:
    """Return an implementation that checks its arguments, since the types of dynamic values are not reliable."""
    implementation = overload.implementation
    expected = [(_CLASSES.get(one.kind), one) for one in overload.arguments]
    if all(map(_takes_anything, overload.arguments)):
        return implementation

    def guarded(*arguments: Any) -> Any:
        for argument, (exact, declared) in zip(arguments, expected, strict=True):
            if type(argument) is not exact and not _fits(declared, argument):
                raise _no_overload(function, arguments)
        return implementation(*arguments)

    return guarded


_CLASSES: dict[Kind, type] = {
    Kind.BOOL: bool,
    Kind.BYTES: bytes,
    Kind.DOUBLE: float,
    Kind.DURATION: Duration,
    Kind.INT: int,
    Kind.STRING: str,
    Kind.TIMESTAMP: Timestamp,
    Kind.UINT: Uint,
}


def _dispatcher(function: Function) -> Callable[..., Any]:
    def dispatch(*arguments: Any) -> Any:
        for overload in function.overloads:
            if len(overload.arguments) == len(arguments) and all(map(_fits, overload.arguments, arguments)):
                return overload.implementation(*arguments)
        raise _no_overload(function, arguments)

    return dispatch


def call_closure(chosen: Chosen, operands: list[Evaluate]) -> Evaluate:
    """Return the closure of a call of strict operands."""
    if len(operands) == 1:
        return _unary(chosen, operands[0])
    if len(operands) == 2 and not chosen.ordered:
        return _binary(chosen, *operands)
    return _ordered(chosen, operands)


def _settle(frame: EvaluationFrame, chosen: Chosen, arguments: tuple[Any, ...]) -> Any:
    """Apply a function to evaluated operands and add the cost."""
    if chosen.cost is None:
        frame[0] += 1
        return chosen.implementation(*arguments)
    try:
        result = chosen.implementation(*arguments)
    except EvaluationError as error:
        charge(frame, chosen.cost(arguments, error))
        raise
    charge(frame, chosen.cost(arguments, result))
    return result


def _fail(
    frame: EvaluationFrame, chosen: Chosen, arguments: tuple[Any, ...], error: EvaluationError
) -> EvaluationError:
    """Add the cost of a call with failed operands; return the first error."""
    charge(frame, 1 if chosen.cost is None else chosen.cost(arguments, error))
    return error


def _unary(chosen: Chosen, operand: Evaluate) -> Evaluate:
    def call(frame: EvaluationFrame) -> Any:
        try:
            argument = operand(frame)
        except EvaluationError as error:
            raise _fail(frame, chosen, (error,), error) from None
        return _settle(frame, chosen, (argument,))

    return call


def _binary(chosen: Chosen, left: Evaluate, right: Evaluate) -> Evaluate:
    implementation, cost = chosen.implementation, chosen.cost

    def call(frame: EvaluationFrame) -> Any:
        try:
            one = left(frame)
        except EvaluationError as error:
            raise _fail(frame, chosen, (error, failed(right, frame)), error) from None
        try:
            other = right(frame)
        except EvaluationError as error:
            raise _fail(frame, chosen, (one, error), error) from None
        if cost is None:
            frame[0] += 1
            return implementation(one, other)
        return _settle(frame, chosen, (one, other))

    return call


def text_comparison(
    chosen: Chosen, operand: Evaluate, text: str, field: tuple[int, str, str] | None, *, equal: bool
) -> Evaluate:
    """Return the closure of `==` or `!=` with a constant text, the most common condition: for a `field` of a field in a
    slot, or for any operand.
    """
    cost = chosen.cost
    costs = None if cost is None else [cost((text[:size], text), True) for size in range(len(text) + 1)]
    if costs is None or len(costs) > _LONGEST_TEXT:
        return _binary(chosen, operand, lambda _: text)
    last, most = len(text), costs[-1]

    def compare(frame: EvaluationFrame) -> Any:
        try:
            value = operand(frame)
        except EvaluationError as error:
            raise _fail(frame, chosen, (error, text), error) from None
        if type(value) is not str:
            return _settle(frame, chosen, (value, text))
        size = len(value)
        charge(frame, costs[size] if size < last else most)
        return (value == text) is equal

    if field is None:
        return compare
    slot, first, second = field

    def compare_field(frame: EvaluationFrame) -> Any:
        try:
            value = frame[slot][first][second]
        except (KeyError, TypeError, AttributeError):
            return compare(frame)
        if type(value) is not str:
            return compare(frame)
        size = len(value)
        spent = frame[0] + 3 + (costs[size] if size < last else most)
        if spent > frame[1]:
            return compare(frame)
        frame[0] = spent
        return (value == text) is equal

    return compare_field


_LONGEST_TEXT = 256  # maximum characters of a text with precomputed costs


def _ordered(chosen: Chosen, operands: list[Evaluate]) -> Evaluate:
    last = len(operands) - 1

    def call(frame: EvaluationFrame) -> Any:
        arguments: list[Any] = []
        for index, operand in enumerate(operands):
            try:
                arguments.append(operand(frame))
            except EvaluationError as error:
                if index == last:
                    raise _fail(frame, chosen, (*arguments, error), error) from None
                raise
        return _settle(frame, chosen, tuple(arguments))

    return call


def not_strictly_false(operand: Evaluate) -> Evaluate:
    """Return the closure that is false only if the value is false; errors count as true."""

    def call(frame: EvaluationFrame) -> Any:
        value = failed(operand, frame)
        frame[0] += 1
        return value is not False

    return call


def logical(terms: list[Evaluate], stop: bool) -> Evaluate:
    """Return the closure of `&&` (stops at false) or `||` (stops at true); errors count only if no term stops it."""
    if len(terms) == 2:
        return _logical_pair(terms[0], terms[1], stop)

    def decide(frame: EvaluationFrame) -> Any:
        error: EvaluationError | None = None
        for term in terms:
            value = failed(term, frame)
            if value is stop:
                return stop
            if type(value) is not bool and error is None:
                error = value if isinstance(value, EvaluationError) else EvaluationError("no such overload")
        if error is not None:
            raise error
        return not stop

    return decide


def _logical_pair(left: Evaluate, right: Evaluate, stop: bool) -> Evaluate:
    go_on = not stop

    def decide(frame: EvaluationFrame) -> Any:
        try:
            value = left(frame)
        except EvaluationError as error:
            if failed(right, frame) is stop:
                return stop
            raise error from None
        if value is stop:
            return stop
        other = right(frame) if value is go_on else failed(right, frame)
        if other is stop:
            return stop
        if value is go_on and other is go_on:
            return go_on
        raise EvaluationError("no such overload")

    return decide
