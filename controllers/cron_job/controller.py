"""Reconciles cron jobs with their jobs and the clock."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace

from controller_manager.common.api.batch import CRON_JOBS, JOBS, CronJob, CronJobStatus, Job, end_of
from controller_manager.common.api.core import ObjectReference
from controller_manager.common.api.errors import AlreadyExists, ApiError, Conflict, NotFound, conflict
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.framework import (
    Context,
    ControllerSpec,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    TransportError,
    controller_of,
    flag,
    key_of,
    update_status,
)
from controller_manager.framework.client.codec import WriteResult
from controller_manager.framework.controller.writes import Refusal, refusal_of

from ..shared.controlled import BY_CONTROLLER, controlled_by, owners_concerned
from .decide import (
    Start,
    job_name,
    new_job,
    review,
    scheduled_for,
    start_of,
    superfluous,
    unexpected,
    with_job,
    without,
)
from .schedule import AnySchedule, ScheduleError
from .times import LONG, MANY, due, names_zone, schedule_of, until_next, zone_of

_SKEW = Family(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "Time from when a job was due until it was created.",
    "histogram",
    buckets=tuple(float(2**step) for step in range(10)),
    stability="STABLE",
)


class CronJobOptions(Options):
    """Cron job controller"""

    concurrent_cron_job_syncs: Int32 = flag(5, "cron jobs worked on at the same time", minimum=1)


# Observed: the cron job, the jobs that it controls, the clock.
# Decided: `times` returns the time that is due, `decide` what to do about it and about existing jobs.
# Done, in this order:                            a crash leaves
#   finished jobs beyond the history deleted      nothing undone
#   active jobs deleted, if they are replaced     nothing undone
#   the job created                               a job that the status lacks; the next reconcile records it
#   status written                                -
# A changed schedule applies to future times only. No job is created for past times that it would have had.


class CronJobController:
    """Reconciles cron jobs."""

    def __init__(self, context: Context, _: CronJobOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._crons = context.informers.get(CRON_JOBS)
        self._jobs = context.informers.get(JOBS)
        self._skew = Histograms(_SKEW, context.runtime.registry).of()
        self._worker = context.runtime.worker
        # The last schedule and time zone used for each cron job, with its uid.
        self._schedules: dict[Key, tuple[str, str, str | None]] = {}
        # The scheduled time of a job that may have been created but may be missing in the status.
        self._unrecorded: dict[Key, int] = {}
        # Our last write of each status, until the cache shows it.
        self._written: dict[Key, WriteResult] = {}

    async def reconcile(self, key: Key) -> Requeue | None:
        """Create the job of cron job `key` if it is due, and record the state of other jobs."""
        cron = self._crons.get(key)
        if cron is None:
            self._schedules.pop(key, None)
            self._unrecorded.pop(key, None)
            self._written.pop(key, None)
            return None
        if self._has_new_schedule(key, cron):
            schedule = await self._schedule(cron)
            return _again(cron, schedule) if schedule is not None else None
        jobs = controlled_by(self._jobs, cron.metadata.uid)
        run, failure, again = _Run(await self._look_again(cron, jobs)), None, None
        try:
            await self._review(run, jobs)
            await self._record(run)
            again = await self._make_due(run)
        except (ApiError, TransportError) as error:
            failure = error
        # The state of jobs is written even if the creation failed.
        await self._write(run)
        if failure is not None:
            raise failure
        self._unrecorded.pop(key, None)
        return again

    async def _write(self, run: "_Run") -> None:
        after = await update_status(self._client, CRON_JOBS, run.cron, replace(run.cron, status=run.status))
        if after is not run.cron:
            key = key_of(after)
            self._written[key] = WriteResult(CRON_JOBS, key, after.metadata.resource_version)

    def _has_new_schedule(self, key: Key, cron: CronJob) -> bool:
        now = (cron.metadata.uid, cron.spec.schedule, cron.spec.time_zone)
        before, self._schedules[key] = self._schedules.get(key, now), now
        return before != now and before[0] == now[0]

    async def _look_again(self, cron: CronJob, jobs: Sequence[Job]) -> CronJob:
        """Return the cron job.

        It is read from the server if the cache lacks our last status, or if the status lacks an active job.
        """
        key = key_of(cron)
        if key in self._written and self._crons.has_seen(self._written[key]):
            del self._written[key]
        if key not in self._written and not unexpected(cron, jobs):
            return cron
        fresh = await self._client.get(CRON_JOBS, key)
        if fresh.metadata.uid != cron.metadata.uid:
            raise conflict(CRON_JOBS.group, CRON_JOBS.plural, cron.metadata.name, "it was recreated")
        return fresh

    async def _review(self, run: "_Run", jobs: Sequence[Job]) -> None:
        """Delete jobs beyond the history limits, and update the status about the others."""
        for job in superfluous(run.cron, jobs):
            await self._delete_superfluous(run, job)
        found = review(replace(run.cron, status=run.status), jobs)
        for job in found.ended:
            end = end_of(job.status.conditions)
            text = f"Saw completed job: {job.metadata.name}, condition: {end.type if end is not None else ''}"
            self._events.normal(run.cron, "SawCompletedJob", text)
        run.status = found.status
        for job in unexpected(run.cron, jobs):
            scheduled = scheduled_for(run.cron, job)
            if scheduled is not None:
                run.status = with_job(run.status, job, scheduled)
            else:
                text = f"There is a job that was not made here: {job.metadata.name}"
                self._events.warning(run.cron, "UnexpectedJob", text)
        for one in found.missing:
            if await self._is_gone(one):
                self._events.normal(run.cron, "MissingJob", f"The active job {one.name} is gone")
                run.status = without(run.status, [one.uid])

    async def _record(self, run: "_Run") -> None:
        """Record the job of the previous run, if it was created without a recorded status."""
        scheduled = self._unrecorded.get(key_of(run.cron))
        if scheduled is not None:
            with contextlib.suppress(NotFound):
                await self._find(run, scheduled)

    async def _find(self, run: "_Run", scheduled: int) -> None:
        """Record the existing job for a time, if it belongs to this cron job."""
        found = await self._client.get(JOBS, Key(run.cron.metadata.namespace, job_name(run.cron, scheduled)))
        owner, active = controller_of(found), {one.uid for one in run.status.active}
        if owner is not None and owner.uid == run.cron.metadata.uid and found.metadata.uid not in active:
            run.status = with_job(run.status, found, scheduled)

    async def _make_due(self, run: "_Run") -> Requeue | None:
        """Create the job of the latest due time, if it is wanted. Return when to check again."""
        cron, now = replace(run.cron, status=run.status), clock.wall_seconds()
        schedule = await self._schedule(cron) if cron.metadata.deletion_timestamp is None else None
        if schedule is None or cron.spec.suspend:
            return None
        try:
            found = due(cron, schedule, now)
        except ScheduleError as error:
            self._events.warning(cron, "InvalidSchedule", f"The schedule {cron.spec.schedule!r} is of no use: {error}")
            return None
        if found.time is not None:
            if found.missed > MANY:
                text = "Too many times were missed: set or decrease startingDeadlineSeconds, or look at the clocks"
                self._events.warning(cron, "TooManyMissedTimes", text)
            await self._start(run, found.time, now)
        return _again(replace(run.cron, status=run.status), schedule)

    async def _schedule(self, cron: CronJob) -> AnySchedule | None:
        """Return the schedule of a cron job. An invalid one is reported as an event and returned as None."""
        text, zone = cron.spec.schedule, cron.spec.time_zone
        if zone is not None and zone_of(zone) is None:
            self._events.warning(cron, "UnknownTimeZone", f"unknown timezone {zone!r}")
            return None
        if names_zone(text):
            self._events.warning(
                cron, "UnsupportedSchedule", f"The schedule {text!r} names a zone: use timeZone instead"
            )
        try:
            if len(text) <= LONG:
                return schedule_of(text, zone)
            return await self._worker.run(partial(schedule_of, text, zone))
        except ScheduleError as error:
            self._events.warning(cron, "UnparseableSchedule", f"The schedule {text!r} cannot be read: {error}")
            return None

    async def _start(self, run: "_Run", scheduled: int, now: float) -> None:
        cron = run.cron
        match start_of(cron, run.status, scheduled, now):
            case Start.MISSED:
                at = format_time(datetime.fromtimestamp(scheduled, UTC))
                self._events.warning(cron, "MissSchedule", f"It is too late to make the job of {at}")
            case Start.FORBIDDEN:
                text = "No job is made, since another one is active and concurrencyPolicy is Forbid"
                self._events.normal(cron, "JobAlreadyActive", text)
            case Start.REPLACE:
                for one in run.status.active:
                    await self._delete(run, Key(cron.metadata.namespace, one.name), one.uid)
                await self._create(run, scheduled)
            case Start.CREATE:
                await self._create(run, scheduled)

    async def _create(self, run: "_Run", scheduled: int) -> None:
        cron, wanted = run.cron, new_job(run.cron, scheduled)
        self._unrecorded[key_of(cron)] = scheduled
        try:
            made = await self._client.create(JOBS, wanted)
        except AlreadyExists:
            await self._find(run, scheduled)
            return
        except ApiError as error:
            if refusal_of(error) is Refusal.NAMESPACE_ENDS:
                return
            self._events.warning(cron, "FailedCreate", f"Error creating job: {error.message}")
            raise
        created = time_of(made.metadata.creation_timestamp)
        self._skew.observe(created.timestamp() - scheduled if created is not None else 0.0)
        self._events.normal(cron, "SuccessfulCreate", f"Created job {made.metadata.name}")
        run.status = with_job(run.status, made, scheduled)

    async def _delete_superfluous(self, run: "_Run", job: Job) -> None:
        with contextlib.suppress(ApiError, TransportError):  # an event reports it; nothing else waits for that
            await self._delete(run, key_of(job), job.metadata.uid)

    async def _delete(self, run: "_Run", key: Key, uid: str) -> None:
        """Delete a job with background propagation, and remove it from the active list."""
        try:
            await self._client.delete(JOBS, key, propagation="Background", uid=uid)
        except (NotFound, Conflict):
            pass  # it is gone, and maybe another one has its name
        except ApiError as error:
            self._events.warning(run.cron, "FailedDelete", f"Error deleting job {key.name}: {error.message}")
            raise
        else:
            self._events.normal(run.cron, "SuccessfulDelete", f"Deleted job {key.name}")
        run.status = without(run.status, [uid])

    async def _is_gone(self, one: ObjectReference) -> bool:
        """Return whether the server confirms that a job is gone."""
        try:
            found = await self._client.get(JOBS, Key(one.namespace, one.name))
        except NotFound:
            return True
        return found.metadata.uid != one.uid


@dataclass(slots=True)
class _Run:
    """One reconcile: the cron job as it was read, and its new status."""

    cron: CronJob
    status: CronJobStatus = field(init=False)

    def __post_init__(self) -> None:
        self.status = self.cron.status


def _again(cron: CronJob, schedule: AnySchedule) -> Requeue | None:
    left = until_next(cron, schedule, clock.wall_seconds())
    return Requeue(max(left, 0.0)) if left is not None else None


def _never_adopts(_: CronJob, __: Job) -> bool:
    return False


def _facts(job: Job) -> object:
    """Return the facts of a job that its cron job depends on."""
    meta, status = job.metadata, job.status
    end = end_of(status.conditions)
    return meta.uid, meta.owner_references, end and end.type, status.completion_time


SPECS = (
    ControllerSpec(
        name="cronjob-controller",
        sharded_by=CRON_JOBS,
        queue="cronjob",
        aliases=("cronjob",),
        reconciler=CronJobController,
        options=CronJobOptions,
        workers=lambda options: options.concurrent_cron_job_syncs,
        watches=(
            Mapped(CRON_JOBS, lambda _, change: (change.key,), echoes=False),
            Mapped(JOBS, owners_concerned(CRON_JOBS, _never_adopts, _facts), indexes=BY_CONTROLLER, echoes=False),
        ),
        rbac=(
            PolicyRule(groups=("batch",), resources=("cronjobs",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("batch",), resources=("cronjobs/status", "cronjobs/finalizers"), verbs=("update",)),
            PolicyRule(groups=("batch",), resources=("jobs",), verbs=("create", "delete", "get", "list", "watch")),
        ),
    ),
)
