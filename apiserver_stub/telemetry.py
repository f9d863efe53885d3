"""How many requests were answered, with what status and how fast: counted cheaply, made into metrics when scraped."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from apiserver_stub.parse import Route

_LABELS = ("verb", "group", "version", "resource", "subresource", "scope")
_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 20.0, 30.0, 60.0)
_BOUNDS = (*(str(bound) for bound in _BUCKETS), "+Inf")
_VERBS = {"create": "POST", "update": "PUT"}


class _Key(NamedTuple):
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    code: int


class _Tally:
    """Answers of one key: how many, how long together, and how many of them within each bucket."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * len(_BOUNDS)

    def merge(self, other: "_Tally") -> None:
        """Add another's numbers."""
        self.count += other.count
        self.seconds += other.seconds
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Telemetry(Collector):
    """Counts answers. Only routes that address a known kind may be counted as themselves: names are not bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tallies: dict[_Key, _Tally] = {}
        registry.register(self)

    def count(self, route: Route, code: int, seconds: float) -> None:
        """Note one answer."""
        verb, _, group, version, resource, subresource, namespace, name = route
        scope = "" if not resource else "resource" if name else "namespace" if namespace else "cluster"
        key = _Key(verb, group, version, resource, subresource, scope, code)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        tally.count += 1
        tally.seconds += seconds
        tally.buckets[bisect_left(_BUCKETS, seconds)] += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics: a count by labels and code, and a histogram of durations by labels, watches left out."""
        total = CounterMetricFamily("apiserver_request", "Requests answered.", labels=(*_LABELS, "code"))
        duration = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time until an answer began, watches left out.", labels=_LABELS
        )
        timed: dict[tuple[str, ...], _Tally] = {}
        for key, tally in self._tallies.items():
            labels = (_VERBS.get(key.verb, key.verb.upper()), *key[1:6])
            total.add_metric((*labels, str(key.code)), tally.count)
            if key.verb != "watch":
                timed.setdefault(labels, _Tally()).merge(tally)
        for shown, tally in timed.items():
            buckets = list(zip(_BOUNDS, map(float, accumulate(tally.buckets)), strict=True))
            duration.add_metric(shown, buckets, tally.seconds)
        yield total
        yield duration
