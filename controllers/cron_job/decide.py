"""Decides about a cron job: its status, the jobs beyond the history, and whether to create a job now; pure.

in the status   existing job      action
active          has ended         remove from the list
active          none              remove from the list, once the server confirms it
not active      has not ended     add to the list if this controller created it, before a crash; else an event
any             has succeeded     update lastSuccessfulTime, if it is the latest

For the latest due time (`times`), the first match counts:

later than startingDeadlineSeconds         missed; no job
it is lastScheduleTime, or its job is       done
  active
concurrencyPolicy Forbid, active jobs       no job now; it is created when they have ended, unless the next
                                             time has come by then
concurrencyPolicy Replace                  delete active jobs, then create the job
otherwise                                  create the job
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.batch import COMPLETE, CRON_JOBS, FAILED, JOBS, CronJob, CronJobStatus, Job, end_of
from controller_manager.common.api.core import ObjectReference, reference_to
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import format_time, nonzero_time, time_of
from controller_manager.framework import TerminalError, controller_ref, key_of

from .times import zone_of

SCHEDULED_AT = f"batch.{PLATFORM_DOMAIN}/cronjob-scheduled-timestamp"

_MINUTE = 60


class Start(Enum):
    """The decision about the latest due time."""

    MISSED = auto()
    DONE = auto()
    FORBIDDEN = auto()
    REPLACE = auto()
    CREATE = auto()


class Review(NamedTuple):
    """The updated status, the active jobs that have ended, and those that are missing."""

    status: CronJobStatus
    ended: Sequence[Job]
    missing: Sequence[ObjectReference]


def review(cron: CronJob, jobs: Iterable[Job]) -> Review:
    """Return the status of a cron job with its present jobs. Missing jobs are still listed."""
    mine = {job.metadata.uid: job for job in jobs}
    status, active = cron.status, {one.uid for one in cron.status.active}
    ended = [job for uid, job in mine.items() if uid in active and end_of(job.status.conditions) is not None]
    missing = [one for one in status.active if one.uid not in mine]
    status = without(status, [job.metadata.uid for job in ended])
    last = max(filter(None, map(_succeeded_at, mine.values())), default="")
    if last and last > nonzero_time(status.last_successful_time):
        status = replace(status, last_successful_time=last)
    return Review(status, ended, missing)


def unexpected(cron: CronJob, jobs: Iterable[Job]) -> list[Job]:
    """Return the unfinished jobs that are not in the status."""
    active = {one.uid for one in cron.status.active}
    return [job for job in jobs if job.metadata.uid not in active and end_of(job.status.conditions) is None]


def superfluous(cron: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Return the finished jobs beyond the history limits, oldest first."""
    limits = ((COMPLETE, cron.spec.successful_jobs_history_limit), (FAILED, cron.spec.failed_jobs_history_limit))
    found: list[Job] = []
    for kind, limit in limits:
        if limit is not None:
            ended = sorted((job for job in jobs if _has_ended_by(job, kind)), key=_began)
            found += ended[: max(0, len(ended) - limit)]
    return found


def start_of(cron: CronJob, status: CronJobStatus, scheduled: int, now: float) -> Start:
    """Return the decision about the time `scheduled`, by the table above."""
    deadline, name = cron.spec.starting_deadline_seconds, job_name(cron, scheduled)
    if deadline is not None and scheduled + deadline < now:
        return Start.MISSED
    last = time_of(status.last_schedule_time)
    if (last is not None and last.timestamp() == scheduled) or any(one.name == name for one in status.active):
        return Start.DONE
    match cron.spec.concurrency_policy:
        case "Forbid" if status.active:
            return Start.FORBIDDEN
        case "Replace":
            return Start.REPLACE
    return Start.CREATE


def job_name(cron: CronJob, scheduled: int) -> str:
    """Return the name of the job for a time. It is deterministic, so that no job is created twice."""
    return f"{cron.metadata.name}-{scheduled // _MINUTE}"


def new_job(cron: CronJob, scheduled: int) -> Job:
    """Return the job to create for a time. Raises TerminalError for an invalid template."""
    template = cron.spec.job_template
    meta = ObjectMeta(
        name=job_name(cron, scheduled),
        namespace=cron.metadata.namespace,
        labels=template.metadata.labels,
        annotations={**(template.metadata.annotations or _NOTHING), SCHEDULED_AT: _shown(cron, scheduled)},
        owner_references=(controller_ref(CRON_JOBS, cron),),
    )
    spec = template.spec if bytes(template.spec) not in (b"", b"null") else {}
    data = msgspec.json.encode({"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta, "spec": spec})
    try:
        return Job.decode(data)
    except msgspec.ValidationError as error:
        raise TerminalError(f"the template of cron job {key_of(cron)} makes no jobs: {error}") from error


def scheduled_for(cron: CronJob, job: Job) -> int | None:
    """Return the scheduled time of a job of this controller, or None for other jobs."""
    minute = job.metadata.name.removeprefix(f"{cron.metadata.name}-")
    is_ours = SCHEDULED_AT in (job.metadata.annotations or _NOTHING) and minute.isascii() and minute.isdigit()
    return int(minute) * _MINUTE if is_ours else None


def with_job(status: CronJobStatus, job: Job, scheduled: int) -> CronJobStatus:
    """Return the status with a job that was created for that time."""
    at = format_time(datetime.fromtimestamp(scheduled, UTC))
    last = max(at, nonzero_time(status.last_schedule_time))
    return replace(status, active=(*status.active, reference_to(job)), last_schedule_time=last)


def without(status: CronJobStatus, uids: Iterable[str]) -> CronJobStatus:
    """Return the status without the jobs of these uids."""
    gone = set(uids)
    return replace(status, active=tuple(one for one in status.active if one.uid not in gone))


_NOTHING: Mapping[str, str] = MappingProxyType({})


def _succeeded_at(job: Job) -> str:
    """Return when a job succeeded, as RFC 3339 text, which sorts chronologically."""
    return nonzero_time(job.status.completion_time) if _has_ended_by(job, COMPLETE) else ""


def _has_ended_by(job: Job, kind: str) -> bool:
    end = end_of(job.status.conditions)
    return end is not None and end.type == kind


def _began(job: Job) -> tuple[bool, str, str]:
    """Return a sort key by start time. Jobs that never started come last."""
    started = nonzero_time(job.status.start_time)
    return not started, started, job.metadata.name


def _shown(cron: CronJob, scheduled: int) -> str:
    """Return the time in the cron job's time zone (RFC 3339)."""
    moment = datetime.fromtimestamp(scheduled, zone_of(cron.spec.time_zone) or UTC)
    return moment.isoformat() if moment.utcoffset() else format_time(moment)
