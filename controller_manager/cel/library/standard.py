"""The functions and operators that every environment of CEL has."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any, NoReturn

from controller_manager.base.regex import compile_regex
from controller_manager.cel.library import REGEX_LENGTH, STRING_TRAVERSAL, Function, Library, Overload, unit_cost
from controller_manager.cel.shown import format_double, plain_double
from controller_manager.cel.times import (
    MAX_SECONDS,
    MIN_SECONDS,
    SECOND,
    Date,
    between,
    format_timestamp,
    in_zone,
    parse_duration,
    parse_timestamp,
    seconds_of,
    shifted,
)
from controller_manager.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    ListType,
    MapType,
    Type,
    TypeParameter,
    TypeType,
)
from controller_manager.cel.values import (
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
    Timestamp,
    Uint,
    compare_numbers,
    equal,
    find,
    size_of,
    type_of,
)

_A, _B = TypeParameter("A"), TypeParameter("B")
_LIST, _MAP = ListType(_A), MapType(_A, _B)
_Operator = Callable[[Any, Any], Any]


def no_overload(function: str = "") -> NoReturn:
    """Raise the error of arguments that a function is not for."""
    raise EvaluationError(f"no such overload: {function}" if function else "no such overload")


_RECEIVERS = (str, Timestamp, Duration)  # types with methods of their own, whose errors name no function


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def added(left: Any, right: Any) -> Any:
    """Return the sum of two values. Raises EvaluationError beyond the bounds of their type, and for what has none."""
    kind = type(left)
    if kind is type(right) and kind in (int, str, float, list, Uint, bytes, Duration):
        if kind is int:
            return _int(left + right)
        if kind is Uint:
            return _uint(int(left) + int(right))
        if kind is Duration:
            return Duration(_int(left.nanoseconds + right.nanoseconds))
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
        no_overload()
    no_overload("_+_")


_ADDABLE = (int, str, float, Uint, bytes, Duration, Timestamp)


def _joined(left: list[Any], right: list[Any]) -> list[Any]:
    """Return two lists as one: sets and lists of items with keys keep what they are."""
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
            return _int(left - right)
        if kind is float:
            return left - right
        if kind is Uint:
            return _uint(int(left) - int(right))
        if kind is Duration:
            return Duration(_int(left.nanoseconds - right.nanoseconds))
        if kind is Timestamp:
            return between(left, right)
    if kind is Timestamp and other is Duration:
        return shifted(left, _int(-right.nanoseconds))
    no_overload("" if kind in (int, float, Uint, *_RECEIVERS) else "_-_")


def _multiplied(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _int(left * right)
        if kind is float:
            return left * right
        if kind is Uint:
            return _uint(int(left) * int(right))
    no_overload("" if kind in (int, float, Uint, *_RECEIVERS) else "_*_")


def _divided(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return _double_quotient(left, right)
        if kind is int or kind is Uint:
            if right == 0:
                raise EvaluationError("division by zero")
            quotient = abs(int(left)) // abs(int(right))
            return Uint(quotient) if kind is Uint else _int(quotient if (left < 0) == (right < 0) else -quotient)
    no_overload("" if kind in (int, float, Uint, *_RECEIVERS) else "_/_")


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
    no_overload("" if kind in (int, Uint, *_RECEIVERS) else "_%_")


def _negated(value: Any) -> Any:
    if type(value) is int:
        return _int(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return Duration(_int(-value.nanoseconds))
    no_overload("" if type(value) in (bool, *_RECEIVERS) else "-_")


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
        no_overload("" if kind in _COMPARABLE else function)

    return compare


def _size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    no_overload("" if isinstance(value, _RECEIVERS) else "size")


def _in(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(equal(value, item) for item in container)
    if isinstance(container, dict):
        return find(container, value) is not ABSENT
    no_overload()


def _not(value: Any) -> bool:
    if value is True or value is False:
        return not value
    no_overload()


def unreachable(*_: Any) -> NoReturn:
    """Stand for what the evaluator has closures of its own for."""
    no_overload()


def _conversion_error(value: Any, to: Type) -> NoReturn:
    raise EvaluationError(f"type conversion error from '{type_of(value).name}' to '{to.name}'")


def _to_int(value: Any) -> int:
    if type(value) is float:
        if not -(2.0**63) < value < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(value)
    if type(value) is Duration:
        return value.nanoseconds
    if type(value) is Timestamp:
        return value.nanoseconds // SECOND
    if type(value) is str:
        if not re.fullmatch(r"[+-]?[0-9]+", value) or not INT_MIN <= _digits(value) <= INT_MAX:
            _conversion_error(value, INT)
        return _digits(value)
    return _int(int(value))


def _digits(text: str) -> int:
    """Return the number of a text of digits, or one beyond all numbers for a text that is too long for any."""
    return int(text) if len(text) < 100 else 10**100 if int(text.strip("+-0")[:1] or 0) else 0


def _to_uint(value: Any) -> Uint:
    if type(value) is float:
        if not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(value))
    if type(value) is str:
        if not re.fullmatch(r"[0-9]+", value) or _digits(value) > UINT_MAX:
            _conversion_error(value, UINT)
        return Uint(_digits(value))
    return _uint(int(value))


_DOUBLE = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII
)
_HEX_DOUBLE = re.compile(r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+", re.IGNORECASE | re.ASCII)


def _to_double(value: Any) -> float:
    if type(value) is not str:
        return float(value)
    if _DOUBLE.fullmatch(value):
        result = float(value)
        if math.isfinite(result) or not any(map(str.isdigit, value)):
            return result
    elif _HEX_DOUBLE.fullmatch(value):
        try:
            return float.fromhex(value)
        except OverflowError:
            pass
    _conversion_error(value, DOUBLE)


def _to_bool(value: Any) -> bool:
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    _conversion_error(value, BOOL)


def _to_bytes(value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if type(value) is str else bytes(value)


def to_timestamp(value: Any) -> Timestamp:
    """Return the moment of seconds since 1970 or of a text. Raises EvaluationError."""
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        if not MIN_SECONDS <= value <= MAX_SECONDS:
            raise EvaluationError("timestamp overflow")
        return Timestamp(value * SECOND)
    if type(value) is not str:
        _conversion_error(value, TIMESTAMP)
    try:
        return parse_timestamp(value)
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None
    except ValueError:
        _conversion_error(value, TIMESTAMP)


def to_duration(value: Any) -> Duration:
    """Return the duration of a text. Raises EvaluationError."""
    if type(value) is Duration:
        return value
    if type(value) is str:
        try:
            return parse_duration(value)
        except ValueError:
            pass
    _conversion_error(value, DURATION)


def to_string(value: Any) -> str:
    """Return a value as a text. Raises EvaluationError for bytes that are none."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return format_double(value)
    if kind is Timestamp:
        return format_timestamp(value)
    if kind is Duration:
        return f"{plain_double(seconds_of(value))}s"
    if kind is bytes:
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    return str(value)


