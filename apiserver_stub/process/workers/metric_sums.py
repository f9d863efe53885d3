"""Metrics of several processes as one: sums that never fall, also where a process ends and another takes its place."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Literal, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from apiserver_stub.process.workers.control import FamilyReport
from controller_manager.common.base.metrics import Family, Shown, qualified

_ADDED = frozenset({"counter", "histogram", "summary"})
# Gauges that are equal in all processes, or whose maximum counts.
_GREATEST = frozenset({
    "aggregator_unavailable_apiservice", "apiserver_resource_objects", "apiserver_storage_objects",
    "disabled_metrics_total", "hidden_metrics_total", "kubernetes_build_info", "kubernetes_feature_enabled",
    "process_max_fds", "process_virtual_memory_max_bytes", "python_info", "registered_metrics_total", "version_info",
})  # fmt: skip
_LEAST = frozenset({"kubernetes_healthcheck", "process_start_time_seconds"})
_YIELD_AFTER = 500  # samples

_Key = tuple[str, tuple[tuple[str, str], ...]]


async def report(registry: CollectorRegistry) -> list[FamilyReport]:
    """Return the samples of a registry. Yields to the event loop when there are many series."""
    found: list[FamilyReport] = []
    count = 0
    for metric in registry.collect():
        samples = [(one.name, dict(one.labels), float(one.value)) for one in metric.samples]
        found.append(FamilyReport(metric.name, qualified(metric), metric.documentation, metric.type, samples))
        count += len(samples)
        if count >= _YIELD_AFTER:
            count = 0
            await asyncio.sleep(0)
    return found


def shown(families: Iterable[FamilyReport]) -> Iterator[Metric]:
    """Yield reported families as metrics."""
    for name, title, text, kind, samples in families:
        family = Family(title, text, cast("Literal['gauge']", kind))
        metric = Shown(family)
        metric.name, metric.documentation = name, text
        metric.samples = [Sample(sample, labels, value) for sample, labels, value in samples]
        yield metric


class MetricSums:
    """One page of metrics of several processes; pure.

    The counters of a process that has ended stay included, up to its last report.
    """

    def __init__(self) -> None:
        self._reports: dict[str, Sequence[FamilyReport]] = {}
        self._former: Sequence[FamilyReport] = ()

    def reported(self, process: str, families: Sequence[FamilyReport]) -> None:
        """Store the current metrics of a process."""
        self._reports[process] = families

    def gone(self, process: str) -> None:
        """A process has ended."""
        counted = [family for family in self._reports.pop(process, ()) if _adds(family)]
        self._former = _merged((self._former, counted))

    def families(self) -> list[FamilyReport]:
        """Return the families of all processes together."""
        return _merged((*self._reports.values(), self._former))


def _merged(reports: Iterable[Sequence[FamilyReport]]) -> list[FamilyReport]:
    heads: dict[str, FamilyReport] = {}
    values: dict[str, dict[_Key, float]] = {}
    for family in (family for families in reports for family in families):
        heads.setdefault(family.name, family)
        series, how = values.setdefault(family.name, {}), _rule(family)
        for name, labels, value in family.samples:
            key = name, tuple(sorted(labels.items()))
            series[key] = how(series[key], value) if key in series else value
    return [
        head._replace(samples=[(sample, dict(labels), value) for (sample, labels), value in values[name].items()])
        for name, head in heads.items()
    ]


def _rule(family: FamilyReport) -> Callable[[float, float], float]:
    """Return the function that combines the values of two processes."""
    if family.shown in _GREATEST or family.shown.endswith(("_info", "_timestamp_seconds")):
        return max
    return min if family.shown in _LEAST else add


def _adds(family: FamilyReport) -> bool:
    return family.type in _ADDED and _rule(family) is add
