"""The metrics of the job controller, with the names of kube-controller-manager."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from controller_manager.common.api.batch import COMPLETE, Job, JobStatus
from controller_manager.common.api.conditions import Condition
from controller_manager.common.base.metrics import Counters, Family, Histograms

from ..shared.controlled import stale_syncs
from .indexes import Indexes
from .observation import Observation, completions_of, has_limit_per_index, is_indexed

_SYNC = ("completion_mode", "result", "action")
_DURATION = Family(
    "job_controller_job_sync_duration_seconds",
    "Seconds spent reconciling a job.",
    "histogram",
    _SYNC,
    tuple(0.004 * 2**step for step in range(15)),
    stability="STABLE",
)
_SYNCS = Family("job_controller_job_syncs_total", "Number of reconciles of jobs.", "counter", _SYNC, stability="STABLE")
_FINISHED = Family(
    "job_controller_jobs_finished_total",
    "Number of jobs that have finished.",
    "counter",
    ("completion_mode", "result", "reason"),
    stability="STABLE",
)
_PODS = Family(
    "job_controller_job_pods_finished_total",
    "Number of finished pods that were counted in the status of their job.",
    "counter",
    ("completion_mode", "result"),
    stability="STABLE",
)
_POLICY = Family(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "Number of failed pods that matched a rule of the pod failure policy of their job, by action of the rule.",
    "counter",
    ("action",),
    stability="BETA",
)
_TRACKING = Family(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "Number of finished pods that got the tracking finalizer of jobs (add) or lost it (delete).",
    "counter",
    ("event",),
    stability="BETA",
)
_INDEXES = Family(
    "job_controller_job_finished_indexes_total",
    "Number of finished indexes, by result and by kind of backoff limit: perIndex or global.",
    "counter",
    ("status", "backoffLimit"),
)
_CREATIONS = Family(
    "job_controller_job_pods_creation_total",
    "Number of pods that were created or failed to be created, by reason.",
    "counter",
    ("reason", "status"),
)
_EXTERNAL = Family(
    "job_controller_jobs_by_external_controller_total",
    "Number of jobs that another controller manages.",
    "counter",
    ("controller_name",),
)
_STALE = stale_syncs("job")


class JobMetrics:
    """The metrics of jobs and their pods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._duration = Histograms(_DURATION, registry)
        self._syncs = Counters(_SYNCS, registry)
        self._finished = Counters(_FINISHED, registry)
        self._pods = Counters(_PODS, registry)
        self._policy = Counters(_POLICY, registry)
        self._indexes = Counters(_INDEXES, registry)
        self._creations = Counters(_CREATIONS, registry)
        self._stale = Counters(_STALE, registry)
        self.tracking = Counters(_TRACKING, registry)
        self.external = Counters(_EXTERNAL, registry)

    def synced(self, job: Job, seconds: float, action: str, *, failed: bool) -> None:
        """Record one reconcile of a job."""
        labels = (_mode(job), "error" if failed else "success", action)
        self._duration.observe(seconds, *labels)
        self._syncs.add(*labels)

    def stale(self, resource: str) -> None:
        """Count a reconcile that found the cache of jobs or pods stale."""
        self._stale.add("batch" if resource == "jobs" else "", resource)

    def ended(self, job: Job, ending: Condition) -> None:
        """Count a job that has ended."""
        self._finished.add(_mode(job), "succeeded" if ending.type == COMPLETE else "failed", ending.reason)

    def created(self, seen: Observation, succeeded: int, failed: int) -> None:
        """Count pods that were created and pods that could not be created."""
        reason = _reason(seen)
        if succeeded:
            self._creations.add(reason, "succeeded", by=succeeded)
        if failed:
            self._creations.add(reason, "failed", by=failed)

    def matched(self, actions: Mapping[str, int]) -> None:
        """Count failed pods by the action of the rule that they matched."""
        for action, count in actions.items():
            self._policy.add(action, by=count)

    def counted(self, job: Job, before: JobStatus, after: JobStatus) -> None:
        """Count the pods and indexes by which a status exceeds the previous one."""
        succeeded = after.succeeded - before.succeeded
        if is_indexed(job):
            succeeded = _more(job, before.completed_indexes, after.completed_indexes)
            limit = "perIndex" if has_limit_per_index(job) else "global"
            self._add(self._indexes, ("succeeded", limit), succeeded)
            failed = _more(job, before.failed_indexes or "", after.failed_indexes or "")
            self._add(self._indexes, ("failed", limit), failed)
        self._add(self._pods, (_mode(job), "succeeded"), succeeded)
        self._add(self._pods, (_mode(job), "failed"), after.failed - before.failed)

    @staticmethod
    def _add(counters: Counters, labels: tuple[str, ...], count: int) -> None:
        if count > 0:
            counters.add(*labels, by=count)


def _mode(job: Job) -> str:
    return "Indexed" if is_indexed(job) else "NonIndexed"


def _reason(seen: Observation) -> str:
    """Return the reason for which pods are created: new pods or replacements."""
    if seen.failed > 0 and seen.job.spec.pod_replacement_policy == "Failed":
        return "recreate_failed"
    return "recreate_terminating_or_failed" if seen.failed > 0 or seen.terminating > 0 else "new"


def _more(job: Job, before: str, after: str) -> int:
    if before == after:
        return 0
    completions = completions_of(job)
    return len(Indexes.parse(after, completions)) - len(Indexes.parse(before, completions))