def _to_type(value: Any) -> Type:
    return type_of(value)


def _same(value: Any) -> Any:
    return value


def _of_strings(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def apply(text: Any, part: Any) -> bool:
        if type(text) is not str or type(part) is not str:
            no_overload()
        return test(text, part)

    return apply


def _contains(text: str, part: str) -> bool:
    return part in text


def _matches(text: Any, pattern: Any) -> bool:
    if type(text) is not str:
        no_overload("" if isinstance(text, _RECEIVERS) else "matches")
    if type(pattern) is not str:
        no_overload()
    try:
        return compile_regex(pattern).matches(text)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _traversal(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil(size_of(arguments[0]) * STRING_TRAVERSAL)


def _smaller(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil(min(size_of(arguments[0]), size_of(arguments[1])) * STRING_TRAVERSAL)


def _both(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil((size_of(arguments[0]) + size_of(arguments[1])) * STRING_TRAVERSAL)


def _product(arguments: tuple[Any, ...], _: Any) -> int:
    first, second = (math.ceil(size_of(one) * STRING_TRAVERSAL) for one in arguments)
    return first * second


def regex_cost(arguments: tuple[Any, ...], _: Any) -> int:
    """Return the cost of matching the first argument with the second, a regular expression."""
    text = math.ceil((1.0 + size_of(arguments[0])) * STRING_TRAVERSAL)
    return text * math.ceil(size_of(arguments[1]) * REGEX_LENGTH)


_CHEAP_ITEMS, _ITEMS_PER_COST = 1000, 100  # of lists that are added


def _list_sum(arguments: tuple[Any, ...], result: Any) -> int:
    """Return the cost of a sum of lists: 1, and more for long ones, which are copied here and views in Go."""
    if type(result) is not list or type(arguments[0]) is GrowingList:
        return 1
    return 1 + max(len(result) - _CHEAP_ITEMS, 0) // _ITEMS_PER_COST


def _container_size(arguments: tuple[Any, ...], _: Any) -> int:
    return size_of(arguments[1])


def _equality_cost(arguments: tuple[Any, ...], result: Any) -> int:
    return 1 if isinstance(arguments[0], Opaque) else _smaller(arguments, result)


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


def _conversion(
    function: str, to: Type, convert: Callable[[Any], Any], *sources: tuple[str, Type], cost: str = ""
) -> Function:
    overloads = [Overload(f"{sources[0][0]}", (to,), to, _same)]
    overloads += [
        Overload(name, (source,), to, convert, cost=_traversal if name == cost else None)
        for name, source in sources[1:]
    ]
    return Function(function, tuple(overloads))


def _operators() -> tuple[Function, ...]:
    return (
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


def _conversions() -> tuple[Function, ...]:
    return (
        Function("type", (Overload("type", (_A,), TypeType(_A), _to_type),), implementation=_to_type),
        _conversion("bool", BOOL, _to_bool, ("bool_to_bool", BOOL), ("string_to_bool", STRING)),
        _conversion(
            "bytes", BYTES, _to_bytes, ("bytes_to_bytes", BYTES), ("string_to_bytes", STRING), cost="string_to_bytes"
        ),
        _conversion(
            "double",
            DOUBLE,
            _to_double,
            ("double_to_double", DOUBLE),
            ("int64_to_double", INT),
            ("string_to_double", STRING),
            ("uint64_to_double", UINT),
        ),
        _conversion(
            "duration",
            DURATION,
            to_duration,
            ("durationto_duration", DURATION),
            ("int64to_duration", INT),
            ("stringto_duration", STRING),
        ),
        Function("dyn", (Overload("to_dyn", (_A,), DYN, _same),), implementation=_same),
        _conversion(
            "int",
            INT,
            _to_int,
            ("int64_to_int64", INT),
            ("double_to_int64", DOUBLE),
            ("duration_to_int64", DURATION),
            ("string_to_int64", STRING),
            ("timestamp_to_int64", TIMESTAMP),
            ("uint64_to_int64", UINT),
        ),
        _conversion(
            "string",
            STRING,
            to_string,
            ("string_to_string", STRING),
            ("bool_to_string", BOOL),
            ("bytes_to_string", BYTES),
            ("double_to_string", DOUBLE),
            ("duration_to_string", DURATION),
            ("int64_to_string", INT),
            ("timestamp_to_string", TIMESTAMP),
            ("uint64_to_string", UINT),
            cost="bytes_to_string",
        ),
        _conversion(
            "timestamp",
            TIMESTAMP,
            to_timestamp,
            ("timestampto_timestamp", TIMESTAMP),
            ("int64to_timestamp", INT),
            ("stringto_timestamp", STRING),
        ),
        _conversion(
            "uint",
            UINT,
            _to_uint,
            ("uint64_to_uint64", UINT),
            ("double_to_uint64", DOUBLE),
            ("int64_to_uint64", INT),
            ("string_to_uint64", STRING),
        ),
    )


def _sizes() -> Function:
    overloads = []
    for name, of in (("bytes", BYTES), ("list", _LIST), ("map", _MAP), ("string", STRING)):
        overloads.append(Overload(f"size_{name}", (of,), INT, _size))
        overloads.append(Overload(f"{name}_size", (of,), INT, _size, receiver=True))
    return Function("size", tuple(overloads), implementation=_size)


def _string_test(name: str, overload_id: str, test: Callable[[str, str], bool], cost: Callable[..., int]) -> Function:
    overload = Overload(overload_id, (STRING, STRING), BOOL, _of_strings(test), receiver=True, cost=cost)
    return Function(name, (overload,), guarded=False)


def _texts() -> tuple[Function, ...]:
    return (
        _sizes(),
        _string_test("contains", "contains_string", _contains, _product),
        _string_test("endsWith", "ends_with_string", str.endswith, _traversal),
        _string_test("startsWith", "starts_with_string", str.startswith, _traversal),
        Function(
            "matches",
            (
                Overload("matches", (STRING, STRING), BOOL, _matches),
                Overload("matches_string", (STRING, STRING), BOOL, _matches, receiver=True, cost=regex_cost),
            ),
            implementation=_matches,
        ),
    )


_DATE_PARTS: tuple[tuple[str, str, Callable[[Date], int]], ...] = (
    ("getFullYear", "timestamp_to_year", lambda date: date.year),
    ("getMonth", "timestamp_to_month", lambda date: date.month - 1),
    ("getDayOfYear", "timestamp_to_day_of_year", lambda date: date.yearday),
    ("getDayOfMonth", "timestamp_to_day_of_month", lambda date: date.day - 1),
    ("getDate", "timestamp_to_day_of_month_1_based", lambda date: date.day),
    ("getDayOfWeek", "timestamp_to_day_of_week", lambda date: date.weekday),
    ("getHours", "timestamp_to_hours_tz", lambda date: date.hour),
    ("getMinutes", "timestamp_to_minutes_tz", lambda date: date.minute),
    ("getSeconds", "timestamp_to_seconds_tz", lambda date: date.second),
    ("getMilliseconds", "timestamp_to_milliseconds_tz", lambda date: date.nanosecond // 1_000_000),
)
_DURATION_UNITS = {
    "getHours": ("duration_to_hours", 3600 * SECOND),
    "getMinutes": ("duration_to_minutes", 60 * SECOND),
    "getSeconds": ("duration_to_seconds", SECOND),
    "getMilliseconds": ("duration_to_milliseconds", 1_000_000),
}


def _date_part(name: str, overload_id: str, part: Callable[[Date], int]) -> Function:
    def of(moment: Timestamp, zone: str = "UTC") -> int:
        return part(in_zone(moment, zone))

    overloads = [
        Overload(overload_id, (TIMESTAMP,), INT, of, receiver=True),
        Overload(f"{overload_id}_with_tz", (TIMESTAMP, STRING), INT, of, receiver=True),
    ]
    if name in _DURATION_UNITS:
        duration_id, unit = _DURATION_UNITS[name]

        def whole(span: Duration) -> int:
            count = abs(span.nanoseconds) // unit
            return -count if span.nanoseconds < 0 else count

        overloads.append(Overload(duration_id, (DURATION,), INT, whole, receiver=True))
    return Function(name, tuple(overloads))


STANDARD = Library(
    "standard",
    (*_operators(), *_conversions(), *_texts(), *(_date_part(*row) for row in _DATE_PARTS)),
    (BOOL, BYTES, DOUBLE, DURATION, INT, _LIST, _MAP, NULL, STRING, TIMESTAMP, TYPE, UINT),
)
