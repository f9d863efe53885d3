"""Type conversions, with Go's formats of numbers, times and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from controller_manager.common.cel.library import (
    Function,
    Overload,
)
from controller_manager.common.cel.library.costs import scan
from controller_manager.common.cel.library.operators import checked_int, checked_uint
from controller_manager.common.cel.shown import format_double, plain_double
from controller_manager.common.cel.times import (
    MAX_SECONDS,
    MIN_SECONDS,
    SECOND,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    seconds_of,
)
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    TypeParameter,
    TypeType,
)
from controller_manager.common.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    EvaluationError,
    Structure,
    Timestamp,
    Uint,
    type_of,
)

_A = TypeParameter("A")


def _conversion_error(value: Any, to: Type) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_of(value).name}' to '{to.name}'")


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
            raise _conversion_error(value, INT)
        return _digits(value)
    return checked_int(int(value))


def _digits(text: str) -> int:
    """Return the number of a text of digits, or one above all limits if the text is too long."""
    return int(text) if len(text) < 100 else 10**100 if int(text.strip("+-0")[:1] or 0) else 0


def _to_uint(value: Any) -> Uint:
    if type(value) is float:
        if not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(value))
    if type(value) is str:
        if not re.fullmatch(r"[0-9]+", value) or _digits(value) > UINT_MAX:
            raise _conversion_error(value, UINT)
        return Uint(_digits(value))
    return checked_uint(int(value))


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
    raise _conversion_error(value, DOUBLE)


def _to_bool(value: Any) -> bool:
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise _conversion_error(value, BOOL)


def _to_bytes(value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if type(value) is str else bytes(value)


def to_timestamp(value: Any) -> Timestamp:
    """Convert seconds since 1970 or a text to a timestamp. Raises EvaluationError."""
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        if not MIN_SECONDS <= value <= MAX_SECONDS:
            raise EvaluationError("timestamp overflow")
        return Timestamp(value * SECOND)
    if type(value) is not str:
        raise _conversion_error(value, TIMESTAMP)
    try:
        return parse_timestamp(value)
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None
    except ValueError:
        raise _conversion_error(value, TIMESTAMP) from None


def to_duration(value: Any) -> Duration:
    """Convert a text to a duration. Raises EvaluationError."""
    if type(value) is Duration:
        return value
    if type(value) is str:
        try:
            return parse_duration(value)
        except ValueError:
            pass
    raise _conversion_error(value, DURATION)


def to_string(value: Any) -> str:
    """Convert a value to text. Raises EvaluationError for bytes that are not UTF-8."""
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
    return TYPE if isinstance(value, Structure) else type_of(value)


def _same(value: Any) -> Any:
    return value


def _conversion(
    function: str, to: Type, convert: Callable[[Any], Any], *sources: tuple[str, Type], cost: str = ""
) -> Function:
    overloads = [Overload(f"{sources[0][0]}", (to,), to, _same)]
    overloads += [
        Overload(name, (source,), to, convert, cost=scan() if name == cost else None) for name, source in sources[1:]
    ]
    return Function(function, tuple(overloads))


CONVERSIONS: tuple[Function, ...] = (
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
