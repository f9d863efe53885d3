"""The tables that libraries of functions are: functions, their overloads, and what calls of them cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import msgspec

from controller_manager.common.cel.types import ObjectType, Type
from controller_manager.common.cel.values import Duration, EvaluationError, Timestamp

UNBOUNDED = 2**64 - 1  # the maximum of estimates without a bound
STRING_TRAVERSAL = 0.1  # the cost of looking at one character or byte
REGEX_LENGTH = 0.25  # expressions in a regular expression per character
LIST_BASE, MAP_BASE, STRUCT_BASE = 10, 30, 40  # the costs of making an empty one


class Estimate(NamedTuple):
    """A range of a size or of a cost, in numbers that stay at `UNBOUNDED` once they reach it."""

    min: int
    max: int

    def plus(self, other: Estimate) -> Estimate:
        """Return the sum of both ends."""
        return Estimate(min(self.min + other.min, UNBOUNDED), min(self.max + other.max, UNBOUNDED))

    def times(self, other: Estimate) -> Estimate:
        """Return the product of both ends."""
        return Estimate(min(self.min * other.min, UNBOUNDED), min(self.max * other.max, UNBOUNDED))

    def scaled(self, factor: float) -> Estimate:
        """Return both ends times a factor, rounded up."""
        return Estimate(_scaled(self.min, factor), _scaled(self.max, factor))

    def union(self, other: Estimate) -> Estimate:
        """Return the range that holds both."""
        return Estimate(min(self.min, other.min), max(self.max, other.max))


def _scaled(value: int, factor: float) -> int:
    product = float(value) * factor
    return min(math.ceil(product), UNBOUNDED) if product < 2.0**64 else UNBOUNDED


SizeEstimate: TypeAlias = Estimate
CostEstimate: TypeAlias = Estimate
UNKNOWN_SIZE = Estimate(0, UNBOUNDED)


def fixed(value: int) -> Estimate:
    """Return the range of exactly one number."""
    return Estimate(value, value)


class CallEstimate(NamedTuple):
    """What a call costs without its operands, and the size of its result, where that is a container or a text."""

    cost: Estimate
    result_size: Estimate | None = None


class Operand(Protocol):
    """An operand of a call as static estimates see it."""

    @property
    def type(self) -> Type:
        """Return the checked type."""

    @property
    def size(self) -> Estimate:
        """Return the size as far as it is known, `UNKNOWN_SIZE` if it is not."""

    @property
    def computed_size(self) -> Estimate | None:
        """Return the size that the expression itself tells; None if only declarations might."""

    @property
    def element_size(self) -> Estimate:
        """Return the size of an element of a list, as declarations tell it."""

    @property
    def literal(self) -> Any:
        """Return the value of a literal; `ABSENT` for other expressions."""


# Arguments are in order, the receiver first; a function that failed has its EvaluationError as the result,
# and so has an argument that failed.
RuntimeCost = Callable[[tuple[Any, ...], Any], int]
# Operands are in order, the receiver first. None leaves the estimate to the evaluator: a cost of 1.
CallEstimator = Callable[[tuple[Operand, ...]], CallEstimate | None]


def unit_cost(arguments: tuple[Any, ...], result: Any) -> int:
    """Return 1: what calls cost that say nothing, for overloads of functions that say something else."""
    return 1


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function, what it does, and what that costs.

    Implementations get plain values in order, the receiver first, and raise EvaluationError. Without `cost`, and
    without one of the function, a call costs 1. Errors reach an implementation that is not strict as arguments.
    A call of an overload that is `ordered` ends at the first operand that fails; others look at all of them.
    """

    id: str
    arguments: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Any]
    receiver: bool = False
    cost: RuntimeCost | None = None
    estimate: CallEstimator | None = None
    strict: bool = True
    ordered: bool = False


class Function(msgspec.Struct, frozen=True):
    """A function by its name, which may have dots in it, and its overloads in the order they are tried.

    `cost` is that of calls of any overload, also where only the values tell which one it is; the `cost` of the
    overload, where that is known, goes first. With an `implementation`, it stands for those of all overloads, and
    judges its arguments itself, as those of a function that is not `guarded` do.
    """

    name: str
    overloads: tuple[Overload, ...]
    cost: RuntimeCost | None = None
    implementation: Callable[..., Any] | None = None
    guarded: bool = True


class Library(msgspec.Struct, frozen=True):
    """Functions that belong together, with the types they are about (by the names expressions may use).

    `objects` finds the types of objects that expressions may make, by their names.
    """

    name: str
    functions: tuple[Function, ...]
    types: tuple[Type, ...] = ()
    objects: Callable[[str], ObjectType | None] | None = None


def no_such_overload(function: str = "") -> EvaluationError:
    """Return the error of arguments that a function is not for."""
    return EvaluationError(f"no such overload: {function}" if function else "no such overload")


RECEIVERS = (str, Timestamp, Duration)  # types with methods of their own, whose errors name no function


def unreachable(*_: Any) -> NoReturn:
    """Stand for what the evaluator has closures of its own for."""
    raise no_such_overload()
