"""The metrics of all control loops of one process: counts are read at scrape time, durations observed."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10)


class Source(Protocol):
    """What a loop tells at scrape time."""

    name: str

    @property
    def depth(self) -> int:
        """Keys that are ready."""

    @property
    def adds(self) -> int:
        """Keys let in since the start."""

    @property
    def retries(self) -> int:
        """Keys that came back after a failure since the start."""

    def ages(self) -> list[float]:
        """Seconds each key being worked on has taken so far."""


class WorkMetrics(Collector):
    """One per process; a loop that is made anew under its name takes the place of the former one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sources: dict[str, Source] = {}
        registry.register(self)
        self.queue_duration = Histogram(
            "workqueue_queue_duration_seconds",
            "Seconds a key stays in the queue before it is worked on.",
            ["name"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.work_duration = Histogram(
            "workqueue_work_duration_seconds",
            "Seconds the work on a key takes.",
            ["name"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.outcomes = Counter(
            "reconcile_total",
            "Finished reconciles by outcome: done, requeue, give_up, conflict or error.",
            ["name", "outcome"],
            registry=registry,
        )

        self.unsettled = Counter(
            "reconcile_unsettled_total",
            "Keys whose writes were not seen to come back in time.",
            ["name"],
            registry=registry,
        )

    def follow(self, source: Source) -> None:
        """Report `source` from now on."""
        self._sources[source.name] = source

    def collect(self) -> Iterable[Metric]:
        """The families of `Source`; called by the registry."""
        depth = GaugeMetricFamily("workqueue_depth", "Keys that are ready to be worked on.", labels=["name"])
        adds = CounterMetricFamily("workqueue_adds", "Keys let into the queue.", labels=["name"])
        retries = CounterMetricFamily("workqueue_retries", "Keys that came back after a failure.", labels=["name"])
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds spent so far on keys still being worked on.", labels=["name"]
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Seconds of the longest of these.", labels=["name"]
        )
        for name, source in self._sources.items():
            ages = source.ages()
            depth.add_metric([name], source.depth)
            adds.add_metric([name], source.adds)
            retries.add_metric([name], source.retries)
            unfinished.add_metric([name], sum(ages))
            longest.add_metric([name], max(ages, default=0.0))
        return (depth, adds, retries, unfinished, longest)
