"""The metrics registry of one process: shows the families that its rules allow, and counts them."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from controller_manager.common.base.metric_rules import UNEXPECTED, Allowed, MetricRules, Stability
from controller_manager.common.base.metrics import Counters, Family, Series, Shown, qualified

_REGISTERED = Family(
    "registered_metrics_total",
    "Number of registered metric families, by stability and deprecated version.",
    "counter",
    ("stability_level", "deprecated_version"),
    stability="BETA",
)
_HIDDEN = Family(
    "hidden_metrics_total", "Number of metric families hidden because they are deprecated.", "counter", stability="BETA"
)
_DISABLED = Family("disabled_metrics_total", "Number of disabled metric families.", "counter", stability="BETA")
_UNEXPECTED = Family(
    "cardinality_enforcement_unexpected_categorizations_total",
    "Number of exposed series with a label value that is not on its allow-list, counted on each scrape.",
    "counter",
)

# Labels that are part of a histogram or summary; they do not add to the cardinality.
_STRUCTURE = frozenset({"le", "quantile"})


class Registry(CollectorRegistry):
    """Shows the families that `rules` allow, and counts them. Set `rules` before anything is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = MetricRules()
        self._unexpected = 0
        self._by_family: dict[str, Collector] = {}

    def register(self, collector: Collector) -> None:
        """Add a collector. It is ignored if all its families are disabled.

        It replaces a collector of the same families: a restarted component counts from zero.
        """
        described = _described(collector)
        names = [qualified(metric) for metric in described]
        if names and self.rules.disabled.issuperset(names):
            if isinstance(collector, Series):
                collector.keep_nothing()
            return
        self._replace(described)
        super().register(collector)
        self._by_family.update((metric.name, collector) for metric in described)

    def unregister(self, collector: Collector) -> None:
        """Remove a collector."""
        super().unregister(collector)
        self._by_family = {name: one for name, one in self._by_family.items() if one is not collector}

    def _replace(self, described: Sequence[Metric]) -> None:
        families = [metric.family for metric in described if isinstance(metric, Shown)]
        former = self._by_family.get(described[0].name) if families else None
        if former is not None and [one.family for one in _described(former) if isinstance(one, Shown)] == families:
            self.unregister(former)

    def collect(self) -> Iterator[Metric]:
        """Yield the families that are neither disabled nor hidden, then the counts of families."""
        registered, hidden = Counters(_REGISTERED, None), 0
        for metric in super().collect():
            stability, deprecated = _standing(metric)
            if qualified(metric) in self.rules.disabled:
                continue
            if self.rules.hides(stability, deprecated):
                hidden += 1
                continue
            registered.add(stability, f"{deprecated}.0" if deprecated else "")
            yield self._constrained(metric)
        yield from self._about(registered, hidden)

    def _constrained(self, metric: Metric) -> Metric:
        allowed = self.rules.allowed.get(qualified(metric))
        if allowed:
            samples, unexpected = constrained(metric.samples, allowed)
            self._unexpected += unexpected
            metric = copy(metric)
            metric.samples = samples
        return metric

    def _about(self, registered: Counters, hidden: int) -> Iterator[Metric]:
        single = {_HIDDEN: hidden, _DISABLED: len(self.rules.disabled), _UNEXPECTED: self._unexpected}
        for family in (_REGISTERED, *single):
            registered.add(family.stability, "")
        yield from registered.collect()
        for family, value in single.items():
            yield Shown(family, [((), value)])


def _standing(metric: Metric) -> tuple[Stability, str]:
    return (metric.family.stability, metric.family.deprecated) if isinstance(metric, Shown) else ("ALPHA", "")


def _described(collector: Collector) -> list[Metric]:
    """Return the families that a collector declares, without their samples."""
    describe = getattr(collector, "describe", None)
    return [] if describe is None else list(describe())


def constrained(samples: Iterable[Sample], allowed: Allowed) -> tuple[list[Sample], int]:
    """Return the samples with label values that are not allowed replaced, and the number of replacements.

    Series that become equal are merged and their values are added; this includes gauges.
    """
    merged: dict[tuple[str, tuple[str, ...]], Sample] = {}
    replaced = 0
    for sample in samples:
        labels = {name: _one_of(allowed, name, value) for name, value in sample.labels.items()}
        replaced += labels != sample.labels and not _STRUCTURE.intersection(labels)
        key = (sample.name, tuple(labels.values()))
        found = merged.get(key)
        merged[key] = Sample(sample.name, labels, sample.value + (found.value if found is not None else 0.0))
    return list(merged.values()), replaced


def _one_of(allowed: Allowed, name: str, value: str) -> str:
    if name in _STRUCTURE or name not in allowed or value in allowed[name]:
        return value
    return UNEXPECTED
