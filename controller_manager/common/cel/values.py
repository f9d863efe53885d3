"""CEL values as Python values: equality, order, size, type, and evaluation errors.

bool, int, float, str, bytes, None, list and dict represent themselves, so a JSON tree is a value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
)

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
RUNTIME_LIMIT = 1_000_000  # cost limit of one evaluation


class EvaluationError(Exception):
    """An expression fails to evaluate; logical operators may absorb the error."""

    @property
    def message(self) -> str:
        """Return the error message for users."""
        return str(self.args[0])


class CostExceeded(Exception):
    """An evaluation was stopped because it exceeded its budget."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class CostBudget(msgspec.Struct):
    """The shared cost limit of evaluations, and the cost so far."""

    limit: int = RUNTIME_LIMIT
    spent: int = 0


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Duration(msgspec.Struct, frozen=True, order=True):
    """A span of time in nanoseconds."""

    nanoseconds: int


class Timestamp(msgspec.Struct, frozen=True):
    """A time in nanoseconds since 1970, and the UTC offset in seconds for its text form."""

    nanoseconds: int
    offset: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __le__(self, other: Timestamp) -> bool:
        return self.nanoseconds <= other.nanoseconds


class _Absent:
    """The content of an empty optional value."""

    __slots__ = ()


ABSENT = _Absent()


class Optional(msgspec.Struct, frozen=True):
    """An optional value; `ABSENT` if it is empty."""

    value: Any

    @property
    def present(self) -> bool:
        """Return true if there is a value."""
        return self.value is not ABSENT


NONE = Optional(ABSENT)


class Opaque:
    """A value of a library type, which defines `__eq__`; `length` is its size for costs, if it has one."""

    __slots__ = ()
    length: int = 1

    @property
    @abstractmethod
    def type(self) -> Type:
        """Return the type at run time."""

    def equals(self, other: Any) -> bool:
        """Return what `self == other` is in an expression. Raises EvaluationError for a value of another type."""
        if type(other) is not type(self):
            raise EvaluationError("no such overload")
        return bool(self == other)


class Structure(Opaque):
    """A value with fields that an expression has created. It never equals values of other types.

    `go_name` is the name of its type in Go implementations.
    """

    __slots__ = ()
    go_name: ClassVar[str]

    @property
    def empty(self) -> bool:
        """Return whether the value is a zero value."""
        return False

    @abstractmethod
    def field(self, name: str, present_only: bool) -> Any:
        """Return a field of a value with declared type; ABSENT if it is missing."""

    def part(self, key: Any, present_only: bool) -> Any:
        """Return a field of a value with any type; ABSENT if it is missing."""
        return ABSENT

    @abstractmethod
    def tree(self) -> Any:
        """Return the value inside of an optional value whose fields are selected."""

    def equals(self, other: Any) -> bool:
        """Return what `self == other` is in an expression."""
        return bool(self == other)


def unsupported_key(key: Any) -> EvaluationError:
    """Return the error for a list or map as map key, which Python dictionaries do not support."""
    return EvaluationError(f"unsupported map key of type {type_of(key).name}")


