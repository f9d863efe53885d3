"""Reconciles jobs and their pods, and removes the finalizer of orphaned pods."""

import asyncio
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.batch import (
    COMPLETE,
    INDEXED,
    JOBS,
    NON_INDEXED,
    SUCCESS_CRITERIA_MET,
    Job,
    JobStatus,
    is_finished,
)
from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import PODS, Pod, PodTemplateSpec, is_pod_ready, is_pod_terminal
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Int32,
    Key,
    Mapped,
    Options,
    PodControl,
    PolicyRule,
    Requeue,
    TransportError,
    flag,
    slow_start,
    update_status,
)
from controller_manager.framework.work.spinning import SHORTEST_REQUEUE

from ..shared.controlled import BY_CONTROLLER, may_be_done
from .accounting import JOB_RESUMED, JOB_SUSPENDED, Accounts, account, finish, settle, with_suspension
from .decide import (
    BATCH,
    PODS_DELETED,
    RECONCILING,
    JobPlan,
    condition,
    ending_of,
    is_complete,
    plan,
    until_deadline,
)
from .memory import Memory
from .metrics import JobMetrics
from .observation import Observation, is_managed_elsewhere, is_tracked
from .observer import Observer
from .orphans import Orphan, Orphans
from .pods import RELEASE, new_pod, template_of
from .watches import jobs_of_pod, keys_of_new_state, keys_of_status

FORGETS_START = "MutableSchedulingDirectivesForSuspendedJobs"


class JobOptions(Options):
    """Job controller"""

    concurrent_job_syncs: Int32 = flag(5, "jobs worked on at the same time", minimum=1)


class JobSyncResult(NamedTuple):
    """The number of created pods, the deleted pods, and the first error."""

    created: int = 0
    deleted: Sequence[Pod] = ()
    error: ApiError | TransportError | None = None


class _Run(msgspec.Struct):
    """One reconcile of a job. `action` is the label for metrics."""

    job: Job
    memory: Memory
    action: str = RECONCILING


# Observed: the job, the pods that it controls or may adopt, and what this process remembers of it (`memory`). The
#   server is queried instead of the cache if the cache lacks a write of ours, if the result of a write is unknown, or
#   before creating or counting pods of a job that another process may have worked on.
# Decided: `decide` returns whether the job ends and which pods to create or delete, `accounting` returns the writes.
# Done, in this order:                            a crash leaves
#   pods adopted and released                     nothing undone
#   pods created or deleted                       pods that the next reconcile sees
#   status: counts, uids of finished pods,        finalizers, which are removed next
#     interim condition
#   finalizers removed                            uids, which are counted next
#   status: those pods counted, final condition   -
# Jobs that have ended, are gone, or have another controller are ignored. Pods with the finalizer that no job counts
# (without a controller, or of a job that has ended or is gone) lose it.


