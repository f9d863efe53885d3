"""Schedules of cron jobs: five fields or a macro, in a time zone, and the times that they name; pure.

    field           numbers     words           each field is a list, joined by commas, of
    minute          0-59                        * or ?              all
    hour            0-23                        5                   one
    day of month    1-31                        2-9                 a range
    month           1-12        jan to dec      */15 or 2-9/3       every n-th of these
    day of week     0-6         sun to sat      5/10                every n-th from there to the last

A day matches if both day fields match, or either one if neither is a plain `*`.

    macro                       stands for
    @hourly                     0 * * * *
    @daily, @midnight           0 0 * * *
    @weekly                     0 0 * * 0
    @monthly                    0 0 1 * *
    @yearly, @annually          0 0 1 1 *
    @every 1h30m                not the clock: so long after the last time, in whole seconds

Where a clock is put forward, times that it jumps over are not; where it is put back, an hour that it shows again comes
again. Years ahead that are searched are bounded, so that a day there never is, such as February 30, is found out.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import NamedTuple

import msgspec

_YEARS_AHEAD = 5
_MINUTE, _HOUR = 60, 3600
_MACROS: Mapping[str, str] = MappingProxyType(
    {
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
    }
)
_EVERY = "@every "
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_LONGEST_SHOWN = 100  # characters of a schedule that a message shows
_LONGEST_DURATION = 2**63 - 1  # nanoseconds
_DURATION = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Mapping[str, int] = MappingProxyType(
    {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
)


class ScheduleError(ValueError):
    """A text is not a valid schedule; the message says why."""


class _Bounds(NamedTuple):
    low: int
    high: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Bounds(0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


class Field(msgspec.Struct, frozen=True):
    """The values of a field. `any` is true for a plain `*`."""

    values: frozenset[int]
    any: bool = False


class Schedule(msgspec.Struct, frozen=True):
    """The minutes of a schedule in a time zone."""

    minutes: Field
    hours: Field
    days: Field
    months: Field
    weekdays: Field
    zone: tzinfo = UTC

    def next(self, after: float) -> int | None:
        """Return the first time after `after` in seconds since the Unix epoch, or None if there is none within
        five years.
        """
        walk = _Walk(math.floor(after) + 1, self.zone)
        last = walk.clock.year + _YEARS_AHEAD
        while walk.clock.year <= last:
            if self._to_month(walk) and self._to_day(walk) and self._to_hour(walk) and self._to_minute(walk):
                return walk.at
        return None

    def last(self, after: float, until: float) -> int | None:
        """Return the last time after `after` and not after `until`, or None."""
        found = self.next(after)
        if found is None or found > until:
            return None
        end = math.floor(until)
        while end > found:
            middle = (found + end) // 2
            later = self.next(middle)
            if later is not None and later <= until:
                found = later
            else:
                end = middle
        return found

    # Each moves on to the first matching value of its field, and returns whether the larger fields still match.

    def _to_month(self, walk: "_Walk") -> bool:
        while walk.clock.month not in self.months.values:
            if not walk.moved:
                walk.set(walk.clock.year, walk.clock.month, 1)
            walk.add_month()
            if walk.clock.month == 1:
                return False
        return True

    def _to_day(self, walk: "_Walk") -> bool:
        while not self._is_day(walk.clock):
            if not walk.moved:
                walk.set(walk.clock.year, walk.clock.month, walk.clock.day)
            walk.add_day()
            if walk.clock.day == 1:
                return False
        return True

    def _to_hour(self, walk: "_Walk") -> bool:
        while walk.clock.hour not in self.hours.values:
            if not walk.moved:
                walk.set(walk.clock.year, walk.clock.month, walk.clock.day, walk.clock.hour)
            walk.go(walk.at + _HOUR)
            if walk.clock.hour == 0:
                return False
        return True

    def _to_minute(self, walk: "_Walk") -> bool:
        while walk.clock.minute not in self.minutes.values or walk.clock.second:
            shown = walk.clock.minute
            walk.to_minute(min((one for one in self.minutes.values if one > shown), default=60))
            if walk.clock.minute == 0:
                return False
        return True

    def _is_day(self, clock: datetime) -> bool:
        day, weekday = clock.day in self.days.values, clock.isoweekday() % 7 in self.weekdays.values
        return day and weekday if self.days.any or self.weekdays.any else day or weekday


class Every(msgspec.Struct, frozen=True):
    """A schedule with a fixed interval."""

    seconds: int

    def next(self, after: float) -> int | None:
        """Return the time one interval after `after`, in seconds since the Unix epoch."""
        return math.floor(after) + self.seconds

    def last(self, after: float, until: float) -> int | None:
        """Return the last time of the series after `after` that is not after `until`, or None."""
        times = math.floor((until - math.floor(after)) / self.seconds)
        return math.floor(after) + times * self.seconds if times > 0 else None


AnySchedule = Schedule | Every


@dataclass(slots=True)
class _Walk:
    """A time that is moved towards a match: seconds since the Unix epoch, and the local time.

    Once it has `moved`, the smaller fields are at their minimum.
    """

    at: int
    zone: tzinfo
    clock: datetime = field(init=False)
    moved: bool = False

    def __post_init__(self) -> None:
        self.clock = datetime.fromtimestamp(self.at, self.zone)

    def go(self, at: int) -> None:
        """Move to that time."""
        self.at, self.clock, self.moved = at, datetime.fromtimestamp(at, self.zone), True

    def to_minute(self, minute: int) -> None:
        """Move to the start of that minute of the hour; to the next minute if the offset changes."""
        begin = self.at - self.at % _MINUTE
        wanted = begin + (minute - self.clock.minute) * _MINUTE
        self.go(wanted if _offset(wanted, self.zone) == _offset(self.at, self.zone) else begin + _MINUTE)

    def set(self, year: int, month: int, day: int, hour: int = 0) -> None:
        """Move to that full hour of local time."""
        self.go(_moment(datetime(year, month, day, hour), self.zone))  # noqa: DTZ001 - of the zone, see _moment

    def add_month(self) -> None:
        """Move to the same local time in the next month. A day that it lacks overflows into the month after."""
        shown = self.clock.replace(tzinfo=None, fold=0)
        first = (shown.replace(day=1) + timedelta(days=31)).replace(day=1)
        self.go(_moment(first + timedelta(days=shown.day - 1), self.zone))

    def add_day(self) -> None:
        """Move to the start of the next day; without a midnight, to the nearest full hour."""
        self.go(_moment(self.clock.replace(tzinfo=None, fold=0) + timedelta(days=1), self.zone))
        hour = self.clock.hour
        if hour:
            self.go(self.at + (24 - hour if hour > 12 else -hour) * _HOUR)


def _moment(shown: datetime, zone: tzinfo) -> int:
    """Return the time of a local time in the zone.

    For ambiguous or skipped local times the offset in force at the same reading in UTC decides.
    """
    reading = int(shown.replace(tzinfo=UTC).timestamp())
    return reading - _offset(reading - _offset(reading, zone), zone)


def _offset(at: int, zone: tzinfo) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def parse(text: str, zone: tzinfo) -> AnySchedule:
    """Return the schedule of a text in a time zone; raises ScheduleError."""
    if text.startswith(_EVERY):
        return Every(max(_duration(text.removeprefix(_EVERY)) // 10**9, 1))
    if text.startswith("@"):
        if text not in _MACROS:
            raise ScheduleError(f"unrecognized descriptor: {text[:_LONGEST_SHOWN]}")
        text = _MACROS[text]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {text[:_LONGEST_SHOWN]!r}")
    minutes, hours, days, months, weekdays = map(_field, fields, _FIELDS)
    return Schedule(minutes, hours, days, months, weekdays, zone)


def _field(text: str, bounds: _Bounds) -> Field:
    values: set[int] = set()
    plain = False
    for part in filter(None, text.split(",")):
        some, is_plain = _range(part, bounds)
        values.update(some)
        plain = plain or is_plain
    return Field(frozenset(values), plain)


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    """Return the values of one part of a field, and whether it is a plain `*`."""
    span, *steps = text.split("/")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text[:_LONGEST_SHOWN]}")
    first, *others = span.split("-")
    step = _number(steps[0]) if steps else 1
    if first in ("*", "?"):
        low, high = bounds.low, bounds.high
    elif len(others) > 1:
        raise ScheduleError(f"too many hyphens: {text[:_LONGEST_SHOWN]}")
    else:
        low = _named(first, bounds)
        high = _named(others[0], bounds) if others else bounds.high if steps else low
    if low < bounds.low:
        raise ScheduleError(f"{low} is below the minimum of {bounds.low}: {text[:_LONGEST_SHOWN]}")
    if high > bounds.high:
        raise ScheduleError(f"{high} is above the maximum of {bounds.high}: {text[:_LONGEST_SHOWN]}")
    if low > high:
        raise ScheduleError(f"a range begins with {low} and ends with {high}: {text[:_LONGEST_SHOWN]}")
    if step == 0:
        raise ScheduleError(f"a step must be a positive number: {text[:_LONGEST_SHOWN]}")
    return range(low, high + 1, step), first in ("*", "?") and step == 1


def _named(text: str, bounds: _Bounds) -> int:
    word = text.lower()
    return bounds.words.index(word) + bounds.low if word in bounds.words else _number(text)


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ScheduleError(f"{text[:_LONGEST_SHOWN]!r} is not a number")
    if int(text) < 0:
        raise ScheduleError(f"a number must not be negative: {text[:_LONGEST_SHOWN]}")
    return int(text)


def _duration(text: str) -> int:
    """Return the nanoseconds of a Go duration such as 1h30m; raises ScheduleError."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    parts = _DURATION.findall(unsigned) if len(unsigned) <= _LONGEST_SHOWN else []  # many digits take long
    if unsigned == "0":
        return 0
    if not parts or "".join(parts) != unsigned:
        raise ScheduleError(f"{text[:_LONGEST_SHOWN]!r} is not a duration such as 1h30m")
    total = sum(_nanoseconds(part) for part in parts)
    if total > _LONGEST_DURATION:
        raise ScheduleError(f"the duration {text[:_LONGEST_SHOWN]!r} is too long")
    return -total if text.startswith("-") else total


def _nanoseconds(part: str) -> int:
    unit = part.lstrip("0123456789.")
    whole, _, fraction = part.removesuffix(unit).partition(".")
    return int(whole or "0") * _UNITS[unit] + int(f"0{fraction}") * _UNITS[unit] // int(f"1{'0' * len(fraction)}")