class KeyedList(list[Any]):
    """A list of items with keys: equality ignores the order, and addition replaces items with the same key."""

    __slots__ = ("keys",)

    def __init__(self, items: Iterable[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def key_of(self, item: dict[str, Any]) -> tuple[Any, ...]:
        """Return the values that identify an item."""
        return tuple(item.get(key) for key in self.keys)


class SetList(list[Any]):
    """A set of scalars: equality ignores the order, and addition appends new values."""

    __slots__ = ()


class GrowingList(list[Any]):
    """The list that a comprehension builds in place; it has no other references."""

    __slots__ = ()


class GrowingMap(dict[Any, Any]):
    """The map that a comprehension builds in place; it has no other references."""

    __slots__ = ()


_TYPES: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    list: LIST,
    SetList: LIST,
    KeyedList: LIST,
    dict: MAP,
    GrowingList: LIST,
    GrowingMap: MAP,
    Timestamp: TIMESTAMP,
    Duration: DURATION,
    Optional: OPTIONAL,
}


def type_of(value: Any) -> Type:
    """Return the runtime type of a value, without type parameters."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    if isinstance(value, Opaque):
        return value.type
    return TYPE if isinstance(value, Type) else DYN


def size_of(value: Any) -> int:
    """Return the size of a value for costs: its length, or 1 for values without length and for errors."""
    kind = type(value)
    if kind is str or kind is list or kind is dict or kind is bytes:
        return len(value)
    if isinstance(value, list):
        return len(value)
    if kind is Optional and value.present:
        return size_of(value.value)
    return value.length if isinstance(value, Opaque) else 1


def traversal_cost(value: Any) -> int:
    """Return the cost of visiting every part of a value once."""
    if isinstance(value, str):
        return int(len(value.encode("utf-8", "surrogatepass")) * 0.1)
    if isinstance(value, bytes):
        return int(len(value) * 0.1)
    if isinstance(value, list):
        return sum(map(traversal_cost, value))
    if isinstance(value, dict):
        return sum(traversal_cost(key) + traversal_cost(item) for key, item in value.items())
    return 1


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal: numbers across types; values of other different types are never equal."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is list:
            return len(left) == len(right) and all(map(equal, left, right))
        if kind is dict:
            return len(left) == len(right) and all(_has_equal(right, key, value) for key, value in left.items())
        if kind is Optional:
            return left.present == right.present and (not left.present or equal(left.value, right.value))
        if kind is SetList:
            return len(left) == len(right) and set(left) == set(right)
        if kind is KeyedList:
            return _equal_by_key(left, right)
        return bool(left.name == right.name if isinstance(left, Type) else left == right)
    if isinstance(left, Type):
        return isinstance(right, Type) and left.name == right.name
    if kind in _NUMBERS and other in _NUMBERS:
        return compare_numbers(left, right) == 0
    if isinstance(left, list) and isinstance(right, list):
        if kind is SetList or other is SetList:
            return _equal_sets(left, right)
        return equal(list(left), list(right))
    return False


def equal_operands(left: Any, right: Any) -> bool:
    """Return what `left == right` is in an expression. Raises EvaluationError as `Opaque.equals` does."""
    if isinstance(left, Opaque) and right is not None:
        return left.equals(right)
    return equal(left, right)


def unequal_operands(left: Any, right: Any) -> bool:
    """Return the value of `left != right`: true for values that cannot be compared."""
    try:
        return not equal_operands(left, right)
    except EvaluationError:
        return True


def _has_equal(mapping: dict[Any, Any], key: Any, value: Any) -> bool:
    found = find(mapping, key)
    return found is not ABSENT and equal(value, found)


def _equal_sets(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(any(equal(one, other) for one in left) for other in right)


def _equal_by_key(left: KeyedList, right: KeyedList) -> bool:
    if len(left) != len(right):
        return False
    known = {left.key_of(item): item for item in left}
    return all((key := left.key_of(item)) in known and equal(known[key], item) for item in right)


_NUMBERS = frozenset({int, Uint, float})


def compare_numbers(left: Any, right: Any) -> int:
    """Return -1, 0 or 1; with a double, both are compared as doubles. The caller handles NaN (never 0)."""
    if type(left) is float or type(right) is float:
        if (type(left) is float and not math.isfinite(left)) or (type(right) is float and not math.isfinite(right)):
            return -1 if left < right else (0 if left == right else 1)
        left, right = _in_range(left, right), _in_range(right, left)
    return -1 if left < right else (0 if left == right else 1)


def _in_range(value: Any, other: Any) -> Any:
    """Return a number as double for comparison, unless the other one is outside of the range of its type."""
    if type(value) is float:
        return value
    highest = UINT_MAX if type(value) is Uint else INT_MAX
    lowest = 0 if type(value) is Uint else INT_MIN
    return value if other > highest or other < lowest else float(value)


def find(mapping: dict[Any, Any], key: Any) -> Any:
    """Return the value of a key (numbers match across types), or `ABSENT`."""
    if type(key) is str:
        return mapping.get(key, ABSENT)
    if type(key) is float and not math.isfinite(key):
        return ABSENT
    try:
        found = mapping.get(key, ABSENT)
    except TypeError:
        return ABSENT
    if found is not ABSENT and isinstance(key, int | float) and key in (0, 1):
        same = next(one for one in mapping if one == key)
        return found if (type(same) is bool) == (type(key) is bool) else ABSENT
    return found
