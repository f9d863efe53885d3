"""Values as Go prints them, for conversions to text and for error messages."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from controller_manager.common.cel.times import format_duration, format_timestamp
from controller_manager.common.cel.types import Kind, Type
from controller_manager.common.cel.values import Duration, Opaque, Optional, Structure, Timestamp, type_of

_EXPONENT_FROM = 6


def format_double(value: float) -> str:
    """Return a double like Go's `%g`: the shortest text that is parsed as the same number."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1 if any(digits) else 0
    minus = "-" if sign else ""
    if power < -4 or power >= _EXPONENT_FROM:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{minus}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return minus + plain_double(abs(value))


def plain_double(value: float) -> str:
    """Return a double without an exponent, with as few digits as needed."""
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown(value: Any) -> str:
    """Return a value for messages."""
    if value is None:
        return "0"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is float:
        return format_double(value)
    if type(value) is bytes:
        return f"[{' '.join(map(str, value))}]"
    if type(value) is Timestamp:
        return _time(value)
    if type(value) is Duration:
        return format_duration(value)
    if type(value) is Optional:
        return f"optional({shown(value.value)})" if value.present else "optional.none()"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    return str(value)


def go_type(value: Any) -> str:
    """Return the Go type name of a value."""
    if isinstance(value, Type):
        return "*types.Type"
    if isinstance(value, Structure):
        return value.go_name
    if isinstance(value, Opaque):
        return f"cel.{value.type.name.rpartition('.')[2].removeprefix('Named')}"
    known = type_of(value)
    if known.kind in _REFERENCES:
        return _REFERENCES[known.kind]
    name = {Kind.NULL: "null", Kind.DURATION: "duration", Kind.TIMESTAMP: "timestamp"}.get(known.kind, known.name)
    return f"types.{name.capitalize()}"


_REFERENCES = {Kind.OPAQUE: "*types.Optional", Kind.LIST: "*types.baseList", Kind.MAP: "*types.baseMap"}


def _time(moment: Timestamp) -> str:
    """Return a time in Go's default format."""
    text = format_timestamp(moment)
    if moment.offset == 0:
        return f"{text[:-1].replace('T', ' ')} +0000 UTC"
    zone = text[-6:].replace(":", "")
    return f"{text[:-6].replace('T', ' ')} {zone} {zone}"
