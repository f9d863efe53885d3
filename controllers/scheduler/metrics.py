"""The metrics of the scheduler, by the names that dashboards know."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.base.metrics import Counters, Family, Histograms, Shown

PROFILE = "default-scheduler"
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"


def _doubled(first: float, number: int) -> tuple[float, ...]:
    return tuple(first * 2**power for power in range(number))


_ATTEMPTS = Family(
    "scheduler_schedule_attempts_total",
    "Attempts to schedule pods, by result: scheduled, unschedulable, or an error.",
    "counter",
    ("result", "profile"),
    stability="STABLE",
)
_ATTEMPT = Family(
    "scheduler_scheduling_attempt_duration_seconds",
    "Seconds of an attempt to schedule a pod, until it was bound.",
    "histogram",
    ("result", "profile"),
    _doubled(0.001, 15),
    stability="STABLE",
)
_DECISION = Family(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Seconds that finding a node for a pod took.",
    "histogram",
    buckets=_doubled(0.001, 15),
)
_ATTEMPTS_OF_POD = Family(
    "scheduler_pod_scheduling_attempts",
    "Attempts that it took to schedule a pod.",
    "histogram",
    buckets=_doubled(1, 5),
    stability="STABLE",
)
_WAITED = Family(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Seconds from when a pod began to wait until it was bound, by attempts.",
    "histogram",
    ("attempts",),
    _doubled(0.01, 20),
    stability="BETA",
)
_PREEMPTIONS = Family(
    "scheduler_preemption_attempts_total", "Attempts to make room for a pod.", "counter", stability="STABLE"
)
_VICTIMS = Family(
    "scheduler_preemption_victims",
    "Pods that had to go to make room for one.",
    "histogram",
    buckets=_doubled(1, 7),
    stability="STABLE",
)
_PENDING = Family(
    "scheduler_pending_pods",
    "Pods that wait, by queue: active, backoff, unschedulable or gated.",
    "gauge",
    ("queue",),
    stability="STABLE",
)


class SchedulerMetrics(Collector):
    """All of them. How many pods wait is asked of `pending` when somebody reads."""

    def __init__(self, registry: CollectorRegistry, pending: Callable[[], Mapping[str, int]]) -> None:
        self._pending = pending
        self._attempts = Counters(_ATTEMPTS, registry)
        self._attempt = Histograms(_ATTEMPT, registry)
        self.decision = Histograms(_DECISION, registry).of()
        self._attempts_of_pod = Histograms(_ATTEMPTS_OF_POD, registry).of()
        self._waited = Histograms(_WAITED, registry)
        self.preemptions = Counters(_PREEMPTIONS, registry)
        self.victims = Histograms(_VICTIMS, registry).of()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The family that is read from the queue."""
        return (Shown(_PENDING),)

    def collect(self) -> Iterable[Metric]:
        """How many pods wait; called by the registry."""
        return (Shown(_PENDING, [((queue,), float(number)) for queue, number in self._pending().items()]),)

    def attempted(self, result: str, seconds: float) -> None:
        """An attempt has ended."""
        self._attempts.add(result, PROFILE)
        self._attempt.observe(seconds, result, PROFILE)

    def scheduled(self, attempts: int, seconds: float) -> None:
        """A pod was bound after so many attempts, so many seconds after it came."""
        self._attempts_of_pod.observe(attempts)
        self._waited.observe(seconds, str(attempts) if attempts <= 15 else "15+")
