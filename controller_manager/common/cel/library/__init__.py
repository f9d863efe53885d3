"""Function libraries as tables: functions, overloads and costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import msgspec

from controller_manager.common.cel.types import ObjectType, Type
from controller_manager.common.cel.values import Duration, EvaluationError, Timestamp

UNBOUNDED = 2**64 - 1  # maximum of estimates without a bound
STRING_TRAVERSAL = 0.1  # cost per character or byte
REGEX_LENGTH = 0.25  # cost per character of a regular expression
LIST_BASE, MAP_BASE, STRUCT_BASE = 10, 30, 40  # cost of creating an empty one


class Estimate(NamedTuple):
    """A range of sizes or costs; the numbers saturate at `UNBOUNDED`."""

    min: int
    max: int

    def plus(self, other: Estimate) -> Estimate:
        """Return the sum of both bounds."""
        return Estimate(min(self.min + other.min, UNBOUNDED), min(self.max + other.max, UNBOUNDED))

    def times(self, other: Estimate) -> Estimate:
        """Return the product of both bounds."""
        return Estimate(min(self.min * other.min, UNBOUNDED), min(self.max * other.max, UNBOUNDED))

    def scaled(self, factor: float) -> Estimate:
        """Return both bounds times a factor, rounded up."""
        return Estimate(_scaled(self.min, factor), _scaled(self.max, factor))

    def union(self, other: Estimate) -> Estimate:
        """Return the range that contains both."""
        return Estimate(min(self.min, other.min), max(self.max, other.max))


def _scaled(value: int, factor: float) -> int:
    product = float(value) * factor
    return min(math.ceil(product), UNBOUNDED) if product < 2.0**64 else UNBOUNDED


CostEstimate: TypeAlias = Estimate
UNKNOWN_SIZE = Estimate(0, UNBOUNDED)


def fixed(value: int) -> Estimate:
    """Return the range with a single number."""
    return Estimate(value, value)


class CallEstimate(NamedTuple):
    """The cost of a call without its operands, and the size of its result if it is a container or text."""

    cost: Estimate
    result_size: Estimate | None = None


class Operand(Protocol):
    """An operand of a call for static estimates."""

    @property
    def type(self) -> Type:
        """Return the checked type."""

    @property
    def size(self) -> Estimate:
        """Return the known size, or `UNKNOWN_SIZE`."""

    @property
    def computed_size(self) -> Estimate | None:
        """Return the size given by the expression itself; None if only declarations may give it."""

    @property
    def element_size(self) -> Estimate:
        """Return the declared size of a list's elements."""

    @property
    def literal(self) -> Any:
        """Return the value of a literal; `ABSENT` for other expressions."""


# Arguments are in order, the receiver first. The result of a failed function is its EvaluationError; the same holds
# for failed arguments.
RuntimeCost = Callable[[tuple[Any, ...], Any], int]
# Operands are in order, the receiver first. None leaves the estimate to the evaluator: a cost of 1.
CallEstimator = Callable[[tuple[Operand, ...]], CallEstimate | None]


def unit_cost(arguments: tuple[Any, ...], result: Any) -> int:
    """Return 1, the default cost of a call, for overloads of functions with another cost."""
    return 1


class Overload(msgspec.Struct, frozen=True):
    """A signature of a function with its implementation and cost.

    Implementations get plain values in order, the receiver first, and raise EvaluationError. Without a `cost` here or
    in the function, a call costs 1. A non-strict implementation gets errors as arguments. A call of an `ordered`
    overload stops at the first failing operand; otherwise all operands are evaluated.
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
    """A function with its name, which may contain dots, and its overloads in the order in which they are tried.

    `cost` applies to all overloads, also if only the values determine the overload; the `cost` of a known overload
    takes precedence. An `implementation` replaces those of all overloads and checks its arguments itself, like those of
    a function that is not `guarded`.
    """

    name: str
    overloads: tuple[Overload, ...]
    cost: RuntimeCost | None = None
    implementation: Callable[..., Any] | None = None
    guarded: bool = True


class Library(msgspec.Struct, frozen=True):
    """Related functions with their types (by type name).

    `objects` finds the types of objects that expressions may create, by name.
    """

    name: str
    functions: tuple[Function, ...]
    types: tuple[Type, ...] = ()
    objects: Callable[[str], ObjectType | None] | None = None


def no_such_overload(function: str = "") -> EvaluationError:
    """Return the error for arguments that a function does not accept."""
    return EvaluationError(f"no such overload: {function}" if function else "no such overload")


RECEIVERS = (str, Timestamp, Duration)  # types with methods, whose errors name no function


def unreachable(*_: Any) -> NoReturn:
    """A placeholder for functions that the evaluator implements with closures."""
    raise no_such_overload()
