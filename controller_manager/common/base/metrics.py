"""Metric families, each declared in one place, and their series, which are cheap to count.

A count is a plain number in a dictionary. The samples for Prometheus are created when it scrapes.
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

# Maximum number of series of a family. Further label values are counted in one more series with unexpected labels.
MOST_SERIES = 10_000


class Family(msgspec.Struct, frozen=True):
    """The declaration of a family: `name` is queried by users, `deprecated` is a minor version or empty."""

    name: str
    help: str
    type: Literal["counter", "gauge", "histogram"]
    labels: MetricLabels = ()
    buckets: tuple[float, ...] = ()
    stability: Stability = "ALPHA"
    deprecated: str = ""


class Shown(Metric):
    """A declared family with its series. The samples are created during iteration."""

    def __init__(
        self, family: Family, series: "Iterable[tuple[MetricLabels, float | Count | Distribution]]" = ()
    ) -> None:
        name = family.name.removesuffix("_total") if family.type == "counter" else family.name
        since = f"(Deprecated since {family.deprecated}.0) " if family.deprecated else ""
        super().__init__(name, f"[{family.stability}] {since}{family.help}", family.type)
        self.family = family
        self.samples = cast("list[Sample]", _Samples(family, tuple(series)))


class _Samples:
    """The samples of some series of a family. It can be iterated more than once."""

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


@cache  # every new registry asks for some hundred families
def _without_samples(family: Family) -> Shown:
    return Shown(family)


class Count:
    """A counter value that frequent callers may hold. With labels it is `shown` once it was counted, even with 0."""

    __slots__ = ("shown", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.shown = False


class Distribution:
    """The observations of one histogram: the number of values per bucket and their sum."""

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
        """Add the observations of another distribution with the same bounds."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def samples(self, name: str, labels: Mapping[str, str]) -> Iterator[Sample]:
        """Yield a sample per bucket, the sum and the count; nothing before the first observation."""
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
        """Drop all series and count no more, for a disabled family."""
        self._most = 0
        self._kept.clear()

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return (_without_samples(self.family),)

    def collect(self) -> Iterable[Metric]:
        """Return the family with its samples; called by the registry."""
        return (Shown(self.family, self._kept.items()),)

    @abstractmethod
    def _nothing(self) -> V:
        """Return the initial value, which a family without labels shows."""

    def _kept_with(self, labels: MetricLabels) -> V:
        """Return the series with these labels, and create it if necessary."""
        found = self._kept.get(labels)
        if found is None:
            found = self._nothing()
            if self._most:
                found = self._kept.setdefault(self._room(labels), found)
        return found

    def _room(self, labels: MetricLabels) -> MetricLabels:
        """Return the labels of a new series; they are unexpected if the family has too many series."""
        return labels if len(self._kept) < self._most else (UNEXPECTED,) * len(labels)


class Counters(Series[Count]):
    """Counters by labels."""

    def of(self, *labels: str) -> Count:
        """Return the counter with these labels."""
        return self._kept_with(labels)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Add one, or `by`."""
        kept = self._kept.get(labels) or self._kept_with(labels)
        kept.value += by
        kept.shown = True

    def _nothing(self) -> Count:
        return Count()


class Gauges(Series[float]):
    """Gauges by labels."""

    def set(self, value: float, *labels: str) -> None:
        """Set the value."""
        if self._most:
            self._kept[labels if labels in self._kept else self._room(labels)] = value

    def forget(self, *labels: str) -> None:
        """Remove the value with these labels."""
        self._kept.pop(labels, None)

    def _nothing(self) -> float:
        return 0.0


class Histograms(Series[Distribution]):
    """Histograms by labels."""

    def of(self, *labels: str) -> Distribution:
        """Return the distribution with these labels; frequent callers may hold it."""
        return self._kept_with(labels)

    def observe(self, value: float, *labels: str) -> None:
        """Count one value."""
        (self._kept.get(labels) or self._kept_with(labels)).observe(value)

    def _nothing(self) -> Distribution:
        return Distribution(self.family.buckets)


def qualified(metric: Metric) -> str:
    """Return the name of a family as flags and queries use it."""
    if isinstance(metric, Shown):
        return metric.family.name
    return metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")


def bound_text(bound: float) -> str:
    """Return the bound of a bucket as Go clients of Prometheus write it; queries compare it as text."""
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text.removesuffix(".0")
