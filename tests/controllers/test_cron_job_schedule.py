"""Schedules have the same next times as in kube-controller-manager, recorded in `cron_schedules.jsonl`.

A row has a schedule, a zone (empty: not given), a time, and the next five times (-1: none within five years) or an
error.
"""

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cron_job.schedule import Every, Schedule, ScheduleError, parse
from controllers.cron_job.times import schedule_of
from tests.pace import cpu_limit

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("cron_schedules.jsonl").read_text().splitlines()
]
BERLIN = ZoneInfo("Europe/Berlin")


def named(row: dict[str, Any]) -> list[int] | None:
    try:
        schedule = schedule_of(row["schedule"], row["zone"] or "UTC") if row["zone"] else parse(row["schedule"], UTC)
    except ScheduleError:
        return None
    found: list[int] = []
    at: int | None = row["after"]
    while at is not None and len(found) < 5:
        at = schedule.next(at)
        found.append(-1 if at is None else at)
    return found


UTC = ZoneInfo("UTC")


def test_next_times_equal_recorded_upstream_times() -> None:
    differing = [row for row in ROWS if named(row) != (None if row.get("error") else row["next"])]
    assert differing == []
    assert sum(bool(row.get("error")) for row in ROWS) > 10


@pytest.mark.parametrize(
    ("text", "zone"),
    [("TZ=Europe/Berlin 30 7 * * *", "Asia/Tokyo"), ("CRON_TZ=Europe/Berlin 30 7 * * *", None)],
)
def test_zone_in_schedule_overrides_time_zone_field(text: str, zone: str | None) -> None:
    assert schedule_of(text, zone) == parse("30 7 * * *", BERLIN)


@pytest.mark.parametrize(
    "text", ["TZ=Nowhere 0 * * * *", "TZ=0", "0 * * * TZ", "@every 1x", "@every " + "9" * 300 + "h"]
)
def test_malformed_schedule_raises_schedule_error(text: str) -> None:
    with pytest.raises(ScheduleError):
        schedule_of(text, "UTC")


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "5-20/5", "59"]),
    st.sampled_from(["*", "2", "1-3", "*/5", "23,0"]),
    st.sampled_from(["*", "1", "*/2", "28-31"]),
    st.sampled_from(["*", "3", "feb,oct", "*/4"]),
    st.sampled_from(["*", "sun", "mon-fri", "6"]),
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Havana"])
TIMES = st.integers(1_500_000_000, 2_000_000_000)


@given(FIELDS, ZONES, TIMES)
def test_next_time_is_later_and_matches_the_fields(fields: tuple[str, ...], zone: str, after: int) -> None:
    schedule = parse(" ".join(fields), ZoneInfo(zone))
    assert isinstance(schedule, Schedule)
    at = schedule.next(after)
    assert at is not None
    assert at > after
    shown = datetime.fromtimestamp(at, ZoneInfo(zone))
    assert (shown.minute in schedule.minutes.values, shown.hour in schedule.hours.values, shown.second) == (
        True,
        True,
        0,
    )
    assert shown.month in schedule.months.values


@given(FIELDS, ZONES, TIMES, st.integers(0, 4 * 3600))
def test_last_time_equals_repeated_next(fields: tuple[str, ...], zone: str, after: int, seconds: int) -> None:
    schedule = parse(" ".join(fields), ZoneInfo(zone))
    last, at = None, schedule.next(after)
    while at is not None and at <= after + seconds:
        last, at = at, schedule.next(at)
    assert schedule.last(after, after + seconds) == last


@given(st.integers(1, 10_000), TIMES, st.integers(0, 100_000))
def test_last_time_of_interval_schedule(seconds: int, after: int, passed: int) -> None:
    found = Every(seconds).last(after, after + passed)
    assert found == (after + passed // seconds * seconds if passed >= seconds else None)


LONG_LIST = ",".join(f"{number % 24:07}" for number in range(75_000))


@pytest.mark.parametrize("text", ["@every " + "1" * 600_000, f"*/5 {LONG_LIST} * * *"], ids=["digits", "list"])
def test_schedule_of_600_kb_is_read_in_linear_time(text: str) -> None:
    with cpu_limit(2.0), suppress(ScheduleError):
        schedule_of(text, "UTC")