class JobController:
    """Reconciles a job, or a pod that may be an orphan."""

    def __init__(self, context: Context, _: JobOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._control = PodControl(context.client, context.events)
        self._jobs = context.informers.get(JOBS)
        self._pods = context.informers.get(PODS)
        self._forgets_start = context.enabled(FORGETS_START)
        self._memories: dict[Key, Memory] = {}
        self._metrics = JobMetrics(context.runtime.registry)
        self._observer = Observer(context.client, self._jobs, self._pods, self._metrics)
        self._orphans = Orphans(context.client, self._control, self._jobs, self._pods)

    async def run(self, _: Add) -> None:
        """Count finished pods and jobs of other controllers for the metrics, as they are observed."""
        ends = (self._pods.subscribe(self._count_pod), self._jobs.subscribe(self._count_job))
        try:
            await asyncio.Event().wait()
        finally:
            for end in ends:
                end()

    async def reconcile(self, key: Key | Orphan) -> Requeue | None:
        """Reconcile a job and its pods, or remove the finalizer of an orphan."""
        if isinstance(key, Orphan):
            await self._orphans.release(key)
            return None
        job = self._jobs.get(key)
        if job is None or is_finished(job) or is_managed_elsewhere(job):
            self._memories.pop(key, None)
            return None
        if job.spec.completion_mode not in (INDEXED, NON_INDEXED):
            self._events.warning(job, "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
            return None
        run, began = _Run(job, self._memory(key, job)), clock.monotonic()
        failed = True
        try:
            requeue = await self._sync(run)
            failed = False
        finally:
            self._metrics.synced(job, clock.monotonic() - began, run.action, failed=failed)
        return requeue

    async def _sync(self, run: _Run) -> Requeue | None:
        seen = await self._observer.observe(run.job, run.memory)
        if seen is None:
            return None
        run.job = seen.job
        ending, wanted = ending_of(seen), JobPlan()
        continues = ending is None and seen.job.metadata.deletion_timestamp is None
        if ending is not None:
            outcome, ending = await self._end(run, seen, ending)
        elif continues:
            wanted = plan(seen)
            outcome, ending = await self._continue(run, seen, wanted)
        else:
            outcome = JobSyncResult()
        status = _with_counts(seen, outcome)
        if continues and ending is None:
            status = self._with_suspension(seen, status)
        accounts = account(seen, status, ending)
        terminating = seen.terminating + len(outcome.deleted)
        ended = await self._settle(run, seen, accounts, terminating)
        if outcome.error is not None:
            raise outcome.error
        return None if ended else _requeue(seen, wanted, accounts)

    async def _end(self, run: _Run, seen: Observation, ending: Condition) -> tuple[JobSyncResult, Condition | None]:
        """Delete the active pods. Return also the condition that ends the job, or None if pods are left."""
        outcome = await self._delete(run, seen.active, release=False)
        return outcome, ending if len(outcome.deleted) == len(seen.active) else None

    async def _continue(self, run: _Run, seen: Observation, wanted: JobPlan) -> tuple[JobSyncResult, Condition | None]:
        """Carry out a plan. Return also the condition that ends the job if its completions are reached."""
        outcome = await self._carry_out(run, seen, wanted)
        if not is_complete(seen, _active_after(seen, outcome)):
            return outcome, None
        message = "Reached expected number of succeeded pods"
        return outcome, condition(SUCCESS_CRITERIA_MET, "CompletionsReached", message, seen.now)

    async def _carry_out(self, run: _Run, seen: Observation, wanted: JobPlan) -> JobSyncResult:
        run.action = wanted.action
        if wanted.action == PODS_DELETED:
            return await self._delete(run, wanted.delete, release=True)
        return await self._create(run, seen, wanted.create) if wanted.create else JobSyncResult()

    async def _create(self, run: _Run, seen: Observation, indexes: Sequence[int | None]) -> JobSyncResult:
        job, failures = seen.job, 0
        template: PodTemplateSpec = template_of(job)

        async def create(index: int | None) -> Pod | None:
            nonlocal failures
            failed = seen.retained.get(index) if index is not None else None
            try:
                created = await self._control.create(job, new_pod(job, template, index, failed))
            except (ApiError, TransportError) as error:
                failures += 1
                run.memory.in_doubt = run.memory.in_doubt or may_be_done(error)
                raise
            if created is not None:
                run.memory.wrote_pod(created)
            return created

        batched = await slow_start(indexes, create)
        count = sum(pod is not None for pod in batched.done)
        self._metrics.created(seen, count, failures)
        return JobSyncResult(created=count, error=batched.error)

    async def _delete(self, run: _Run, pods: Sequence[Pod], *, release: bool) -> JobSyncResult:
        """Delete pods. With `release` the finalizer is removed first, for pods that will not be counted."""

        async def delete(pod: Pod) -> Pod:
            if release and is_tracked(pod):
                await self._untrack(run.memory, pod)
            await self._control.delete(run.job, pod)
            return pod

        batched = await slow_start(pods, delete)
        return JobSyncResult(deleted=batched.done, error=batched.error)

    def _with_suspension(self, seen: Observation, status: JobStatus) -> JobStatus:
        """Return the status with the condition Suspended. Record an event if the condition has changed."""
        after = with_suspension(seen, status, forgets_start=self._forgets_start)
        if after.conditions != status.conditions:
            reason, message = ("Suspended", JOB_SUSPENDED) if seen.job.spec.suspend else ("Resumed", JOB_RESUMED)
            self._events.normal(seen.job, reason, message)
        return after

    async def _settle(self, run: _Run, seen: Observation, accounts: Accounts, terminating: int) -> bool:
        """Count the finished pods as `accounting` decided. Return whether the job has ended."""
        await self._write(run, accounts.status)
        run.memory.backoff = seen.backoff
        self._metrics.matched(accounts.actions)
        batched = await slow_start(accounts.settled, lambda pod: self._untrack(run.memory, pod))
        tracked = {pod.metadata.uid for pod in seen.pods if is_tracked(pod)}
        counted = settle(run.job.status, tracked.difference(batched.done))
        if batched.error is not None:
            await self._write(run, counted)
            raise batched.error
        status = finish(seen, counted, accounts, terminating)
        await self._write(run, status)
        if status is counted or accounts.ending is None:
            return False
        self._report_end(run.job, accounts.ending)
        return True

    async def _write(self, run: _Run, status: JobStatus) -> None:
        before = run.job
        run.job = await update_status(self._client, JOBS, before, replace(before, status=status))
        if run.job is not before:
            run.memory.wrote_job(run.job)
            self._metrics.counted(run.job, before.status, run.job.status)

    async def _untrack(self, memory: Memory, pod: Pod) -> str:
        """Remove the finalizer of a pod, if present, and return its uid. A conflict is raised, since the pod may still
        have it.
        """
        try:
            changed = await self._control.patch(pod, RELEASE)
        except NotFound:
            return pod.metadata.uid
        memory.wrote_pod(changed)
        return pod.metadata.uid

    def _report_end(self, job: Job, ending: Condition) -> None:
        if ending.type != COMPLETE:
            self._events.warning(job, ending.reason, ending.message)
        else:
            if job.spec.completions is not None and job.status.succeeded > job.spec.completions:
                message = "Too many succeeded pods running after completion count reached"
                self._events.warning(job, "TooManySucceededPods", message)
            self._events.normal(job, "Completed", "Job completed")
        self._metrics.ended(job, ending)

    def _memory(self, key: Key, job: Job) -> Memory:
        found = self._memories.get(key)
        if found is None or found.uid != job.metadata.uid:
            found = self._memories[key] = Memory(job.metadata.uid)
        return found

    def _count_pod(self, change: Change[Pod]) -> None:
        was, is_now = map(_is_uncounted, (change.before, change.after))
        if was != is_now:
            self._metrics.tracking.add("add" if is_now else "delete")

    def _count_job(self, change: Change[Job]) -> None:
        if change.before is None and is_managed_elsewhere(change.object):
            self._metrics.external.add(change.object.spec.managed_by or "")


def _is_uncounted(pod: Pod | None) -> bool:
    return pod is not None and is_tracked(pod) and is_pod_terminal(pod)


def _active_after(seen: Observation, outcome: JobSyncResult) -> int:
    return len(seen.active) + outcome.created - len(outcome.deleted)


def _with_counts(seen: Observation, outcome: JobSyncResult) -> JobStatus:
    """Return the status with the pod counts after a sync, and with the start time of a job that starts."""
    status = seen.job.status
    started = status.start_time
    if started is None and not seen.job.spec.suspend:
        started = format_time(seen.now)
    return replace(
        status,
        start_time=started,
        active=_active_after(seen, outcome),
        ready=seen.ready - sum(map(is_pod_ready, outcome.deleted)),
        terminating=seen.terminating + len(outcome.deleted),
    )


def _requeue(seen: Observation, wanted: JobPlan, accounts: Accounts) -> Requeue | None:
    if accounts.partial:
        return Requeue(SHORTEST_REQUEUE)
    if accounts.ending is not None:
        return None  # the change of its last pod wakes the job
    seconds = min(until_deadline(seen.job, accounts.status.start_time, seen.now), wanted.again)
    return Requeue(max(seconds, 0.0)) if seconds < math.inf else None


SPECS = (
    ControllerSpec(
        name="job-controller",
        sharded_by=JOBS,
        queue="job",
        aliases=("job",),
        reconciler=JobController,
        options=JobOptions,
        workers=lambda options: options.concurrent_job_syncs,
        watches=(
            Mapped(JOBS, keys_of_new_state),
            Mapped(JOBS, keys_of_status, delay=lambda _: BATCH, echoes=False),
            Mapped(PODS, jobs_of_pod, indexes=BY_CONTROLLER, delay=lambda _: BATCH),
        ),
        rbac=(
            PolicyRule(groups=("batch",), resources=("jobs",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("batch",), resources=("jobs/status", "jobs/finalizers"), verbs=("update",)),
            PolicyRule(groups=("",), resources=("pods",), verbs=("create", "delete", "list", "patch", "watch")),
        ),
    ),
)
