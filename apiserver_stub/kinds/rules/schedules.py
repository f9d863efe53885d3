"""The forms of schedules and time zones; each check returns what is wrong, or an empty text."""

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MACRO = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly|every ([0-9.]+(ns|us|µs|ms|s|m|h))+)")
_LONGEST_TOLD = 300  # characters of a schedule that a message shows
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Of minute, hour, day, month and day of the week: the bounds and the words for numbers, beginning with the lowest.
_SCHEDULE: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 6, _DAYS),
)  # fmt: skip


def schedule(text: str) -> str:
    """The schedule of a CronJob: five fields, or a macro."""
    if "TZ" in text:
        return "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    if text.startswith("@"):
        return "" if _MACRO.fullmatch(text) else f"unrecognized descriptor: {text}"
    parts = text.split()
    if len(parts) != len(_SCHEDULE):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)[:_LONGEST_TOLD]}]"
    bad = [part for part, row in zip(parts, _SCHEDULE, strict=True) if not _listed(part, *row)]
    return f"failed to parse: {', '.join(bad)[:_LONGEST_TOLD]}" if bad else ""


def _listed(text: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    return all(_times(part, low, high, words) for part in set(text.split(",")))


def _times(text: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    """Whether one term of a field, such as `mon-fri` or `10-50/5`, is in order."""
    span, slash, step = text.partition("/")
    if slash and not (step.isascii() and step.isdigit() and int(step[:9]) > 0):
        return False
    if span in ("*", "?"):
        return True
    first, dash, last = span.partition("-")
    bounds = [_time(part, low, words) for part in ((first, last) if dash else (first,))]
    return all(low <= bound <= high for bound in bounds) and bounds == sorted(bounds)


def _time(text: str, low: int, words: tuple[str, ...]) -> int:
    if text.isascii() and text.isdigit():
        return int(text[:9])
    return words.index(text.lower()) + low if text.lower() in words else -1


def time_zone(name: str) -> str:
    """A time zone of the IANA database; any well-formed name where there is no database."""
    if name.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {name}" if _zones_are_known() else ""
    return ""


def _zones_are_known() -> bool:
    try:
        ZoneInfo("UTC")
    except ZoneInfoNotFoundError:
        return False
    return True
