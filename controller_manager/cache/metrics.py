"""The metrics of all informers of one process, read from them at scrape time."""

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller_manager.cache.informer import Informer


class CacheMetrics(Collector):
    """Counts are of the process so far; `age` grows when the server has gone silent."""

    def __init__(self, informers: Iterable[Informer[Any]]) -> None:
        self._informers = informers

    def collect(self) -> Iterable[Metric]:
        """One sample of each family per informer; called by the registry."""
        objects = GaugeMetricFamily("informer_objects", "Objects held.", labels=["informer"])
        synced = GaugeMetricFamily("informer_synced", "1 once everything was read.", labels=["informer"])
        age = GaugeMetricFamily("informer_age_seconds", "Seconds since the server was heard.", labels=["informer"])
        lists = CounterMetricFamily("informer_lists", "Times everything was asked for.", labels=["informer"])
        watches = CounterMetricFamily("informer_watches", "Times a watch was resumed.", labels=["informer"])
        failures = CounterMetricFamily("informer_failures", "Requests that failed.", labels=["informer"])
        for informer in self._informers:
            labels, reflector = [str(informer.selection)], informer.reflector
            objects.add_metric(labels, len(informer))
            synced.add_metric(labels, informer.is_synced)
            age.add_metric(labels, informer.age())
            lists.add_metric(labels, reflector.lists)
            watches.add_metric(labels, reflector.watches)
            failures.add_metric(labels, reflector.failures)
        return (objects, synced, age, lists, watches, failures)
