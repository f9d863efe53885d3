"""Decides whether a job ends, and which pods to create or delete; pure.

state of the job (the first match counts)                    condition           reason
status has SuccessCriteriaMet                                the same            that of the condition
status has FailureTarget                                     Failed              that of the condition
a failed pod matches a FailJob rule                          FailureTarget       PodFailurePolicy
more failed pods, or restarts of containers                  FailureTarget       BackoffLimitExceeded
  (restartPolicy OnFailure), than backoffLimit allows
active for activeDeadlineSeconds                             FailureTarget       DeadlineExceeded
more failed indexes than maxFailedIndexes                    FailureTarget       MaxFailedIndexesExceeded
all indexes have ended, and one has failed                   FailureTarget       FailedIndexes
a rule of successPolicy is met                               SuccessCriteriaMet  SuccessPolicy
completions are reached (without completions: one pod has    SuccessCriteriaMet  CompletionsReached
  succeeded), and no pod is active

Pods, while the job does not end:

suspended                                    delete all active pods
more active pods than needed, or several of  delete them, those with the least progress first
  an index, or without a valid index
pods missing, and a recent failure           wait 10 s to 10 min
pods missing                                 create them, 500 at a time
"""

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from controller_manager.common.api.batch import FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, Job
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.core import Pod
from controller_manager.common.api.timestamps import format_time, time_of

from ..shared.pod_ranking import progress_of
from ..shared.pods import is_terminating
from .backoff import backoff_of_index
from .indexes import Indexes, index_of
from .observation import (
    Observation,
    completions_of,
    has_limit_per_index,
    is_failed,
    is_indexed,
    replaces_only_failed,
    restarts_on_failure,
    valid_index,
)
from .policies import FAIL_JOB, success_by, verdict_on

# Maximum number of pods that one reconcile creates or deletes.
MOST_PODS = 500
# Seconds in which changes are batched.
BATCH = 1.0

# The actions of a reconcile, as metric labels.
RECONCILING, TRACKING, PODS_CREATED, PODS_DELETED = "reconciling", "tracking", "pods_created", "pods_deleted"


class JobPlan(msgspec.Struct, frozen=True):
    """Pods to delete, or completion indexes (or None) of pods to create.

    `again` is the delay in seconds until the next reconcile, infinite if none is needed.
    """

    action: str = TRACKING
    delete: Sequence[Pod] = ()
    create: Sequence[int | None] = ()
    again: float = math.inf


def condition(kind: str, reason: str, message: str, now: datetime) -> Condition:
    """Return a condition of a job that has just become True."""
    at = format_time(now)
    return Condition(
        type=kind, status="True", last_probe_time=at, last_transition_time=at, reason=reason, message=message
    )


def ending_of(seen: Observation) -> Condition | None:
    """Return the condition that ends a job, by the table above except for its last row, or None."""
    conditions = seen.job.status.conditions
    success = condition_of(conditions, SUCCESS_CRITERIA_MET)
    if success is not None and success.status == "True":
        return success
    failure = condition_of(conditions, FAILURE_TARGET)
    if failure is not None and failure.status == "True":
        return condition(FAILED, failure.reason, failure.message, seen.now)
    reason, message = _failure(seen)
    if reason:
        return condition(FAILURE_TARGET, reason, message, seen.now)
    met = success_by(seen.job.spec.success_policy, completions_of(seen.job), seen.completed)
    return condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", met, seen.now) if met else None


def is_complete(seen: Observation, active: int) -> bool:
    """Return whether the last row of the table matches with that number of active pods."""
    wanted = seen.job.spec.completions
    return active == 0 and (seen.succeeded > 0 if wanted is None else seen.succeeded >= wanted)


def until_deadline(job: Job, started: str | None, now: datetime) -> float:
    """Return the seconds until the active deadline; infinite without a deadline or while the job is suspended."""
    since = time_of(started)
    if job.spec.active_deadline_seconds is None or since is None or job.spec.suspend:
        return math.inf
    return job.spec.active_deadline_seconds - (now - since).total_seconds()


