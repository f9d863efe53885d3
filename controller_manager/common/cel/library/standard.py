"""The standard functions and operators of CEL."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from controller_manager.common.base.regex import compile_regex
from controller_manager.common.cel.library import (
    RECEIVERS,
    REGEX_LENGTH,
    STRING_TRAVERSAL,
    Function,
    Library,
    Overload,
    no_such_overload,
)
from controller_manager.common.cel.library.conversions import CONVERSIONS
from controller_manager.common.cel.library.costs import scan
from controller_manager.common.cel.library.operators import OPERATORS
from controller_manager.common.cel.times import (
    SECOND,
    Date,
    in_zone,
)
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    ListType,
    MapType,
    TypeParameter,
)
from controller_manager.common.cel.values import (
    Duration,
    EvaluationError,
    Timestamp,
    size_of,
)

_A, _B = TypeParameter("A"), TypeParameter("B")


_LIST, _MAP = ListType(_A), MapType(_A, _B)


def _size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_such_overload("" if isinstance(value, RECEIVERS) else "size")


def _of_strings(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def apply(text: Any, part: Any) -> bool:
        if type(text) is not str or type(part) is not str:
            raise no_such_overload()
        return test(text, part)

    return apply


def _contains(text: str, part: str) -> bool:
    return part in text


def _matches(text: Any, pattern: Any) -> bool:
    if type(text) is not str:
        raise no_such_overload("" if isinstance(text, RECEIVERS) else "matches")
    if type(pattern) is not str:
        raise no_such_overload()
    try:
        return compile_regex(pattern).matches(text)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _product(arguments: tuple[Any, ...], _: Any) -> int:
    first, second = (math.ceil(size_of(one) * STRING_TRAVERSAL) for one in arguments)
    return first * second


def regex_cost(arguments: tuple[Any, ...], _: Any) -> int:
    """Return the cost of matching the first argument with the regular expression in the second."""
    text = math.ceil((1.0 + size_of(arguments[0])) * STRING_TRAVERSAL)
    return text * math.ceil(size_of(arguments[1]) * REGEX_LENGTH)


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
        _string_test("endsWith", "ends_with_string", str.endswith, scan()),
        _string_test("startsWith", "starts_with_string", str.startswith, scan()),
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
    (*OPERATORS, *CONVERSIONS, *_texts(), *(_date_part(*row) for row in _DATE_PARTS)),
    (BOOL, BYTES, DOUBLE, DURATION, INT, _LIST, _MAP, NULL, STRING, TIMESTAMP, TYPE, UINT),
)
