"""The metrics of all control loops of one process: counts are read at scrape time, durations observed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate, repeat
from operator import mul
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.base.metrics import Family, Histograms, Shown

_NAME, _CONTROLLER = ("name",), ("controller",)
# Powers of ten as repeated multiplication makes them, since queries compare bounds as text.
_TENS = tuple(accumulate((1e-8, *repeat(10.0, 9)), mul))
# Seven of the 40 bounds controller-runtime has: each costs a series a controller.
_RECONCILE = (0.005, 0.025, 0.1, 0.5, 1.0, 10.0, 60.0)

# As client-go names them, by queue.
_WAITED = Family(
    "workqueue_queue_duration_seconds",
    "Seconds a key stays in the queue before it is worked on.",
    "histogram",
    _NAME,
    _TENS,
    stability="BETA",
)
_WORKED = Family(
    "workqueue_work_duration_seconds",
    "Seconds the work on a key takes.",
    "histogram",
    _NAME,
    _TENS,
    stability="BETA",
)
_DEPTH = Family("workqueue_depth", "Keys that are ready to be worked on.", "gauge", _NAME, stability="BETA")
_ADDS = Family("workqueue_adds_total", "Keys let into the queue.", "counter", _NAME, stability="BETA")
_RETRIES = Family("workqueue_retries_total", "Keys that came back after a failure.", "counter", _NAME, stability="BETA")
_UNFINISHED = Family(
    "workqueue_unfinished_work_seconds",
    "Seconds spent so far on keys still being worked on.",
    "gauge",
    _NAME,
    stability="BETA",
)
_LONGEST = Family(
    "workqueue_longest_running_processor_seconds", "Seconds of the longest of these.", "gauge", _NAME, stability="BETA"
)

# As controller-runtime names them, by controller.
_TOOK = Family(
    "controller_runtime_reconcile_time_seconds", "Seconds a reconcile takes.", "histogram", _CONTROLLER, _RECONCILE
)
_RESULTS = Family(
    "controller_runtime_reconcile_total",
    "Finished reconciles by result: success, requeue_after, requeue (the object changed meanwhile) or error.",
    "counter",
    ("controller", "result"),
)
_ERRORS = Family(
    "controller_runtime_reconcile_errors_total", "Reconciles that ended in an error.", "counter", _CONTROLLER
)
_GIVEN_UP = Family(
    "controller_runtime_terminal_reconcile_errors_total",
    "Of these, those that are not tried again before something changes.",
    "counter",
    _CONTROLLER,
)
_ACTIVE = Family("controller_runtime_active_workers", "Keys being worked on.", "gauge", _CONTROLLER)
_WORKERS = Family(
    "controller_runtime_max_concurrent_reconciles", "Keys that may be worked on at once.", "gauge", _CONTROLLER
)
_FAILING = Family(
    "controller_failing_keys", "Keys whose last run failed and which are tried again.", "gauge", _CONTROLLER
)
_UNSETTLED = Family(
    "controller_unsettled_writes_total",
    "Reconciles whose writes were not seen to come back in time.",
    "counter",
    _CONTROLLER,
)

# What two of these were called before.
_OLD_RESULTS = Family(
    "reconcile_total", "Finished reconciles by outcome.", "counter", ("name", "outcome"), deprecated="1.35"
)
_OLD_UNSETTLED = Family(
    "reconcile_unsettled_total", "Writes not seen to come back in time.", "counter", _NAME, deprecated="1.35"
)

# The outcome of a reconcile, as controller-runtime calls its result.
_RESULT_OF: Mapping[str, str] = {
    "done": "success",
    "requeue": "requeue_after",
    "conflict": "requeue",
    "error": "error",
    "give_up": "error",
}


class LoopSource(Protocol):
    """A loop, as it is read at scrape time; `name` is its controller's, `queue` what its queue is called."""

    name: str
    queue: str
    workers: int

    @property
    def depth(self) -> int:
        """Keys that are ready."""

    @property
    def adds(self) -> int:
        """Keys let in since the start."""

    @property
    def retries(self) -> int:
        """Keys that came back after a failure since the start."""

    @property
    def failing(self) -> int:
        """Keys whose last run failed and which are tried again."""

    def ages(self) -> list[float]:
        """Seconds each key being worked on has taken so far."""


class WorkMetrics(Collector):
    """One per process; a loop that is made anew under its name takes the place of the former one."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._sources: dict[str, LoopSource] = {}
        self.waited = Histograms(_WAITED, registry)
        self.worked = Histograms(_WORKED, registry)
        self.took = Histograms(_TOOK, registry)
        # By controller and outcome, and by controller.
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.unsettled: Counter[str] = Counter()
        if registry is not None:
            registry.register(self)

    def follow(self, source: LoopSource) -> None:
        """Report `source` from now on.

        What is done and what fails is counted from zero, since a rate does not see the first of a series; what hardly
        ever happens has no series before.
        """
        self._sources[source.name] = source
        for outcome in ("done", "error", "give_up"):
            self.outcomes[source.name, outcome] += 0

    def collect(self) -> Iterable[Metric]:
        """Return what is not observed but read; called by the registry."""
        yield from self._of_queues()
        yield from self._of_workers()
        results, errors = Counter[tuple[str, str]](), Counter[str]()
        for (name, outcome), count in self.outcomes.items():
            results[name, _RESULT_OF[outcome]] += count
            errors[name] += count if _RESULT_OF[outcome] == "error" else 0
        yield Shown(_RESULTS, results.items())
        yield Shown(_ERRORS, _by_name(errors))
        yield Shown(_GIVEN_UP, (((name,), self.outcomes[name, "give_up"]) for name in errors))
        yield Shown(_UNSETTLED, _by_name(self.unsettled))
        yield Shown(_OLD_RESULTS, self.outcomes.items())
        yield Shown(_OLD_UNSETTLED, _by_name(self.unsettled))

    def _of_queues(self) -> Iterable[Metric]:
        sources = [((source.queue,), source, source.ages()) for source in self._sources.values()]
        yield Shown(_DEPTH, ((name, source.depth) for name, source, _ in sources))
        yield Shown(_ADDS, ((name, source.adds) for name, source, _ in sources))
        yield Shown(_RETRIES, ((name, source.retries) for name, source, _ in sources))
        yield Shown(_UNFINISHED, ((name, sum(ages)) for name, _, ages in sources))
        yield Shown(_LONGEST, ((name, max(ages, default=0.0)) for name, _, ages in sources))

    def _of_workers(self) -> Iterable[Metric]:
        sources = self._sources.values()
        yield Shown(_ACTIVE, (((source.name,), len(source.ages())) for source in sources))
        yield Shown(_WORKERS, (((source.name,), source.workers) for source in sources))
        failing = ((source.name, source.failing) for source in sources)
        yield Shown(_FAILING, (((name,), count) for name, count in failing if count))


def _by_name(counts: Mapping[str, int]) -> Iterable[tuple[tuple[str], int]]:
    return (((name,), count) for name, count in counts.items())
