"""Arithmetic and comparison operators; the planner implements logic, conditions and indexes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from controller_manager.common.cel.library import (
    RECEIVERS,
    STRING_TRAVERSAL,
    Function,
    Overload,
    no_such_overload,
    unit_cost,
    unreachable,
)
from controller_manager.common.cel.times import (
    between,
    shifted,
)
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    MapType,
    Type,
    TypeParameter,
)
from controller_manager.common.cel.values import (
    ABSENT,
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    EvaluationError,
    GrowingList,
    KeyedList,
    Opaque,
    SetList,
    Structure,
    Timestamp,
    Uint,
    compare_numbers,
    equal,
    find,
    size_of,
)

_A, _B = TypeParameter("A"), TypeParameter("B")
_LIST, _MAP = ListType(_A), MapType(_A, _B)

_Operator = Callable[[Any, Any], Any]


def checked_int(value: int) -> int:
    """Return a signed 64-bit number. Raises EvaluationError on overflow."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> Uint:
    """Return an unsigned 64-bit number. Raises EvaluationError on overflow."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def added(left: Any, right: Any) -> Any:
    """Return the sum of two values. Raises EvaluationError on overflow and for types without addition."""
    kind = type(left)
    if kind is type(right) and kind in (int, str, float, list, Uint, bytes, Duration):
        if kind is int:
            return checked_int(left + right)
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind is Duration:
            return Duration(checked_int(left.nanoseconds + right.nanoseconds))
        return left + right
    if kind is GrowingList and isinstance(right, list):
        left.extend(right)
        return left
    if isinstance(left, list) and isinstance(right, list):
        return _joined(left, right)
    if kind is Timestamp and type(right) is Duration:
        return shifted(left, right.nanoseconds)
    if kind is Duration and type(right) is Timestamp:
        return shifted(right, left.nanoseconds)
    if kind in _ADDABLE or isinstance(left, list):
        raise no_such_overload()
    raise no_such_overload("_+_")


_ADDABLE = (int, str, float, Uint, bytes, Duration, Timestamp)


def _joined(left: list[Any], right: list[Any]) -> list[Any]:
    """Return the concatenation of two lists; sets and lists with keys keep their type."""
    if isinstance(left, SetList):
        known = set(left)
        added = []
        for item in right:
            if item not in known:
                known.add(item)
                added.append(item)
        return SetList([*left, *added])
    if isinstance(left, KeyedList):
        by_key = {left.key_of(item): item for item in left}
        by_key.update((left.key_of(item), item) for item in right)
        return KeyedList(by_key.values(), left.keys)
    return [*left, *right]


def _subtracted(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left - right)
        if kind is float:
            return left - right
        if kind is Uint:
            return checked_uint(int(left) - int(right))
        if kind is Duration:
            return Duration(checked_int(left.nanoseconds - right.nanoseconds))
        if kind is Timestamp:
            return between(left, right)
    if kind is Timestamp and other is Duration:
        return shifted(left, checked_int(-right.nanoseconds))
    raise no_such_overload("" if kind in (int, float, Uint, *RECEIVERS) else "_-_")


def _multiplied(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)
        if kind is float:
            return left * right
        if kind is Uint:
            return checked_uint(int(left) * int(right))
    raise no_such_overload("" if kind in (int, float, Uint, *RECEIVERS) else "_*_")


def _divided(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return _double_quotient(left, right)
        if kind is int or kind is Uint:
            if right == 0:
                raise EvaluationError("division by zero")
            quotient = abs(int(left)) // abs(int(right))
            return Uint(quotient) if kind is Uint else checked_int(quotient if (left < 0) == (right < 0) else -quotient)
    raise no_such_overload("" if kind in (int, float, Uint, *RECEIVERS) else "_/_")


def _double_quotient(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _modulo(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if right == 0:
            raise EvaluationError("modulus by zero")
        if left == INT_MIN and right == -1:
            raise EvaluationError("integer overflow")
        rest = abs(int(left)) % abs(int(right))
        return Uint(rest) if kind is Uint else (-rest if left < 0 else rest)
    raise no_such_overload("" if kind in (int, Uint, *RECEIVERS) else "_%_")


def _negated(value: Any) -> Any:
    if type(value) is int:
        return checked_int(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return Duration(checked_int(-value.nanoseconds))
    raise no_such_overload("" if type(value) in (bool, *RECEIVERS) else "-_")


_ORDERED = frozenset({int, str, bool, Uint, bytes, Duration, Timestamp})


_COMPARABLE = _ORDERED | {float}


_NUMBERS = frozenset({int, float, Uint})


def _comparison(function: str, order: _Operator) -> _Operator:
    def compare(left: Any, right: Any) -> bool:
        kind, other = type(left), type(right)
        if kind is other and kind in _ORDERED:
            return bool(order(left, right))
        if left != left or (right != right and kind in _NUMBERS):
            raise EvaluationError("NaN values cannot be ordered")
        if kind in _NUMBERS and other in _NUMBERS:
            return bool(order(compare_numbers(left, right), 0))
        raise no_such_overload("" if kind in _COMPARABLE else function)

    return compare


def _in(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(equal(value, item) for item in container)
    if isinstance(container, dict):
        return value in container if type(value) is str else find(container, value) is not ABSENT
    raise no_such_overload()


def _not(value: Any) -> bool:
    if value is True or value is False:
        return not value
    raise no_such_overload()


def _smaller(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil(min(size_of(arguments[0]), size_of(arguments[1])) * STRING_TRAVERSAL)


def _both(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil((size_of(arguments[0]) + size_of(arguments[1])) * STRING_TRAVERSAL)


_CHEAP_ITEMS, _ITEMS_PER_COST = 1000, 100  # for list addition


def _list_sum(arguments: tuple[Any, ...], result: Any) -> int:
    """Return the cost of list addition: 1, and more for long lists, which are copied here (Go uses views)."""
    if type(result) is not list or type(arguments[0]) is GrowingList:
        return 1
    return 1 + max(len(result) - _CHEAP_ITEMS, 0) // _ITEMS_PER_COST


def _container_size(arguments: tuple[Any, ...], _: Any) -> int:
    return size_of(arguments[1])


def _equality_cost(arguments: tuple[Any, ...], result: Any) -> int:
    one = arguments[0]
    return 1 if isinstance(one, Opaque) and not isinstance(one, Structure) else _smaller(arguments, result)


_BYTES_AND_STRINGS = {"string": _smaller, "bytes": _smaller}


_COMPARED: tuple[tuple[str, tuple[Type, Type]], ...] = (
    ("bool", (BOOL, BOOL)),
    ("int64", (INT, INT)),
    ("int64_double", (INT, DOUBLE)),
    ("int64_uint64", (INT, UINT)),
    ("uint64", (UINT, UINT)),
    ("uint64_double", (UINT, DOUBLE)),
    ("uint64_int64", (UINT, INT)),
    ("double", (DOUBLE, DOUBLE)),
    ("double_int64", (DOUBLE, INT)),
    ("double_uint64", (DOUBLE, UINT)),
    ("string", (STRING, STRING)),
    ("bytes", (BYTES, BYTES)),
    ("timestamp", (TIMESTAMP, TIMESTAMP)),
    ("duration", (DURATION, DURATION)),
)


def _relation(function: str, prefix: str, order: _Operator) -> Function:
    compare = _comparison(function, order)
    overloads = tuple(
        Overload(f"{prefix}_{suffix}", types, BOOL, compare, cost=_BYTES_AND_STRINGS.get(suffix))
        for suffix, types in _COMPARED
    )
    return Function(function, overloads, implementation=compare)


def _arithmetic(function: str, apply: Callable[..., Any], *signatures: tuple[str, tuple[Type, ...], Type]) -> Function:
    costs = {"add_string": _both, "add_bytes": _both, "add_list": _list_sum}
    overloads = tuple(
        Overload(name, types, result, apply, cost=costs.get(name, unit_cost)) for name, types, result in signatures
    )
    return Function(function, overloads, cost=_list_sum if function == "_+_" else None, implementation=apply)


OPERATORS: tuple[Function, ...] = (
    Function("_?_:_", (Overload("conditional", (BOOL, _A, _A), _A, unreachable, strict=False),)),
    Function("_&&_", (Overload("logical_and", (BOOL, BOOL), BOOL, unreachable, strict=False),)),
    Function("_||_", (Overload("logical_or", (BOOL, BOOL), BOOL, unreachable, strict=False),)),
    Function("!_", (Overload("logical_not", (BOOL,), BOOL, _not),), implementation=_not),
    Function("@not_strictly_false", (Overload("not_strictly_false", (BOOL,), BOOL, unreachable, strict=False),)),
    Function("_==_", (Overload("equals", (_A, _A), BOOL, equal, cost=_equality_cost),), cost=_equality_cost),
    Function("_!=_", (Overload("not_equals", (_A, _A), BOOL, unreachable, cost=_smaller),), cost=_smaller),
    _arithmetic(
        "_+_",
        added,
        ("add_bytes", (BYTES, BYTES), BYTES),
        ("add_double", (DOUBLE, DOUBLE), DOUBLE),
        ("add_duration_duration", (DURATION, DURATION), DURATION),
        ("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP),
        ("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP),
        ("add_int64", (INT, INT), INT),
        ("add_list", (_LIST, _LIST), _LIST),
        ("add_string", (STRING, STRING), STRING),
        ("add_uint64", (UINT, UINT), UINT),
    ),
    _arithmetic(
        "_/_",
        _divided,
        ("divide_double", (DOUBLE, DOUBLE), DOUBLE),
        ("divide_int64", (INT, INT), INT),
        ("divide_uint64", (UINT, UINT), UINT),
    ),
    _arithmetic("_%_", _modulo, ("modulo_int64", (INT, INT), INT), ("modulo_uint64", (UINT, UINT), UINT)),
    _arithmetic(
        "_*_",
        _multiplied,
        ("multiply_double", (DOUBLE, DOUBLE), DOUBLE),
        ("multiply_int64", (INT, INT), INT),
        ("multiply_uint64", (UINT, UINT), UINT),
    ),
    _arithmetic("-_", _negated, ("negate_double", (DOUBLE,), DOUBLE), ("negate_int64", (INT,), INT)),
    _arithmetic(
        "_-_",
        _subtracted,
        ("subtract_double", (DOUBLE, DOUBLE), DOUBLE),
        ("subtract_duration_duration", (DURATION, DURATION), DURATION),
        ("subtract_int64", (INT, INT), INT),
        ("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP),
        ("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION),
        ("subtract_uint64", (UINT, UINT), UINT),
    ),
    _relation("_<_", "less", operator.lt),
    _relation("_<=_", "less_equals", operator.le),
    _relation("_>_", "greater", operator.gt),
    _relation("_>=_", "greater_equals", operator.ge),
    Function(
        "_[_]",
        (
            Overload("index_list", (_LIST, INT), _A, unreachable),
            Overload("index_map", (_MAP, _A), _B, unreachable),
        ),
    ),
    Function(
        "@in",
        (
            Overload("in_list", (_A, _LIST), BOOL, _in, cost=_container_size),
            Overload("in_map", (_A, _MAP), BOOL, _in),
        ),
        implementation=_in,
    ),
)
