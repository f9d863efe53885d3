"""Decides about a cron job: what its status says of its jobs, which of them are superfluous, and whether it makes one
now; pure.

job of the status           job there is            then
active                      has ended               taken off the list
active                      none                    taken off the list, once the server says so too
not active                  has not ended           put on the list if it was made here, before a crash; else told
any                         has succeeded           its end counts as the last success, if it is the latest

For the last time that has come (`times`), the first that holds:
later than startingDeadlineSeconds ago              missed: nothing is made
it is the last time of the status, or its job is    done
  active
concurrencyPolicy Forbid, and a job is active       nothing is made; the job is made when the other has ended, unless
                                                      another time has come until then
Replace                                             active jobs are deleted, then the job is made
otherwise                                           the job is made
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
from controller_manager.framework.controller import TerminalError, controller_ref, key_of

from .times import zone_of

SCHEDULED_AT = f"batch.{PLATFORM_DOMAIN}/cronjob-scheduled-timestamp"

_MINUTE = 60


class Start(Enum):
    """The decision about the last time that has come."""

    MISSED = auto()
    DONE = auto()
    FORBIDDEN = auto()
    REPLACE = auto()
    CREATE = auto()


class Review(NamedTuple):
    """What a status should say of the jobs there are: which of its active jobs have ended, and which are not there."""

    status: CronJobStatus
    ended: Sequence[Job]
    missing: Sequence[ObjectReference]


def review(cron: CronJob, jobs: Iterable[Job]) -> Review:
    """Return what the status of a cron job says of its jobs; those that are missing are still in it."""
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
    """Return the jobs that have not ended and are not in the status."""
    active = {one.uid for one in cron.status.active}
    return [job for job in jobs if job.metadata.uid not in active and end_of(job.status.conditions) is None]


def superfluous(cron: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Return the ended jobs beyond the limits of the history, those that began first."""
    limits = ((COMPLETE, cron.spec.successful_jobs_history_limit), (FAILED, cron.spec.failed_jobs_history_limit))
    found: list[Job] = []
    for kind, limit in limits:
        if limit is not None:
            ended = sorted((job for job in jobs if _has_ended_by(job, kind)), key=_began)
            found += ended[: max(0, len(ended) - limit)]
    return found


def start_of(cron: CronJob, status: CronJobStatus, scheduled: int, now: float) -> Start:
    """Return what is decided about the time `scheduled`, by the table above."""
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
    """Return the name of the job for a time: the same whoever makes it, so that none is made twice."""
    return f"{cron.metadata.name}-{scheduled // _MINUTE}"


def new_job(cron: CronJob, scheduled: int) -> Job:
    """Return the job for a time, to be created. Raises TerminalError if the template is none of jobs."""
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
    """Return the time for which a job was made here; None if somebody else made it."""
    minute = job.metadata.name.removeprefix(f"{cron.metadata.name}-")
    is_ours = SCHEDULED_AT in (job.metadata.annotations or _NOTHING) and minute.isascii() and minute.isdigit()
    return int(minute) * _MINUTE if is_ours else None


def with_job(status: CronJobStatus, job: Job, scheduled: int) -> CronJobStatus:
    """Return the status with a job that was made for that time."""
    at = format_time(datetime.fromtimestamp(scheduled, UTC))
    last = max(at, nonzero_time(status.last_schedule_time))
    return replace(status, active=(*status.active, reference_to(job)), last_schedule_time=last)


def without(status: CronJobStatus, uids: Iterable[str]) -> CronJobStatus:
    """Return the status without the jobs of these uids."""
    gone = set(uids)
    return replace(status, active=tuple(one for one in status.active if one.uid not in gone))


_NOTHING: Mapping[str, str] = MappingProxyType({})


def _succeeded_at(job: Job) -> str:
    """Return when a job succeeded; times are `Time`s, whose text sorts as they do."""
    return nonzero_time(job.status.completion_time) if _has_ended_by(job, COMPLETE) else ""


def _has_ended_by(job: Job, kind: str) -> bool:
    end = end_of(job.status.conditions)
    return end is not None and end.type == kind


def _began(job: Job) -> tuple[bool, str, str]:
    """Return what sorts jobs by when they began; those that never did come last."""
    started = nonzero_time(job.status.start_time)
    return not started, started, job.metadata.name


def _shown(cron: CronJob, scheduled: int) -> str:
    """Return the time as clocks of the cron job's zone show it (RFC 3339)."""
    moment = datetime.fromtimestamp(scheduled, zone_of(cron.spec.time_zone) or UTC)
    return moment.isoformat() if moment.utcoffset() else format_time(moment)
