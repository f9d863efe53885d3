"""Durations in the text form of Go's `time.Duration` ("1h2m3.5s"), as seconds."""

import re
from fractions import Fraction

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
    """Seconds; raises ValueError for text that is not a Go duration or longer than 292 years."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    nanoseconds = 0 if digits == "0" else _nanoseconds(digits)
    if nanoseconds > _LARGEST:
        raise ValueError("a duration is at most 292 years")
    seconds = nanoseconds / 10**9
    return -seconds if text.startswith("-") and seconds else seconds


def format_duration(seconds: float) -> str:
    """The canonical text: "1h0m0s", "1.5s", "250ms", "0s"."""
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
