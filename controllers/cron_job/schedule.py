"""Schedules of cron jobs: five fields or a macro, in a time zone, and the times that they name; pure.

    field           numbers     words           each field is a list, joined by commas, of
    minute          0-59                        * or ?              all
    hour            0-23                        5                   one
    day of month    1-31                        2-9                 a range
    month           1-12        jan to dec      */15 or 2-9/3       every so many of these
    day of week     0-6         sun to sat      5/10                every so many from there to the last

A day is right if both fields of days say so, or either where neither is a plain `*`.

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
_LONGEST_TOLD = 100  # characters of a schedule that a message shows
_LONGEST_DURATION = 2**63 - 1  # nanoseconds
_DURATION = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Mapping[str, int] = MappingProxyType(
    {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
)


class ScheduleError(ValueError):
    """A text that is no schedule; says why."""


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
    """The numbers of a field; `any` if it names all of them by a plain `*`."""

    values: frozenset[int]
    any: bool = False


class Schedule(msgspec.Struct, frozen=True):
    """The minutes that a schedule names, on clocks of a time zone."""

    minutes: Field
    hours: Field
    days: Field
    months: Field
    weekdays: Field
    zone: tzinfo = UTC

    def next(self, after: float) -> int | None:
        """Return the first time after `after`, in seconds since the Unix epoch; None if five years have none."""
        walk = _Walk(math.floor(after) + 1, self.zone)
        last = walk.clock.year + _YEARS_AHEAD
        while walk.clock.year <= last:
            if self._to_month(walk) and self._to_day(walk) and self._to_hour(walk) and self._to_minute(walk):
                return walk.at
        return None

    def last(self, after: float, until: float) -> int | None:
        """Return the last time after `after` that is not after `until`; None if there is none."""
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

    # Each goes on to the first moment where its field is right, and tells whether all fields before it still are.

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
    """A time each so many seconds."""

    seconds: int

    def next(self, after: float) -> int | None:
        """Return the time so many seconds after `after`, in seconds since the Unix epoch."""
        return math.floor(after) + self.seconds

    def last(self, after: float, until: float) -> int | None:
        """Return the last time of those that follow `after`, if it is not after `until`."""
        times = math.floor((until - math.floor(after)) / self.seconds)
        return math.floor(after) + times * self.seconds if times > 0 else None


AnySchedule = Schedule | Every


@dataclass(slots=True)
class _Walk:
    """A moment on its way to a time that is right: seconds since the Unix epoch, and what the clock shows then.

    Once it has `moved`, the smaller parts of the time are at their beginnings, and stay there.
    """

    at: int
    zone: tzinfo
    clock: datetime = field(init=False)
    moved: bool = False

    def __post_init__(self) -> None:
        self.clock = datetime.fromtimestamp(self.at, self.zone)

    def go(self, at: int) -> None:
        """Be at that moment from now on."""
        self.at, self.clock, self.moved = at, datetime.fromtimestamp(at, self.zone), True

    def to_minute(self, minute: int) -> None:
        """Be where the clock shows that minute of the hour, at its beginning; at the next minute if it is changed."""
        begin = self.at - self.at % _MINUTE
        wanted = begin + (minute - self.clock.minute) * _MINUTE
        self.go(wanted if _offset(wanted, self.zone) == _offset(self.at, self.zone) else begin + _MINUTE)

    def set(self, year: int, month: int, day: int, hour: int = 0) -> None:
        """Be where the clock shows that full hour."""
        self.go(_moment(datetime(year, month, day, hour), self.zone))  # noqa: DTZ001 - of the zone, see _moment

    def add_month(self) -> None:
        """Be where the clock shows the same of the next month; a day that it lacks is one of the month after."""
        shown = self.clock.replace(tzinfo=None, fold=0)
        first = (shown.replace(day=1) + timedelta(days=31)).replace(day=1)
        self.go(_moment(first + timedelta(days=shown.day - 1), self.zone))

    def add_day(self) -> None:
        """Be at the beginning of the next day; where that has no midnight, as near to it as full hours lead."""
        self.go(_moment(self.clock.replace(tzinfo=None, fold=0) + timedelta(days=1), self.zone))
        hour = self.clock.hour
        if hour:
            self.go(self.at + (24 - hour if hour > 12 else -hour) * _HOUR)


def _moment(shown: datetime, zone: tzinfo) -> int:
    """Return when a clock of the zone shows that time: of two such moments, or of two readings of one that the clock
    jumps over, the one that the offset from UTC leads to which holds at the same reading of UTC.
    """
    reading = int(shown.replace(tzinfo=UTC).timestamp())
    return reading - _offset(reading - _offset(reading, zone), zone)


def _offset(at: int, zone: tzinfo) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def parse(text: str, zone: tzinfo) -> AnySchedule:
    """Return the schedule that a text stands for, on clocks of a zone; raises ScheduleError."""
    if text.startswith(_EVERY):
        return Every(max(_duration(text.removeprefix(_EVERY)) // 10**9, 1))
    if text.startswith("@"):
        if text not in _MACROS:
            raise ScheduleError(f"unrecognized descriptor: {text[:_LONGEST_TOLD]}")
        text = _MACROS[text]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {text[:_LONGEST_TOLD]!r}")
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
    """Return the numbers of one part of a field, and whether it is a plain `*`."""
    span, *steps = text.split("/")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text[:_LONGEST_TOLD]}")
    first, *others = span.split("-")
    step = _number(steps[0]) if steps else 1
    if first in ("*", "?"):
        low, high = bounds.low, bounds.high
    elif len(others) > 1:
        raise ScheduleError(f"too many hyphens: {text[:_LONGEST_TOLD]}")
    else:
        low = _named(first, bounds)
        high = _named(others[0], bounds) if others else bounds.high if steps else low
    if low < bounds.low:
        raise ScheduleError(f"{low} is below the minimum of {bounds.low}: {text[:_LONGEST_TOLD]}")
    if high > bounds.high:
        raise ScheduleError(f"{high} is above the maximum of {bounds.high}: {text[:_LONGEST_TOLD]}")
    if low > high:
        raise ScheduleError(f"a range begins with {low} and ends with {high}: {text[:_LONGEST_TOLD]}")
    if step == 0:
        raise ScheduleError(f"a step must be a positive number: {text[:_LONGEST_TOLD]}")
    return range(low, high + 1, step), first in ("*", "?") and step == 1


def _named(text: str, bounds: _Bounds) -> int:
    word = text.lower()
    return bounds.words.index(word) + bounds.low if word in bounds.words else _number(text)


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ScheduleError(f"{text[:_LONGEST_TOLD]!r} is no number")
    if int(text) < 0:
        raise ScheduleError(f"a number must not be negative: {text[:_LONGEST_TOLD]}")
    return int(text)


def _duration(text: str) -> int:
    """Return the nanoseconds that a text in Go's form means, such as 1h30m; raises ScheduleError."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    parts = _DURATION.findall(unsigned) if len(unsigned) <= _LONGEST_TOLD else []  # many digits take long
    if unsigned == "0":
        return 0
    if not parts or "".join(parts) != unsigned:
        raise ScheduleError(f"{text[:_LONGEST_TOLD]!r} is no duration such as 1h30m")
    total = sum(_nanoseconds(part) for part in parts)
    if total > _LONGEST_DURATION:
        raise ScheduleError(f"the duration {text[:_LONGEST_TOLD]!r} is too long")
    return -total if text.startswith("-") else total


def _nanoseconds(part: str) -> int:
    unit = part.lstrip("0123456789.")
    whole, _, fraction = part.removesuffix(unit).partition(".")
    return int(whole or "0") * _UNITS[unit] + int(f"0{fraction}") * _UNITS[unit] // int(f"1{'0' * len(fraction)}")