def plan(seen: Observation) -> JobPlan:
    """Return the pods to create or delete for a job that has not ended."""
    if seen.job.spec.suspend:
        return JobPlan(PODS_DELETED, delete=_removable(seen, len(seen.active)))
    active, wanted = len(seen.active), _wanted(seen)
    superfluous = _removable(seen, max(0, active - wanted))[:MOST_PODS]
    if superfluous:
        return JobPlan(PODS_DELETED, delete=superfluous)
    occupied = active + (seen.terminating if replaces_only_failed(seen.job) else 0)
    return _creation(seen, wanted - occupied) if wanted > occupied else JobPlan()


def _failure(seen: Observation) -> tuple[str, str]:
    """Return the reason and the message of a job's failure, both empty if it has not failed."""
    job, spec = seen.job, seen.job.spec
    if message := _failed_by_policy(seen):
        return "PodFailurePolicy", message
    if seen.failed > spec.backoff_limit or (restarts_on_failure(job) and _restarted_too_often(seen)):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if until_deadline(job, job.status.start_time, seen.now) <= 0:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    failed = seen.failed_indexes
    if failed:
        if spec.max_failed_indexes is not None and len(failed) > spec.max_failed_indexes:
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        if len(failed) + len(seen.completed) >= completions_of(job):
            return "FailedIndexes", "Job has failed indexes"
    return "", ""


def _failed_by_policy(seen: Observation) -> str:
    policy = seen.job.spec.pod_failure_policy
    if policy is None:
        return ""
    verdicts = (verdict_on(policy, pod) for pod in seen.pods if is_failed(seen.job, pod))
    return next((one.message for one in verdicts if one.action == FAIL_JOB), "")


def _restarted_too_often(seen: Observation) -> bool:
    alive = [pod.status for pod in seen.pods if pod.status.phase in ("Running", "Pending")]
    restarts = sum(
        one.restart_count for status in alive for one in (*status.init_container_statuses, *status.container_statuses)
    )
    return restarts >= max(seen.job.spec.backoff_limit, 1)


def _wanted(seen: Observation) -> int:
    """Return how many pods should be active."""
    spec = seen.job.spec
    if spec.completions is None:
        return len(seen.active) if seen.succeeded > 0 else spec.parallelism
    return max(0, min(spec.completions - seen.succeeded, spec.parallelism))


def _creation(seen: Observation, missing: int) -> JobPlan:
    now, count = seen.now.timestamp(), min(missing, MOST_PODS)
    if not has_limit_per_index(seen.job):
        pause = seen.backoff.remaining(now)
        if pause > 0:
            return JobPlan(PODS_CREATED, again=max(pause, BATCH))
        if not is_indexed(seen.job):
            return JobPlan(PODS_CREATED, create=(None,) * count)
    indexes = pending_indexes(seen, count)
    pauses = {index: backoff_of_index(seen.retained.get(index)).remaining(now) for index in indexes}
    waits = [pause for pause in pauses.values() if pause > 0]
    ready = [index for index in indexes if not pauses[index]]
    return JobPlan(PODS_CREATED, create=ready, again=max(min(waits, default=math.inf), BATCH))


def pending_indexes(seen: Observation, count: int) -> list[int]:
    """Return the first `count` indexes that have not ended and have no pod."""
    taken = list(seen.active)
    if replaces_only_failed(seen.job):
        taken += [pod for pod in seen.pods if is_terminating(pod)]
    occupied = {index for pod in taken if (index := index_of(pod)) is not None}
    done = seen.completed | Indexes.of(occupied) | (seen.failed_indexes or Indexes())
    return done.first_missing(count, completions_of(seen.job))


def _removable(seen: Observation, at_least: int) -> Sequence[Pod]:
    """Return active pods to delete: those without a valid index, duplicates of an index, and others up to `at_least`
    pods.
    """
    first: list[Pod] = []
    others = sorted(seen.active, key=progress_of)
    if is_indexed(seen.job):
        best = {valid_index(seen.job, pod): pod for pod in others}
        best.pop(None, None)
        kept = {pod.metadata.uid for pod in best.values()}
        first = [pod for pod in others if pod.metadata.uid not in kept]
        others = sorted(best.values(), key=progress_of)
    return [*first, *others[: max(0, at_least - len(first))]]
