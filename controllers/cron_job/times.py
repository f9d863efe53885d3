"""When a cron job is due and when to reconcile it again; pure. Times are seconds since the Unix epoch."""

from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from controller_manager.common.api.batch import CronJob
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.base.clock import local_zone

from .schedule import AnySchedule, ScheduleError, parse

# More missed times than this are reported, because clocks may be wrong.
MANY = 100
# Seconds added to each time, because clocks differ.
DELTA = 0.1

LONG = 1024
"""Longer schedules take long to parse and are not cached."""
_PREFIXES = ("TZ=", "CRON_TZ=")


class Due(NamedTuple):
    """The latest time for which a job is due, if any, and the approximate number of missed times."""

    since: float
    time: int | None = None
    missed: int = 0


def zone_of(name: str | None) -> ZoneInfo | None:
    """Return the zone of that name, or None."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def names_zone(schedule: str) -> bool:
    """Return whether a schedule contains a time zone, which is unsupported."""
    return "TZ" in schedule


def schedule_of(text: str, zone: str | None) -> AnySchedule:
    """Return the schedule of a cron job, in local time of this process without a zone. Raises ScheduleError."""
    return _kept(text, zone) if len(text) <= LONG else _parsed(text, zone)


@lru_cache(maxsize=4096)
def _kept(text: str, zone: str | None) -> AnySchedule:
    return _parsed(text, zone)


def _parsed(text: str, zone: str | None) -> AnySchedule:
    prefix = next((one for one in _PREFIXES if text.startswith(one)), "")
    if prefix:
        zone, _, text = text.removeprefix(prefix).partition(" ")
    elif zone is None:
        return parse(text, local_zone())
    found = zone_of(zone)
    if found is None:
        raise ScheduleError(f"unknown time zone {zone}")
    return parse(text.strip(), found)


def due(cron: CronJob, schedule: AnySchedule, now: float, *, heeds_deadline: bool = True) -> Due:
    """Return the times missed since lastScheduleTime or creation.

    With `heeds_deadline`, times beyond the starting deadline are dropped. Raises ScheduleError for a schedule without
    future times or without distance between them.
    """
    last = time_of(cron.status.last_schedule_time) or time_of(cron.metadata.creation_timestamp)
    since = last.timestamp() if last is not None else now
    deadline = cron.spec.starting_deadline_seconds
    if heeds_deadline and deadline is not None:
        since = max(since, now - deadline)
    first = schedule.next(since)
    second = schedule.next(first) if first is not None else None
    if first is None or (second is None and now >= first):
        raise ScheduleError("the schedule has no times in the next five years")
    if now < first:
        return Due(since)
    if second is None or now < second:
        return Due(since, first)
    gap = second - first
    missed = int(now - first) // gap + 1
    # This assumes equal distances, which is close enough to start the search for the last one.
    return Due(since, schedule.last(first + (missed - 2) * gap, now), missed)


def until_next(cron: CronJob, schedule: AnySchedule, now: float) -> float | None:
    """Return the seconds until the next time of a cron job, or None."""
    try:
        found = due(cron, schedule, now, heeds_deadline=False)
        base = found.time if found.time is not None else now if found.missed else found.since
    except ScheduleError:
        base = now
    following = schedule.next(base)
    return following + DELTA - now if following is not None else None
