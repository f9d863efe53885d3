"""Well-known protobuf messages, which expressions may create by name; they are values of ordinary types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controller_manager.common.cel.times import MAX_SECONDS, MIN_SECONDS, SECOND
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Field,
    ObjectType,
    Type,
    WrapperType,
)
from controller_manager.common.cel.values import INT_MAX, INT_MIN, Duration, EvaluationError, Timestamp, Uint


class Message(NamedTuple):
    """The value type of a message, its fields, and the function that creates a value from given fields."""

    type: Type
    fields: Mapping[str, Field]
    make: Callable[[Mapping[str, Any]], Any]


def _message(name: str, made: Type, fields: Mapping[str, Type], make: Callable[[Mapping[str, Any]], Any]) -> Message:
    return Message(made, ObjectType(name, fields).fields, make)


def _wrapper(name: str, of: Type, default: Any, bits: int = 0) -> Message:
    def make(fields: Mapping[str, Any]) -> Any:
        value = fields.get("value", default)
        if bits and not (0 if of is UINT else -(2 ** (bits - 1))) <= value < 2 ** (bits if of is UINT else bits - 1):
            raise EvaluationError("unsigned integer overflow" if of is UINT else "integer overflow")
        return value

    return _message(name, WrapperType(of), {"value": of}, make)


def _duration(fields: Mapping[str, Any]) -> Duration:
    nanoseconds = fields.get("seconds", 0) * SECOND + fields.get("nanos", 0)
    return Duration(min(max(nanoseconds, INT_MIN), INT_MAX))


def _timestamp(fields: Mapping[str, Any]) -> Timestamp:
    nanoseconds = fields.get("seconds", 0) * SECOND + fields.get("nanos", 0)
    if not MIN_SECONDS <= nanoseconds // SECOND <= MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanoseconds)


_TIME = {"seconds": INT, "nanos": INT}
MESSAGES: dict[str, Message] = {
    f"google.protobuf.{name}": message
    for name, message in {
        "BoolValue": _wrapper("BoolValue", BOOL, default=False),
        "BytesValue": _wrapper("BytesValue", BYTES, b""),
        "DoubleValue": _wrapper("DoubleValue", DOUBLE, 0.0),
        "FloatValue": _wrapper("FloatValue", DOUBLE, 0.0),
        "Int32Value": _wrapper("Int32Value", INT, 0, bits=32),
        "Int64Value": _wrapper("Int64Value", INT, 0),
        "UInt32Value": _wrapper("UInt32Value", UINT, Uint(0), bits=32),
        "UInt64Value": _wrapper("UInt64Value", UINT, Uint(0)),
        "StringValue": _wrapper("StringValue", STRING, ""),
        "Duration": _message("Duration", DURATION, _TIME, _duration),
        "Timestamp": _message("Timestamp", TIMESTAMP, _TIME, _timestamp),
    }.items()
}
