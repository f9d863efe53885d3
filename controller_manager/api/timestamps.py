"""Times as the API writes them: RFC 3339 in UTC, in seconds (`Time`) or microseconds (`MicroTime`)."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05Z`."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"


def format_micro(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def parse_time(text: str) -> datetime:
    """The moment a `Time` or `MicroTime` names, aware; raises `ValueError` for anything but RFC 3339 with a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return moment
