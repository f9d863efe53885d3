"""Timestamps and durations as Go reads and writes them (RFC 3339 and `1h2m3.5s`), and calendars in time zones."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from controller_manager.common.cel.values import INT_MAX, INT_MIN, Duration, EvaluationError, Timestamp

SECOND = 1_000_000_000
MIN_SECONDS, MAX_SECONDS = -62135596800, 253402300799  # years 1 to 9999, in seconds since 1970
_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND}
_UNITS["h"] = 3600 * SECOND

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII
)
_DURATION_PART = re.compile(r"(\d*)(?:\.(\d*))?([^\d.]+)", re.ASCII)


def parse_timestamp(text: str) -> Timestamp:
    """Parse a timestamp in RFC 3339. Raises ValueError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if year == 0:
        datetime(4, month, day, hour, minute, second)  # noqa: DTZ001  a leap year too, only judged
        raise OverflowError(text)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    offset = 0
    if found[9]:
        if int(found[10]) > 24 or int(found[11]) > 60:
            raise ValueError(text)
        offset = (int(found[10]) * 3600 + int(found[11]) * 60) * (-1 if found[9] == "-" else 1)
    nanoseconds = int((found[7] or "")[:9].ljust(9, "0"))
    if not MIN_SECONDS <= seconds - offset <= MAX_SECONDS:
        raise OverflowError(text)
    return Timestamp((seconds - offset) * SECOND + nanoseconds, offset)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_timestamp(moment: Timestamp) -> str:
    """Return a timestamp in RFC 3339 in its original zone, with as many fractional digits as needed."""
    date = calendar(moment, moment.offset)
    fraction = f".{date.nanosecond:09d}".rstrip("0").rstrip(".")
    if moment.offset == 0:
        zone = "Z"
    else:
        minutes = abs(moment.offset) // 60
        zone = f"{'-' if moment.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    clock = f"{date.hour:02d}:{date.minute:02d}:{date.second:02d}"
    return f"{date.year:04d}-{date.month:02d}-{date.day:02d}T{clock}{fraction}{zone}"


def parse_duration(text: str) -> Duration:
    """Parse a duration in Go's format. Raises ValueError."""
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    total, end = 0, 0
    for found in _DURATION_PART.finditer(rest):
        whole, fraction, unit = found.groups()
        if found.start() != end or unit not in _UNITS or not (whole or fraction):
            raise ValueError(text)
        end = found.end()
        total += int(whole or 0) * _UNITS[unit]
        if fraction:
            digits = fraction[:18]
            total += int(int(digits) * (_UNITS[unit] / 10 ** len(digits)))
        if total > INT_MAX + 1:
            raise ValueError(text)
    negative = text.startswith("-")
    if end == 0 or end != len(rest) or (total > INT_MAX and not negative):
        raise ValueError(text)
    return Duration(-total if negative else total)


def format_duration(span: Duration) -> str:
    """Return a duration in Go's format: `1h2m3.5s`, with smaller units below a second."""
    sign, rest = ("-" if span.nanoseconds < 0 else ""), abs(span.nanoseconds)
    if rest == 0:
        return "0s"
    if rest < SECOND:
        unit, factor = next((unit, _UNITS[unit]) for unit in ("ms", "µs", "ns") if rest >= _UNITS[unit])
        return f"{sign}{_decimal(rest, factor)}{unit}"
    minutes, seconds = divmod(rest, 60 * SECOND)
    text = f"{_decimal(seconds, SECOND)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return sign + text


def _decimal(value: int, factor: int) -> str:
    whole, part = divmod(value, factor)
    digits = str(part).rjust(len(str(factor)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def seconds_of(span: Duration) -> float:
    """Return a duration in seconds."""
    whole, part = divmod(abs(span.nanoseconds), SECOND)
    seconds = whole + part / 1e9
    return -seconds if span.nanoseconds < 0 else seconds


def shifted(moment: Timestamp, nanoseconds: int) -> Timestamp:
    """Return a timestamp plus nanoseconds. Raises EvaluationError outside of the years of timestamps."""
    result = moment.nanoseconds + nanoseconds
    if not MIN_SECONDS <= result // SECOND <= MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(result, moment.offset)


def between(later: Timestamp, earlier: Timestamp) -> Duration:
    """Return the difference of two timestamps. Raises EvaluationError beyond 292 years."""
    result = later.nanoseconds - earlier.nanoseconds
    if not INT_MIN <= result <= INT_MAX:
        raise EvaluationError("integer overflow")
    return Duration(result)


class Date(NamedTuple):
    """A calendar date and time: weekday 0 is Sunday, day 0 of the year is January 1st."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanosecond: int
    weekday: int
    yearday: int


def calendar(moment: Timestamp, offset: int) -> Date:
    """Return the date of a timestamp at an offset in seconds east of UTC (proleptic Gregorian, any year)."""
    seconds, nanosecond = divmod(moment.nanoseconds, SECOND)
    days, rest = divmod(seconds + offset, 86400)
    year, month, day = _civil(days)
    yearday = days - _days_before(year)
    return Date(year, month, day, rest // 3600, rest // 60 % 60, rest % 60, nanosecond, (days + 4) % 7, yearday)


def _civil(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719468, 146097)  # eras of 400 years that begin in March
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return era * 400 + year + (month <= 2), month, day


def _days_before(year: int) -> int:
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 - 719162


def in_zone(moment: Timestamp, zone: str) -> Date:
    """Return the date of a timestamp in a zone: a name, or `+hh:mm`. Raises EvaluationError."""
    if ":" not in zone:
        return calendar(moment, _offset(moment, zone))
    hours, _, minutes = zone.partition(":")
    hour, minute = _integer(hours), _integer(minutes)
    return calendar(moment, (hour * 60 - minute if zone.startswith("-") else hour * 60 + minute) * 60)


def _offset(moment: Timestamp, zone: str) -> int:
    if zone in ("", "UTC"):
        return 0
    seconds = min(max(moment.nanoseconds // SECOND, MIN_SECONDS + 86400), MAX_SECONDS - 86400)
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(_zone(zone)).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


@lru_cache(64)
def _zone(name: str) -> ZoneInfo:
    if ".." in name or name.startswith(("/", "\\")) or "\\" in name:
        raise EvaluationError("time: invalid location name")
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise EvaluationError(f"unknown time zone {name}") from None


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise EvaluationError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    value = int(text)
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError(f'strconv.Atoi: parsing "{text}": value out of range')
    return value
