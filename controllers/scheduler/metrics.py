"""The metrics of the scheduler, with the names of kube-scheduler."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.base.metrics import Counters, Family, Histograms, Shown

from .devices import DevicePlan
from .scheduler import Scheduler

PROFILE = "default-scheduler"
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
READY, LATE, FAILED = "success", "timeout", "failed"


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
_INCOMING = Family(
    "scheduler_queue_incoming_pods_total",
    "Pods that came to a queue, by what brought them there.",
    "counter",
    ("queue", "event"),
    stability="STABLE",
)
_UNSCHEDULABLE = Family(
    "scheduler_unschedulable_pods",
    "Pods for which there was no node, by who rejected nodes; a pod counts for each of them.",
    "gauge",
    ("plugin", "profile"),
    stability="BETA",
)
_CACHE = Family(
    "scheduler_cache_size",
    "What is known of the cluster: nodes, pods on nodes, and assumed_pods among them that are on their way.",
    "gauge",
    ("type",),
)
_READY = Family(
    "scheduler_dra_bindingconditions_allocations_total",
    "Devices that had to be made ready before their pod was bound, by driver, and by what came of it.",
    "counter",
    ("profile", "driver", "status"),
)
_CLAIMS_MADE = Family(
    "scheduler_resourceclaim_creates_total",
    "Claims to devices that were to be made for extended resources of pods, by status: success or failure.",
    "counter",
    ("status",),
)
_READY_AFTER = Family(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    "Seconds that pods waited for devices to be made ready.",
    "histogram",
    ("profile", "driver", "status"),
    _doubled(0.1, 14),
)


class SchedulerMetrics(Collector):
    """All metrics of the scheduler. Queue sizes are read when Prometheus scrapes."""

    def __init__(self, registry: CollectorRegistry, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._attempts = Counters(_ATTEMPTS, registry)
        self._attempt = Histograms(_ATTEMPT, registry)
        self.decision = Histograms(_DECISION, registry).of()
        self._attempts_of_pod = Histograms(_ATTEMPTS_OF_POD, registry).of()
        self._waited = Histograms(_WAITED, registry)
        self.preemptions = Counters(_PREEMPTIONS, registry)
        self.victims = Histograms(_VICTIMS, registry).of()
        self._ready = Counters(_READY, registry)
        self._ready_after = Histograms(_READY_AFTER, registry)
        self._claims_made = Counters(_CLAIMS_MADE, registry)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the families that are read from the scheduler."""
        return Shown(_PENDING), Shown(_INCOMING), Shown(_UNSCHEDULABLE), Shown(_CACHE)

    def collect(self) -> Iterable[Metric]:
        """Return the sizes of queues and caches; called by the registry."""
        queue, state = self._scheduler.queue, self._scheduler.state
        by = Counter(name for queued in queue.parked() for name in queued.by)
        size = {"nodes": len(state.order), "pods": len(state.pods), "assumed_pods": len(self._scheduler.binding)}
        yield Shown(_PENDING, [((name,), float(number)) for name, number in queue.pending().items()])
        yield Shown(_INCOMING, [(labels, float(number)) for labels, number in queue.incoming.items()])
        yield Shown(_UNSCHEDULABLE, [((name, PROFILE), float(number)) for name, number in by.items()])
        yield Shown(_CACHE, [((kind,), float(number)) for kind, number in size.items()])

    def devices_ready(self, plan: DevicePlan, status: str, seconds: float) -> None:
        """Record how long devices with binding conditions took to become ready or to fail."""
        for one in plan:
            allocation = one.allocation or one.claim.status.allocation
            for device in allocation.devices.results if allocation is not None else ():
                if device.binding_conditions:
                    self._ready.add(PROFILE, device.driver, status)
                    self._ready_after.observe(seconds, PROFILE, device.driver, status)

    def claim_made(self, status: str) -> None:
        """Count the creation of a claim."""
        self._claims_made.add(status)

    def attempted(self, result: str, seconds: float) -> None:
        """Record the end of an attempt."""
        self._attempts.add(result, PROFILE)
        self._attempt.observe(seconds, result, PROFILE)

    def scheduled(self, attempts: int, seconds: float) -> None:
        """Record that a pod was bound, with its number of attempts and the seconds since it was queued."""
        self._attempts_of_pod.observe(attempts)
        self._waited.observe(seconds, str(attempts) if attempts <= 15 else "15+")
