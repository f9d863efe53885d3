"""Times as the API writes them: RFC 3339 in UTC, in seconds (`Time`) or microseconds (`MicroTime`)."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """The moment a `Time` or `MicroTime` names, aware; raises `ValueError` for anything but RFC 3339 with a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return moment
