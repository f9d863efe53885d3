"""Decisions of the CronJob controller: missed times, jobs to start and status."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.batch import CronJob, Job
from controllers.cron_job.decide import (
    Start,
    new_job,
    review,
    scheduled_for,
    start_of,
    superfluous,
    unexpected,
    with_job,
)
from controllers.cron_job.schedule import ScheduleError
from controllers.cron_job.times import DELTA, due, schedule_of, until_next

# This is a Thursday.
TOP = datetime(2016, 5, 19, 10, tzinfo=UTC)
MINUTE, HOUR = 60, 3600


def at(seconds: float) -> str:
    return datetime.fromtimestamp(TOP.timestamp() + seconds, UTC).isoformat().replace("+00:00", "Z")


def cron(created: float = 0, last: float | None = None, active: tuple[str, ...] = (), **spec: Any) -> CronJob:
    status: dict[str, Any] = {"active": [{"name": one, "uid": f"uid-{one}"} for one in active]}
    if last is not None:
        status["lastScheduleTime"] = at(last)
    tree = {
        "metadata": {"name": "tick", "namespace": "default", "uid": "1", "creationTimestamp": at(created)},
        "spec": {"schedule": "0 * * * *", **spec},
        "status": status,
    }
    return CronJob.decode(msgspec.json.encode(tree))


def job(name: str, started: str = "", ended: str = "", completed: str = "") -> Job:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    times = {key: value for key, value in (("startTime", started), ("completionTime", completed)) if value}
    tree = {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"conditions": conditions, **times}}
    return Job.decode(msgspec.json.encode(tree))


WORKDAYS = "30 6-16/4 * * 1-5"


@pytest.mark.parametrize(
    ("made", "schedule", "now", "since", "time", "missed"),
    [
        (cron(), "0 * * * *", 30, 0, None, 0),
        (cron(), "0 * * * *", 61 * MINUTE, 0, HOUR, 0),
        (cron(10), "0 * * * *", 301 * MINUTE, 10, 5 * HOUR, 5),
        (cron(last=30 * MINUTE), WORKDAYS, 24 * HOUR + 31 * MINUTE, 30 * MINUTE, 24 * HOUR + 30 * MINUTE, 2),
        (cron(last=30 * MINUTE), "30 10,11,12 * * 1-5", 30 * HOUR + 30 * MINUTE, 30 * MINUTE, None, 30),
        (cron(last=30 * MINUTE), WORKDAYS, 96 * HOUR + 31 * MINUTE, 30 * MINUTE, 96 * HOUR + 30 * MINUTE, 6),
        (cron(), WORKDAYS, 24 * HOUR + 31 * MINUTE, 0, 24 * HOUR + 30 * MINUTE, 7),
        (cron(-59 * MINUTE, last=MINUTE), "@every 1h", 7 * 24 * HOUR, MINUTE, 6 * 24 * HOUR + 23 * HOUR + MINUTE, 167),
        (cron(last=0), "0 * * * *", 30, 0, None, 0),
        (cron(last=30 * MINUTE), "*/5 * * * *", 31 * MINUTE, 30 * MINUTE, None, 0),
        (cron(last=30 * MINUTE, startingDeadlineSeconds=60), "*/5 * * * *", 31 * MINUTE, 30 * MINUTE, None, 0),
        (cron(last=30 * MINUTE, startingDeadlineSeconds=60), "*/5 * * * *", 32 * MINUTE, 31 * MINUTE, None, 0),
    ],
)
def test_due_time_and_missed_count_by_schedule(
    made: CronJob, schedule: str, now: float, since: float, time: float | None, missed: int
) -> None:
    top = TOP.timestamp()
    found = due(made, schedule_of(schedule, "UTC"), top + now)
    assert found.since - top == since
    assert (found.time - top if found.time is not None else None, found.missed) == (time, missed)


def test_schedule_that_never_occurs_raises_and_is_not_requeued() -> None:
    never = schedule_of("59 23 31 2 *", "UTC")
    with pytest.raises(ScheduleError):
        due(cron(), never, TOP.timestamp() + HOUR)
    assert until_next(cron(), never, TOP.timestamp() + HOUR) is None


@pytest.mark.parametrize(
    ("made", "schedule", "now", "left"),
    [
        (cron(), "0 * * * *", 600, 3000),
        (cron(), "0 * * * *", HOUR, HOUR),
        (cron(last=HOUR), "*/20 * * * *", 2 * HOUR + 1, 20 * MINUTE - 1),
        (cron(last=0), "@every 90s", 100, 80),
        (cron(last=30 * MINUTE), "30 10,11,12 * * 1-5", 30 * HOUR + 30 * MINUTE, 66 * HOUR),
    ],
)
def test_time_until_next_schedule(made: CronJob, schedule: str, now: float, left: float) -> None:
    found = until_next(made, schedule_of(schedule, "UTC"), TOP.timestamp() + now)
    assert found is not None
    assert found == pytest.approx(left + DELTA)


def scheduled(seconds: int) -> int:
    return int(TOP.timestamp()) + seconds


NAME = f"tick-{scheduled(HOUR) // 60}"


@pytest.mark.parametrize(
    ("made", "late", "start"),
    [
        (cron(), 0, Start.CREATE),
        (cron(startingDeadlineSeconds=10), 10, Start.CREATE),
        (cron(startingDeadlineSeconds=10), 10.5, Start.MISSED),
        (cron(last=HOUR), 0, Start.DONE),
        (cron(active=(NAME,)), 0, Start.DONE),
        (cron(active=("other",)), 0, Start.CREATE),
        (cron(active=("other",), concurrencyPolicy="Forbid"), 0, Start.FORBIDDEN),
        (cron(concurrencyPolicy="Forbid"), 0, Start.CREATE),
        (cron(active=("other",), concurrencyPolicy="Replace"), 0, Start.REPLACE),
    ],
)
def test_start_action_by_deadline_and_concurrency_policy(made: CronJob, late: float, start: Start) -> None:
    assert start_of(made, made.status, scheduled(HOUR), scheduled(HOUR) + late) is start


def test_job_name_contains_the_scheduled_minute() -> None:
    assert new_job(cron(), scheduled(HOUR)).metadata.name == NAME


def test_scheduled_time_is_read_from_own_jobs() -> None:
    made = new_job(cron(), scheduled(HOUR))
    assert scheduled_for(cron(), made) == scheduled(HOUR)
    assert scheduled_for(cron(), job(NAME)) is None
    assert with_job(cron(last=2 * HOUR).status, made, scheduled(HOUR)).last_schedule_time == at(2 * HOUR)
    assert with_job(cron().status, made, scheduled(HOUR)).last_schedule_time == at(HOUR)


def test_finished_jobs_beyond_history_limits_are_superfluous() -> None:
    made = cron(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    jobs = [
        job("never", ended="Complete"),
        job("b", at(5), "Complete"),
        job("a", at(5), "Complete"),
        job("failed", at(9), "Failed"),
        job("running", at(1)),
    ]
    assert [one.metadata.name for one in superfluous(made, jobs)] == ["a", "b", "failed"]
    assert superfluous(cron(), jobs) == []


def test_status_lists_active_jobs_and_last_success() -> None:
    made = cron(active=("ended", "running", "missing"))
    jobs = [job("ended", at(1), "Complete", at(60)), job("running", at(2)), job("other", at(1), "Complete", at(90))]
    found = review(made, jobs)
    assert [one.name for one in found.status.active] == ["running", "missing"]
    assert [one.metadata.name for one in found.ended] == ["ended"]
    assert [one.name for one in found.missing] == ["missing"]
    assert found.status.last_successful_time == at(90)
    assert [one.metadata.name for one in unexpected(cron(), jobs)] == ["running"]
