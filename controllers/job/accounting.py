"""Counts each finished pod of a job exactly once, even across restarts (KEP-2307); pure.

A pod keeps the tracking finalizer until it is counted. The order of the writes:

1. The status lists the uids of finished pods as uncounted (for an indexed job: the completed indexes) and the condition
   that the job is about to end.
2. The finalizer of these pods is removed.
3. The status counts the uncounted uids whose pods have no finalizer and drops them. It gets the final condition once
   nothing is left to count and no pod is terminating.

After an interruption the status says what is left to do: a listed uid is not listed again, and a uid whose pod has no
finalizer or is gone is counted by the next write.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.batch import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    JobStatus,
    UncountedTerminatedPods,
)
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.core import Pod
from controller_manager.common.api.timestamps import format_time

from .decide import condition
from .indexes import Indexes, index_of
from .observation import Observation, is_failed, is_indexed, is_tracked, may_count, valid_index
from .policies import verdict_on

# Maximum number of uncounted uids in a status, about 20 KB.
MOST_UNCOUNTED = 500

JOB_SUSPENDED, JOB_RESUMED = "Job suspended", "Job resumed"

_NONE = UncountedTerminatedPods()


class Accounts(msgspec.Struct, frozen=True):
    """The first status to write, the pods whose finalizer is removed next, and the final condition.

    `actions` counts the failed pods that matched a rule of the policy, by action. `partial` is true if more pods have
    finished than are counted at a time.
    """

    status: JobStatus
    settled: Sequence[Pod]
    ending: Condition | None
    actions: Mapping[str, int]
    partial: bool = False


def account(seen: Observation, status: JobStatus, ending: Condition | None) -> Accounts:
    """Return the writes for the finished pods of a job with this `status`. `ending` is the condition that
    ends the job.
    """
    status = settle(status, {pod.metadata.uid for pod in seen.pods if is_tracked(pod)})
    batch = _Batch(seen, ending)
    for pod in sorted(seen.pods, key=_index_order) if is_indexed(seen.job) else seen.pods:
        if is_tracked(pod) and batch.is_settled(pod):
            batch.add(pod)
            if batch.is_full(status):
                break
    uncounted = status.uncounted_terminated_pods or _NONE
    status = replace(
        status,
        uncounted_terminated_pods=UncountedTerminatedPods(
            succeeded=(*uncounted.succeeded, *batch.succeeded), failed=(*uncounted.failed, *batch.failed)
        ),
    )
    if is_indexed(seen.job):
        status = _with_indexes(seen, status, batch.completed)
    status, last = _with_interim_condition(seen, status, ending)
    return Accounts(status, batch.settled, last, batch.actions, batch.is_full(status))


class _Batch:
    """Collects the pods that are ready to be counted."""

    def __init__(self, seen: Observation, ending: Condition | None) -> None:
        self.settled: list[Pod] = []
        self.succeeded: list[str] = []
        self.failed: list[str] = []
        self.completed: list[int] = []
        self.actions: Counter[str] = Counter()
        self._seen = seen
        self._ending = ending
        self._known = seen.job.status.uncounted_terminated_pods or _NONE

    def is_settled(self, pod: Pod) -> bool:
        """Return whether the job needs no more information from a pod, because the pod or the job has ended.

        A failed pod is kept if its replacement has to inherit its failure count.
        """
        ends = self._ending is not None or self._seen.job.metadata.deletion_timestamp is not None
        if ends or pod.status.phase == "Succeeded":
            return True
        index = index_of(pod)
        retained = self._seen.retained.get(index) if index is not None else None
        return is_failed(self._seen.job, pod) and (retained is None or retained.metadata.uid != pod.metadata.uid)

    def add(self, pod: Pod) -> None:
        """Add a settled pod. If the job fails, an unfinished pod counts as failed."""
        uid, job = pod.metadata.uid, self._seen.job
        self.settled.append(pod)
        fails = self._ending is not None and self._ending.type != SUCCESS_CRITERIA_MET
        if pod.status.phase == "Succeeded" and uid not in self._known.failed:
            self._add_succeeded(pod)
        elif (is_failed(job, pod) or fails) and uid not in self._known.failed and may_count(job, pod):
            self._add_failed(pod)

    def is_full(self, status: JobStatus) -> bool:
        """Return whether the limit of uncounted pods is reached."""
        before = status.uncounted_terminated_pods or _NONE
        added = len(self.completed) + len(self.succeeded) + len(self.failed)
        return added + len(before.succeeded) + len(before.failed) >= MOST_UNCOUNTED

    def _add_succeeded(self, pod: Pod) -> None:
        if not is_indexed(self._seen.job):
            if pod.metadata.uid not in self._known.succeeded:
                self.succeeded.append(pod.metadata.uid)
            return
        index = valid_index(self._seen.job, pod)
        if index is not None and index not in self._seen.recorded:
            self.completed.append(index)

    def _add_failed(self, pod: Pod) -> None:
        verdict = verdict_on(self._seen.job.spec.pod_failure_policy, pod)
        if verdict.action:
            self.actions[verdict.action] += 1
        if verdict.counts:
            self.failed.append(pod.metadata.uid)


def settle(status: JobStatus, tracked: Collection[str]) -> JobStatus:
    """Return the status that counts the uncounted pods that are no longer `tracked`."""
    uncounted = status.uncounted_terminated_pods or _NONE
    succeeded = tuple(uid for uid in uncounted.succeeded if uid in tracked)
    failed = tuple(uid for uid in uncounted.failed if uid in tracked)
    return replace(
        status,
        succeeded=status.succeeded + len(uncounted.succeeded) - len(succeeded),
        failed=status.failed + len(uncounted.failed) - len(failed),
        uncounted_terminated_pods=UncountedTerminatedPods(succeeded=succeeded, failed=failed),
    )


def finish(seen: Observation, status: JobStatus, accounts: Accounts, terminating: int) -> JobStatus:
    """Return the final status of a job, or the same status if pods are still uncounted or terminating."""
    uncounted = status.uncounted_terminated_pods or _NONE
    ending = accounts.ending
    if ending is None or accounts.partial or uncounted.succeeded or uncounted.failed or terminating > 0:
        return status
    at = format_time(seen.now)
    ended = replace(status, conditions=with_status(status.conditions, ending))
    return replace(ended, completion_time=at) if ending.type == COMPLETE else ended


def with_suspension(seen: Observation, status: JobStatus, *, forgets_start: bool) -> JobStatus:
    """Return the status with the condition Suspended. A resumed job gets a new start time.

    `forgets_start` removes the start time of a suspended job.
    """
    known = condition_of(status.conditions, SUSPENDED)
    was_suspended = known is not None and known.status == "True"
    if was_suspended == seen.job.spec.suspend:
        return status
    if seen.job.spec.suspend:
        new = condition(SUSPENDED, "JobSuspended", JOB_SUSPENDED, seen.now)
        started = None if forgets_start else status.start_time
    else:
        new = replace(condition(SUSPENDED, "JobResumed", JOB_RESUMED, seen.now), status="False")
        started = format_time(seen.now)
    return replace(status, conditions=with_status(status.conditions, new), start_time=started)


def with_status(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """Return `conditions` with `new` in place of its type, unless status, reason and message are equal."""
    known = condition_of(conditions, new.type)
    if known is None:
        return (*conditions, new)
    if (known.status, known.reason, known.message) == (new.status, new.reason, new.message):
        return conditions
    return tuple(new if one is known else one for one in conditions)


def _with_indexes(seen: Observation, status: JobStatus, completed: Sequence[int]) -> JobStatus:
    all_completed = seen.completed | Indexes.of(completed)
    failed = str(seen.failed_indexes) if seen.failed_indexes is not None else None
    return replace(status, succeeded=len(all_completed), completed_indexes=str(all_completed), failed_indexes=failed)


def _with_interim_condition(
    seen: Observation, status: JobStatus, ending: Condition | None
) -> tuple[JobStatus, Condition | None]:
    """Return the status with the interim condition, and the final condition that follows it."""
    if ending is None:
        return status, None
    if ending.type == FAILED:
        return status, ending
    known = condition_of(status.conditions, ending.type)
    if known is None or known.status != "True":
        status = replace(status, conditions=with_status(status.conditions, ending))
    last = FAILED if ending.type == FAILURE_TARGET else COMPLETE
    return status, condition(last, ending.reason, ending.message, seen.now)


def _index_order(pod: Pod) -> int:
    """Return a sort key that puts pods without an index first."""
    index = index_of(pod)
    return -1 if index is None else index
