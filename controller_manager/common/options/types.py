"""Flag types: how a value is parsed, formatted, and merged when the flag is repeated."""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import BeforeValidator

from controller_manager.common.api.quantity import parse as parse_quantity

# Durations in the text format of Go's `time.Duration` ("1h2m3.5s"), as seconds.

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "\N{MICRO SIGN}s": 10**3,
    "\N{GREEK SMALL LETTER MU}s": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([a-z\u00b5\u03bc]+)")
_LARGEST = 2**63 - 1


def parse_duration(text: str) -> float:
    """Return seconds; raises ValueError for text that is not a Go duration or longer than 292 years."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    nanoseconds = 0 if digits == "0" else _nanoseconds(digits)
    if nanoseconds > _LARGEST:
        raise ValueError("a duration is at most 292 years")
    seconds = nanoseconds / 10**9
    return -seconds if text.startswith("-") and seconds else seconds


def format_duration(seconds: float) -> str:
    """Return the canonical text: "1h0m0s", "1.5s", "250ms", "0s"."""
    total = round(Fraction(seconds) * 10**9)
    sign, total = ("-", -total) if total < 0 else ("", total)
    if total == 0:
        return "0s"
    if total < 10**9:
        unit = next(u for u in ("ms", "\N{MICRO SIGN}s", "ns") if total >= _UNITS[u])
        return f"{sign}{_decimal(total, _UNITS[unit])}{unit}"
    minutes, rest = divmod(total, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    lead = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{lead}{_decimal(rest, 10**9)}s"


def _nanoseconds(text: str) -> int:
    total, position = Fraction(0), 0
    while position < len(text) or not text:
        part = _PART.match(text, position)
        if part is None:
            raise ValueError("a duration is a number with a unit, like 300ms, 1.5h or 2h45m")
        number, unit = part.groups()
        if unit not in _UNITS:
            raise ValueError(f"unknown unit {unit!r}; use ns, us, ms, s, m or h")
        total += Fraction(number) * _UNITS[unit]
        position = part.end()
    return int(total)


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")


_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_WHOLE = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


class FlagType(msgspec.Struct, frozen=True):
    """A flag type. `join(before, more)` merges repeated flags (None: the last one wins). `bare` is the value of a flag
    without text (None: the flag needs a value, which may be the next argument).
    """

    label: str
    parse: Callable[[str], Any]
    format: Callable[[Any], str]
    join: Callable[[Any, Any], Any] | None = None
    bare: str | None = None


def parse_bool(text: str) -> bool:
    """Return a boolean in Go's syntax; raises ValueError."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("a truth value is true or false")


def _format_bool(value: bool) -> str:
    return "true" if value else "false"


def _parse_int(text: str) -> int:
    return _whole(text, 64)


def _parse_int32(text: str) -> int:
    return _whole(text, 32)


def _whole(text: str, bits: int) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("not a whole number")
    value = int(text, 0)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(f"the number does not fit in {bits} bits")
    return value


def _parse_float(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError("not a number")
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    """Parse comma-separated values; a value with a comma or a quote is in double quotes (RFC 4180)."""
    if not text:
        return ()
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"not a comma-separated list: {error}") from None
    if len(rows) != 1:
        raise ValueError("a list stands on one line")
    return tuple(rows[0])


def _format_list(values: tuple[str, ...]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="").writerow(values)
    return out.getvalue()


def _parse_map(text: str) -> dict[str, str]:
    """Parse `key=value` pairs; text with a single `=` is one pair, so that key and value may contain commas."""
    pairs = (text.strip('"'),) if text.count("=") == 1 else _parse_list(text)
    split = [pair.partition("=") for pair in pairs]
    wrong = [key for key, equals, _ in split if not equals]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not of the form key=value")
    return {key: value for key, _, value in split}


def _parse_pair(text: str) -> dict[str, str]:
    """Parse one `key=value`; the value may contain any characters."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not of the form key=value")
    return {key.strip(): value.strip()}


def _format_map(values: Mapping[str, str]) -> str:
    return _format_list(tuple(f"{key}={value}" for key, value in sorted(values.items())))


def _parse_multimap(text: str) -> dict[str, tuple[str, ...]]:
    """Parse `key:value` pairs with repeatable keys; a value without a key has the empty key."""
    found: dict[str, tuple[str, ...]] = {}
    for pair in filter(None, text.split(",")):
        key, colon, value = pair.partition(":")
        name = key.strip() if colon else ""
        found[name] = (*found.get(name, ()), (value if colon else key).strip())
    return found


def _format_multimap(values: Mapping[str, tuple[str, ...]]) -> str:
    return ",".join(f"{key}:{value}" if key else value for key, many in sorted(values.items()) for value in many)


def _join_multimaps(
    before: Mapping[str, tuple[str, ...]], more: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    return {key: (*before.get(key, ()), *more.get(key, ())) for key in {**before, **more}}


def _parse_quantity(text: str) -> int:
    """Parse a quantity such as 10Mi or 5k as a whole number, rounded up."""
    try:
        number = parse_quantity(text).number
    except ValueError:
        raise ValueError("a quantity is a number with an optional suffix, like 512, 64Ki or 10M") from None
    if number < 0:
        raise ValueError("a quantity is not negative")
    return math.ceil(number)


def _or_text(parse: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


_BOOL = FlagType("bool", parse_bool, _format_bool, bare="true")
_INT = FlagType("int", _parse_int, str)
_FLOAT = FlagType("float", _parse_float, lambda value: f"{value:g}" if float(f"{value:g}") == value else repr(value))
_STRING = FlagType("string", str, str)
_STRINGS = FlagType("strings", _parse_list, _format_list, lambda before, more: before + more)
_MAP = FlagType("stringToString", _parse_map, _format_map, lambda before, more: {**before, **more})
_PAIRS = FlagType("mapStringString", _parse_pair, _format_map, lambda before, more: {**before, **more})
_MULTIMAP = FlagType("colonSeparatedMultimapStringString", _parse_multimap, _format_multimap, _join_multimaps)
_PLAIN: Mapping[Any, FlagType] = {bool: _BOOL, int: _INT, float: _FLOAT, str: _STRING}

Int32 = Annotated[int, FlagType("int32", _parse_int32, str)]
Duration = Annotated[float, FlagType("duration", parse_duration, format_duration), _or_text(parse_duration)]
Quantity = Annotated[int, FlagType("quantity", _parse_quantity, str), _or_text(_parse_quantity)]
StringList = Annotated[tuple[str, ...], _STRINGS]
StringMap = Annotated[Mapping[str, str], _MAP]
StringPairs = Annotated[Mapping[str, str], _PAIRS]
StringMultimap = Annotated[Mapping[str, tuple[str, ...]], _MULTIMAP]


def flag_type(annotation: Any, metadata: list[Any]) -> FlagType:
    """Return the flag type of a field; `T | None` is like `T`. Raises TypeError for an unsupported type."""
    for one in metadata:
        if isinstance(one, FlagType):
            return one
    if get_origin(annotation) in (Union, UnionType):
        inner = [one for one in get_args(annotation) if one is not type(None)]
        return flag_type(inner[0], [])
    if get_origin(annotation) is Annotated:
        plain, *more = get_args(annotation)
        return flag_type(plain, more)
    if annotation not in _PLAIN:
        raise TypeError(f"no flag can have the type {annotation!r}")
    return _PLAIN[annotation]
