"""The metrics of all control loops of one process. Counts are read at scrape time, durations are observed."""

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
# Powers of ten by repeated multiplication, as in Go, since queries compare bounds as text.
_TENS = tuple(accumulate((1e-8, *repeat(10.0, 9)), mul))
# Seven of controller-runtime's 40 bounds: each bound costs one series per controller.
_RECONCILE = (0.005, 0.025, 0.1, 0.5, 1.0, 10.0, 60.0)

# Names as in client-go, by queue.
_WAITED = Family(
    "workqueue_queue_duration_seconds",
    "Seconds a key waits in the queue before it is processed.",
    "histogram",
    _NAME,
    _TENS,
    stability="BETA",
)
_WORKED = Family(
    "workqueue_work_duration_seconds",
    "Seconds spent processing a key.",
    "histogram",
    _NAME,
    _TENS,
    stability="BETA",
)
_DEPTH = Family("workqueue_depth", "Number of keys ready to be processed.", "gauge", _NAME, stability="BETA")
_ADDS = Family("workqueue_adds_total", "Number of keys added to the queue.", "counter", _NAME, stability="BETA")
_RETRIES = Family("workqueue_retries_total", "Number of retries after a failure.", "counter", _NAME, stability="BETA")
_UNFINISHED = Family(
    "workqueue_unfinished_work_seconds",
    "Seconds spent so far on keys still being processed.",
    "gauge",
    _NAME,
    stability="BETA",
)
_LONGEST = Family(
    "workqueue_longest_running_processor_seconds",
    "Seconds spent so far on the longest-running key.",
    "gauge",
    _NAME,
    stability="BETA",
)

# Names as in controller-runtime, by controller.
_TOOK = Family(
    "controller_runtime_reconcile_time_seconds", "Seconds spent in a reconcile.", "histogram", _CONTROLLER, _RECONCILE
)
_RESULTS = Family(
    "controller_runtime_reconcile_total",
    "Number of finished reconciles by result: success, requeue_after, requeue (after a conflict) or error.",
    "counter",
    ("controller", "result"),
)
_ERRORS = Family(
    "controller_runtime_reconcile_errors_total", "Number of reconciles that ended in an error.", "counter", _CONTROLLER
)
_GIVEN_UP = Family(
    "controller_runtime_terminal_reconcile_errors_total",
    "Number of reconciles with a terminal error, which are not retried until something changes.",
    "counter",
    _CONTROLLER,
)
_ACTIVE = Family("controller_runtime_active_workers", "Number of keys being processed.", "gauge", _CONTROLLER)
_WORKERS = Family(
    "controller_runtime_max_concurrent_reconciles",
    "Maximum number of keys processed concurrently.",
    "gauge",
    _CONTROLLER,
)
_FAILING = Family(
    "controller_failing_keys", "Number of keys whose last run failed and that are retried.", "gauge", _CONTROLLER
)
_UNSETTLED = Family(
    "controller_unsettled_writes_total",
    "Number of reconciles whose writes the cache did not observe in time.",
    "counter",
    _CONTROLLER,
)

# Former names of two of these.
_OLD_RESULTS = Family(
    "reconcile_total", "Number of finished reconciles by outcome.", "counter", ("name", "outcome"), deprecated="1.35"
)
_OLD_UNSETTLED = Family(
    "reconcile_unsettled_total",
    "Number of reconciles whose writes the cache did not observe in time.",
    "counter",
    _NAME,
    deprecated="1.35",
)

# The result in controller-runtime's terms, by our outcome.
_RESULT_OF: Mapping[str, str] = {
    "done": "success",
    "requeue": "requeue_after",
    "conflict": "requeue",
    "error": "error",
    "give_up": "error",
}


class LoopSource(Protocol):
    """What the collector reads of a loop at scrape time. `name` is the controller, `queue` the name of its queue."""

    name: str
    queue: str
    workers: int

    @property
    def depth(self) -> int:
        """Number of ready keys."""

    @property
    def adds(self) -> int:
        """Number of keys added since the start."""

    @property
    def retries(self) -> int:
        """Number of retries since the start."""

    @property
    def failing(self) -> int:
        """Number of keys whose last run failed and that are retried."""

    def ages(self) -> list[float]:
        """Return for each running key the seconds since its start."""


class WorkMetrics(Collector):
    """The metrics of all loops; one instance per process. A new loop with the same name replaces the former one."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._sources: dict[str, LoopSource] = {}
        self.waited = Histograms(_WAITED, registry)
        self.worked = Histograms(_WORKED, registry)
        self.took = Histograms(_TOOK, registry)
        # Counts by controller and outcome, and by controller.
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.unsettled: Counter[str] = Counter()
        if registry is not None:
            registry.register(self)

    def follow(self, source: LoopSource) -> None:
        """Collect metrics of `source` from now on.

        Frequent outcomes start as series with zero, since `rate` ignores the first sample of a series. Rare outcomes
        have no series before they occur.
        """
        self._sources[source.name] = source
        for outcome in ("done", "error", "give_up"):
            self.outcomes[source.name, outcome] += 0

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics that are read at scrape time; called by the registry."""
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
