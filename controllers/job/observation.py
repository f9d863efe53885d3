"""A snapshot of a job and its pods: active pods, finished pods not counted yet, and indexes; pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from controller_manager.common.api.batch import INDEXED, JOB_TRACKING, Job, PodFailurePolicy, UncountedTerminatedPods
from controller_manager.common.api.core import Pod, is_pod_ready
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import PLATFORM_DOMAIN

from ..shared.pods import is_active, is_terminating
from .backoff import INDEX_FAILURES, INDEX_IGNORED, JobBackoff, failures_before, finished_at
from .indexes import Indexes, index_of
from .policies import FAIL_INDEX, verdict_on

MANAGER = f"{PLATFORM_DOMAIN}/job-controller"

_REPLACE_FAILED = "Failed"


class _TemplateSpec(Model):
    restart_policy: str = ""


_TEMPLATE_SPEC = Decoder(_TemplateSpec)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of a job.

    `fresh_succeeded` and `fresh_failed` are finished pods that the status does not list. `succeeded` and `failed`
    include them, except ignored failures. `recorded` are the completed indexes of the status, `completed` are all
    completed indexes. `retained` are the failed pods, by index, that are kept until their replacement inherits their
    failure count. `backoff` includes the fresh pods.
    """

    job: Job
    pods: Sequence[Pod]
    now: datetime
    active: Sequence[Pod]
    ready: int
    terminating: int
    fresh_succeeded: Sequence[Pod]
    fresh_failed: Sequence[Pod]
    succeeded: int
    failed: int
    recorded: Indexes
    completed: Indexes
    failed_indexes: Indexes | None
    retained: Mapping[int, Pod]
    backoff: JobBackoff


def observe(job: Job, pods: Sequence[Pod], backoff: JobBackoff, now: datetime) -> Observation:
    """Return the observed state of a job and the pods that it controls. `backoff` is the previous value."""
    uncounted = job.status.uncounted_terminated_pods or UncountedTerminatedPods()
    active = [pod for pod in pods if is_active(pod)]
    fresh = [pod for pod in pods if is_tracked(pod) and may_count(job, pod)]
    succeeded = [
        pod for pod in fresh if pod.status.phase == "Succeeded" and pod.metadata.uid not in uncounted.succeeded
    ]
    failed = [pod for pod in fresh if is_failed(job, pod) and pod.metadata.uid not in uncounted.failed]
    policy = job.spec.pod_failure_policy
    recorded = Indexes.parse(job.status.completed_indexes, completions_of(job)) if is_indexed(job) else Indexes()
    completed = recorded | _indexes(pod for pod in fresh if is_indexed(job) and pod.status.phase == "Succeeded")
    failed_indexes = _failed_indexes(job, fresh) if has_limit_per_index(job) else None
    done = completed | (failed_indexes or Indexes()) | _indexes(active)
    counted = job.status.succeeded + len(uncounted.succeeded) + len(succeeded)
    return Observation(
        job=job,
        pods=pods,
        now=now,
        active=active,
        ready=sum(map(is_pod_ready, active)),
        terminating=sum(map(is_terminating, pods)),
        fresh_succeeded=succeeded,
        fresh_failed=failed,
        succeeded=len(completed) if is_indexed(job) else counted,
        failed=job.status.failed + len(uncounted.failed) + _counted(policy, failed),
        recorded=recorded,
        completed=completed,
        failed_indexes=failed_indexes,
        retained=_retained(job, fresh, done) if failed_indexes is not None else {},
        backoff=backoff.after(succeeded, failed),
    )


def is_managed_elsewhere(job: Job) -> bool:
    """Return whether another controller manages the job (KEP-4368)."""
    return job.spec.managed_by not in (None, MANAGER)


def is_indexed(job: Job) -> bool:
    """Return whether the job is indexed: each pod has an index, and each index has to succeed once."""
    return job.spec.completion_mode == INDEXED


def has_limit_per_index(job: Job) -> bool:
    """Return whether the job has a backoff limit per index (KEP-3850)."""
    return is_indexed(job) and job.spec.backoff_limit_per_index is not None


def completions_of(job: Job) -> int:
    """Return the number of indexes of an indexed job."""
    return job.spec.completions or 0


def replaces_only_failed(job: Job) -> bool:
    """Return whether terminating pods are replaced only when they have ended (KEP-3939)."""
    return job.spec.pod_replacement_policy == _REPLACE_FAILED or job.spec.pod_failure_policy is not None


def restarts_on_failure(job: Job) -> bool:
    """Return whether the kubelet restarts failed containers of a job's pods."""
    return _TEMPLATE_SPEC.decode(job.spec.template.spec or b"{}").restart_policy == "OnFailure"


def is_tracked(pod: Pod) -> bool:
    """Return whether a pod has the tracking finalizer and is not counted yet."""
    return JOB_TRACKING in pod.metadata.finalizers


def is_failed(job: Job, pod: Pod) -> bool:
    """Return whether a pod counts as failed. This includes terminating pods, unless the job waits for their end."""
    if pod.status.phase == "Failed":
        return True
    is_ending = pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"
    return is_ending and not replaces_only_failed(job)


def valid_index(job: Job, pod: Pod) -> int | None:
    """Return the index of a pod if it is valid for the job, or None."""
    index = index_of(pod)
    return index if index is not None and index < completions_of(job) else None


def may_count(job: Job, pod: Pod) -> bool:
    """Return whether a pod may count for a job. Pods of an indexed job need a valid index."""
    return not is_indexed(job) or valid_index(job, pod) is not None


def _counted(policy: PodFailurePolicy | None, failed: Iterable[Pod]) -> int:
    return sum(verdict_on(policy, pod).counts for pod in failed)


def _indexes(pods: Iterable[Pod]) -> Indexes:
    found = {index_of(pod) for pod in pods}
    return Indexes.of(index for index in found if index is not None)


def _failed_indexes(job: Job, fresh: Iterable[Pod]) -> Indexes:
    before = Indexes.parse(job.status.failed_indexes or "", completions_of(job))
    return before | _indexes(pod for pod in fresh if _fails_index(job, pod))


def _fails_index(job: Job, pod: Pod) -> bool:
    """Return whether a failed pod makes its index fail."""
    if not is_failed(job, pod):
        return False
    verdict = verdict_on(job.spec.pod_failure_policy, pod)
    limit = job.spec.backoff_limit_per_index or 0
    return verdict.action == FAIL_INDEX or (verdict.counts and failures_before(pod, INDEX_FAILURES) >= limit)


def _retained(job: Job, fresh: Iterable[Pod], done: Indexes) -> dict[int, Pod]:
    """Return the last failed pod of each index that will be retried."""
    found: dict[int, Pod] = {}
    for pod in fresh:
        index = valid_index(job, pod)
        if index is None or index in done or not is_failed(job, pod):
            continue
        other = found.get(index)
        if other is None or (_failures(other) <= _failures(pod) and finished_at(other) <= finished_at(pod)):
            found[index] = pod
    return found


def _failures(pod: Pod) -> int:
    return failures_before(pod, INDEX_FAILURES) + failures_before(pod, INDEX_IGNORED)
