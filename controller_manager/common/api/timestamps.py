"""API timestamps: RFC 3339 in UTC with seconds (`Time`) or microseconds (`MicroTime`)."""

from datetime import UTC, datetime

_ZERO = "0001-01-01T00:00:00"


def format_time(moment: datetime) -> str:
    """Return `2026-01-02T03:04:05Z`."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"


def format_micro(moment: datetime) -> str:
    """Return `2026-01-02T03:04:05.000006Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def nonzero_time(text: str | None) -> str:
    """Return the time unchanged; empty for None and for Go's zero time, which means none."""
    return "" if text is None or text.startswith(_ZERO) else text


def time_of(text: str | None) -> datetime | None:
    """Return the time, or None; raises like `parse_time`."""
    return parse_time(text) if nonzero_time(text) and text else None


def parse_time(text: str) -> datetime:
    """Return the aware datetime of a `Time` or `MicroTime`; raises `ValueError` unless it is RFC 3339 with a
    zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return moment
