"""Families of metrics, each declared in one place, and their series, which cost little to count.

Counting is a dictionary entry of plain numbers; what Prometheus wants to read of it is made when it asks.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Generic, Literal, TypeVar, cast

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from controller_manager.common.base.metric_rules import UNEXPECTED, Stability

V = TypeVar("V", float, "Count", "Distribution")
MetricLabels = tuple[str, ...]

# A family holds so many series; whatever else is counted goes into one more, whose labels are all unexpected.
MOST_SERIES = 10_000


class Family(msgspec.Struct, frozen=True):
    """A family as it is declared: `name` is what people query, `deprecated` the minor version since when it is."""

    name: str
    help: str
    type: Literal["counter", "gauge", "histogram"]
    labels: MetricLabels = ()
    buckets: tuple[float, ...] = ()
    stability: Stability = "ALPHA"
    deprecated: str = ""


class Shown(Metric):
    """A declared family with its series; the samples are made as somebody goes through them."""

    def __init__(
        self, family: Family, series: "Iterable[tuple[MetricLabels, float | Count | Distribution]]" = ()
    ) -> None:
        name = family.name.removesuffix("_total") if family.type == "counter" else family.name
        since = f"(Deprecated since {family.deprecated}.0) " if family.deprecated else ""
        super().__init__(name, f"[{family.stability}] {since}{family.help}", family.type)
        self.family = family
        self.samples = cast("list[Sample]", _Samples(family, tuple(series)))


class _Samples:
    """The samples of some series of a family, as often as they are asked for."""

    def __init__(self, family: Family, series: "Sequence[tuple[MetricLabels, float | Count | Distribution]]") -> None:
        self._family = family
        self._series = series

    def __iter__(self) -> Iterator[Sample]:
        name, names = self._family.name, self._family.labels
        for values, kept in self._series:
            labels = dict(zip(names, values, strict=True))
            if isinstance(kept, Distribution):
                yield from kept.samples(name, labels)
            elif not isinstance(kept, Count):
                yield Sample(name, labels, kept)
            elif kept.shown or kept.value or not names:
                yield Sample(name, labels, kept.value)


@cache  # there are some hundred families, which every new registry asks for
def _without_samples(family: Family) -> Shown:
    return Shown(family)


class Count:
    """A count, to be kept by whoever counts often; with labels it is `shown` once somebody counted, be it nothing."""

    __slots__ = ("shown", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.shown = False


class Distribution:
    """The observations of one histogram: how many values within each bound and beyond the last, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def merge(self, other: "Distribution") -> None:
        """Add what another one with the same bounds observed."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def samples(self, name: str, labels: Mapping[str, str]) -> Iterator[Sample]:
        """A bucket for each bound, the sum and the count; nothing before anything was observed."""
        if not any(self.counts):
            return
        bounds = (*map(bound_text, self.bounds), "+Inf")
        reached = tuple(accumulate(self.counts))
        for bound, count in zip(bounds, reached, strict=True):
            yield Sample(f"{name}_bucket", {**labels, "le": bound}, count)
        yield Sample(f"{name}_sum", {**labels}, self.sum)
        yield Sample(f"{name}_count", {**labels}, reached[-1])


class Series(Collector, Generic[V]):
    """The series of one family by their labels."""

    def __init__(self, family: Family, registry: CollectorRegistry | None) -> None:
        self.family = family
        self._kept: dict[MetricLabels, V] = {}
        self._most = MOST_SERIES
        if not family.labels:
            self._kept[()] = self._nothing()
        if registry is not None:
            registry.register(self)

    def keep_nothing(self) -> None:
        """Nobody will ever ask."""
        self._most = 0
        self._kept.clear()

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        return (_without_samples(self.family),)

    def collect(self) -> Iterable[Metric]:
        """The family with its samples; called by the registry."""
        return (Shown(self.family, self._kept.items()),)

    @abstractmethod
    def _nothing(self) -> V:
        """Return what there is before anything was counted, which a family without labels shows."""

    def _kept_with(self, labels: MetricLabels) -> V:
        """Return the series with these labels, one of its own where there is room."""
        found = self._kept.get(labels)
        if found is None:
            found = self._nothing()
            if self._most:
                found = self._kept.setdefault(self._room(labels), found)
        return found

    def _room(self, labels: MetricLabels) -> MetricLabels:
        """Return where a new series goes."""
        return labels if len(self._kept) < self._most else (UNEXPECTED,) * len(labels)


class Counters(Series[Count]):
    """Counts by labels."""

    def of(self, *labels: str) -> Count:
        """The count with these labels."""
        return self._kept_with(labels)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Count one, or `by`."""
        kept = self._kept.get(labels) or self._kept_with(labels)
        kept.value += by
        kept.shown = True

    def _nothing(self) -> Count:
        return Count()


class Gauges(Series[float]):
    """Values by labels."""

    def set(self, value: float, *labels: str) -> None:
        """The value is this now."""
        if self._most:
            self._kept[labels if labels in self._kept else self._room(labels)] = value

    def forget(self, *labels: str) -> None:
        """There is no such value any more."""
        self._kept.pop(labels, None)

    def _nothing(self) -> float:
        return 0.0


class Histograms(Series[Distribution]):
    """Distributions by labels."""

    def of(self, *labels: str) -> Distribution:
        """The distribution with these labels, to be kept by whoever observes often."""
        return self._kept_with(labels)

    def observe(self, value: float, *labels: str) -> None:
        """Count one value."""
        (self._kept.get(labels) or self._kept_with(labels)).observe(value)

    def _nothing(self) -> Distribution:
        return Distribution(self.family.buckets)


def qualified(metric: Metric) -> str:
    """The name that flags and people call a family by."""
    if isinstance(metric, Shown):
        return metric.family.name
    return metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")


def bound_text(bound: float) -> str:
    """The bound of a bucket as Prometheus clients in Go write it, which queries compare as text."""
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text.removesuffix(".0")
