"""Metrics of priority and fairness, with the names, labels and buckets of kube-apiserver.

Little is counted per request; values derived from that, and from the state of the levels, are computed at each scrape.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.flow_control.priority_levels import PriorityLevel, PriorityLevels
from apiserver_stub.flow_control.queue_set import Rejection
from apiserver_stub.flow_control.seat_requests import SeatRequest
from controller_manager.common.base.metric_rules import UNEXPECTED
from controller_manager.common.base.metrics import MOST_SERIES, Distribution, Family, MetricLabels, Shown

_LEVEL = ("priority_level",)
_SCHEMA = ("priority_level", "flow_schema")
_SECONDS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
_LENGTHS = (0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)
_NANOSECONDS = 1e9
_IDLE = (0, 0, 0, 0)
_PREFIX = "apiserver_flowcontrol_"


def _gauge(name: str, help_: str, labels: MetricLabels, *, beta: bool = False, deprecated: str = "") -> Family:
    return Family(_PREFIX + name, help_, "gauge", labels, stability="BETA" if beta else "ALPHA", deprecated=deprecated)


def _histogram(
    name: str, help_: str, labels: MetricLabels, buckets: tuple[float, ...], *, beta: bool = False
) -> Family:
    return Family(_PREFIX + name, help_, "histogram", labels, buckets, stability="BETA" if beta else "ALPHA")


_REJECTED = Family(
    f"{_PREFIX}rejected_requests_total",
    "Number of rejected requests, by reason.",
    "counter",
    (*_SCHEMA, "reason"),
    stability="BETA",
)
_DISPATCHED = Family(
    f"{_PREFIX}dispatched_requests_total", "Number of executed requests.", "counter", _SCHEMA, stability="BETA"
)
_NO_ROOM = Family(
    f"{_PREFIX}request_dispatch_no_accommodation_total",
    "Number of dispatch attempts without enough free seats.",
    "counter",
    _SCHEMA,
)
_INQUEUE = _gauge("current_inqueue_requests", "Number of queued requests.", _SCHEMA, beta=True)
_INQUEUE_SEATS = _gauge("current_inqueue_seats", "Number of seats of queued requests.", _SCHEMA)
_ALL_INQUEUE = Family(
    "apiserver_current_inqueue_requests", "Number of queued requests, by request kind.", "gauge", ("request_kind",)
)
_EXECUTING = _gauge("current_executing_requests", "Number of executing requests.", _SCHEMA, beta=True)
_EXECUTING_SEATS = _gauge("current_executing_seats", "Seats that requests have.", _SCHEMA, beta=True)
_IN_USE = _gauge("request_concurrency_in_use", "Seats that requests have.", _SCHEMA)
_WAITED = _histogram(
    "request_wait_duration_seconds",
    "Seconds spent waiting by requests of levels with queues, by whether they were executed.",
    (*_SCHEMA, "execute"),
    _SECONDS,
    beta=True,
)
_EXECUTED = _histogram(
    "request_execution_seconds",
    "Seconds that requests held seats; watches (type watch) until their initial events were sent.",
    (*_SCHEMA, "type"),
    _SECONDS,
)
_LENGTH = _histogram(
    "request_queue_length_after_enqueue", "Length of the queue after a request was added.", _SCHEMA, _LENGTHS
)
_ESTIMATED = _histogram(
    "work_estimated_seats",
    "Number of estimated seats of requests.",
    _SCHEMA,
    (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0),
)
_WATCHES = _histogram(
    "watch_count_samples",
    "Number of watches that a write may notify.",
    _SCHEMA,
    (0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0),
)
_SEAT_UTILIZATION = _histogram(
    "priority_level_seat_utilization",
    "Fraction of the level's seats in use, sampled each nanosecond.",
    ("priority_level", "phase"),
    (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0),
)
_REQUEST_UTILIZATION = _histogram(
    "priority_level_request_utilization",
    "Fraction of the maximum number of executing or waiting requests, sampled each nanosecond.",
    ("phase", "priority_level"),
    (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0),
)
_DEMAND = _histogram(
    "demand_seats",
    "Fraction of the level's seats that requests hold or wait for, sampled each nanosecond.",
    _LEVEL,
    (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0),
)
_FAIR_FRACTION = _gauge("seat_fair_frac", "Fraction of its target that a level gets within its limits.", ())
_OF_LEVELS: Mapping[Family, Callable[[PriorityLevel], float]] = MappingProxyType({
    _gauge("request_concurrency_limit", "Seats of a level by its share.", _LEVEL): (
        lambda level: level.limits.nominal
    ),
    _gauge("nominal_limit_seats", "Seats of a level by its share.", _LEVEL, beta=True): (
        lambda level: level.limits.nominal
    ),
    _gauge("lower_limit_seats", "Minimum number of seats of a level.", _LEVEL): lambda level: level.limits.lower,
    _gauge("upper_limit_seats", "Maximum number of seats of a level.", _LEVEL): lambda level: level.limits.upper,
    _gauge("current_limit_seats", "Current number of seats of a level.", _LEVEL): lambda level: level.queues.limit,
    _gauge("demand_seats_high_watermark", "Highest demand of the last period.", _LEVEL): (
        lambda level: level.demand.highest
    ),
    _gauge("demand_seats_average", "Average demand of the last period.", _LEVEL): lambda level: level.demand.average,
    _gauge("demand_seats_stdev", "Standard deviation of demand in the last period.", _LEVEL): (
        lambda level: level.demand.deviation
    ),
    _gauge("demand_seats_smoothed", "Smoothed demand.", _LEVEL): lambda level: level.smoothed,
    _gauge("target_seats", "Target number of seats of a level.", _LEVEL): lambda level: level.target,
    _gauge("current_r", "The virtual time of a level.", _LEVEL): lambda level: level.queues.r,
})  # fmt: skip


class SchemaCounts:
    """The counters of one schema in one level. A request with one seat and no wait costs one addition and one
    observation.
    """

    __slots__ = (
        "dispatched",
        "estimated",
        "execution",
        "lengths",
        "refusals",
        "refused",
        "wait",
        "watches",
        "watching",
    )

    def __init__(self) -> None:
        self.dispatched = 0
        self.refused = 0
        self.refusals: dict[str, int] = {}
        self.execution, self.watching = Distribution(_SECONDS), Distribution(_SECONDS)
        self.wait = {"true": Distribution(_SECONDS), "false": Distribution(_SECONDS)}
        self.lengths = Distribution(_LENGTHS)
        self.estimated = Distribution(_ESTIMATED.buckets)  # of requests of more than one seat
        self.watches = Distribution(_WATCHES.buckets)

    def execution_of(self, verb: str) -> Distribution:
        """Return the histogram of execution times for a verb."""
        return self.watching if verb == "watch" else self.execution

    def enqueued(self, request: SeatRequest) -> None:
        """Record that a request was queued, even if it is dispatched in the same step."""
        assert request.queue is not None
        self.lengths.observe(max(1, len(request.queue.waiting)))

    def waited(self, seconds: float) -> None:
        """Record the wait of a request that is now executed."""
        self.wait["true"].observe(seconds)

    def rejected(self, rejection: Rejection, seconds: float) -> None:
        """Record that a request was rejected after `seconds`."""
        self.refused += 1
        self.refusals[rejection.value] = self.refusals.get(rejection.value, 0) + 1
        self.wait["false"].observe(seconds)

    def all_waits(self, *, exempt: bool) -> Iterator[tuple[str, Distribution]]:
        """Yield the wait times; requests that did not wait are derived from the totals."""
        if exempt:
            return
        at_once = self.dispatched - sum(self.wait["true"].counts)
        yield "true", _with(self.wait["true"], at_once, 1e-6)
        yield "false", self.wait["false"]

    def all_lengths(self) -> Distribution:
        """Return the queue lengths; a request that found seats at once counts as length 1."""
        return _with(self.lengths, self.dispatched - sum(self.wait["true"].counts), 1.0)

    def all_estimates(self) -> Distribution:
        """Return the histogram of estimated seats; most requests take one."""
        return _with(self.estimated, self.dispatched + self.refused - sum(self.estimated.counts), 1.0)


class TimesAt:
    """A histogram of the values of a ratio, weighted by time in nanoseconds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.distribution = Distribution(bounds)

    def add(self, ratio: float, seconds: float) -> None:
        """Record that the ratio had a value for `seconds`."""
        found = self.distribution
        count = round(seconds * _NANOSECONDS)
        found.counts[bisect_left(found.bounds, ratio)] += count
        found.sum += ratio * count


class Utilization:
    """The utilization of a level over time."""

    def __init__(self, now: float) -> None:
        self.seats = TimesAt(_SEAT_UTILIZATION.buckets)
        self.executing, self.waiting = TimesAt(_REQUEST_UTILIZATION.buckets), TimesAt(_REQUEST_UTILIZATION.buckets)
        self.demand = TimesAt(_DEMAND.buckets)
        self._until = now

    def take(self, level: PriorityLevel, total: int, now: float) -> None:
        """Add the time that the queues of a level have recorded until now."""
        queues, queuing = level.queues, level.configuration.queuing
        seats = queues.limit or max(1, round(total / 10))
        room = queuing.queues * max(queuing.queue_length_limit, 1) if queuing is not None else 1
        spent = queues.take_spent(now)
        idle = max(now - self._until - sum(spent.values()), 0.0)
        for (in_use, executing, waiting, awaited), seconds in (*spent.items(), (_IDLE, idle)):
            self.seats.add(in_use / seats, seconds)
            self.executing.add(executing / seats, seconds)
            self.waiting.add(waiting / room, seconds)
            self.demand.add((in_use + awaited) / seats, seconds)
        self._until = now


class FlowMetrics(Collector):
    """The metrics of all levels; `now` is their clock."""

    def __init__(self, levels: PriorityLevels, now: Callable[[], float], registry: CollectorRegistry | None) -> None:
        self._levels = levels
        self._now = now
        self._counts: dict[MetricLabels, SchemaCounts] = {}
        self._utilization: dict[str, Utilization] = {}
        if registry is not None:
            registry.register(self)

    def of(self, level: str, schema: str) -> SchemaCounts:
        """Return the counts of a schema in a level."""
        labels = (level, schema) if len(self._counts) < MOST_SERIES else (UNEXPECTED, UNEXPECTED)
        return self._counts.get((level, schema)) or self._counts.setdefault(labels, SchemaCounts())

    def totals(self, level: str) -> tuple[int, int, int, int]:
        """Return a level's numbers of executed and rejected requests.

        The last two count those rejected because of a timeout and because of a cancellation.
        """
        found = [counts for (name, _), counts in self._counts.items() if name == level]
        late, gone = Rejection.TIME_OUT.value, Rejection.CANCELLED.value
        return (
            sum(each.dispatched for each in found),
            sum(each.refused for each in found),
            sum(each.refusals.get(late, 0) for each in found),
            sum(each.refusals.get(gone, 0) for each in found),
        )

    def take(self) -> None:
        """Update the utilization of each level; called before its seats change, and at each scrape."""
        now = self._now()
        for name in self._utilization.keys() - self._levels.all.keys():
            del self._utilization[name]
        for name, level in self._levels.all.items():
            used = self._utilization.get(name)
            if used is None:
                used = self._utilization[name] = Utilization(now)
            used.take(level, self._levels.total, now)

    def describe(self) -> Iterable[Metric]:
        """Return the families without their samples."""
        return map(Shown, _FAMILIES)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        self.take()
        yield from self._of_schemas()
        yield from self._of_requests()
        yield from self._of_levels()

    def _of_levels(self) -> Iterator[Metric]:
        levels = self._levels.all
        for family, value in _OF_LEVELS.items():
            yield Shown(family, [((name,), float(value(level))) for name, level in levels.items()])
        yield Shown(_FAIR_FRACTION, [((), self._levels.fair_fraction)])
        without_room = [
            ((name, schema), float(count))
            for name, level in levels.items()
            for schema, count in level.queues.without_room.items()
        ]
        yield Shown(_NO_ROOM, without_room)
        used = self._utilization
        yield Shown(_SEAT_UTILIZATION, [((name, "executing"), each.seats.distribution) for name, each in used.items()])
        phases = [(("executing", name), each.executing.distribution) for name, each in used.items()]
        phases += [(("waiting", name), each.waiting.distribution) for name, each in used.items()]
        yield Shown(_REQUEST_UTILIZATION, phases)
        yield Shown(_DEMAND, [((name,), each.demand.distribution) for name, each in used.items()])

    def _of_schemas(self) -> Iterator[Metric]:
        counts = self._counts.items()
        yield Shown(_DISPATCHED, [(labels, float(each.dispatched)) for labels, each in counts])
        yield Shown(
            _REJECTED,
            [((*labels, why), float(n)) for labels, each in counts for why, n in each.refusals.items()],
        )
        waits = [
            ((*labels, execute), found)
            for labels, each in counts
            for execute, found in each.all_waits(exempt=self._is_exempt(labels[0]))
        ]
        yield Shown(_WAITED, waits)
        executed = [((*labels, "regular"), each.execution) for labels, each in counts]
        yield Shown(_EXECUTED, executed + [((*labels, "watch"), each.watching) for labels, each in counts])
        queued = [(labels, each.all_lengths()) for labels, each in counts if self._has_queues(labels[0])]
        yield Shown(_LENGTH, queued)
        yield Shown(_ESTIMATED, [(labels, each.all_estimates()) for labels, each in counts])
        yield Shown(_WATCHES, [(labels, each.watches) for labels, each in counts])

    def _of_requests(self) -> Iterator[Metric]:
        zeros = dict.fromkeys(self._counts, 0)
        waiting, waiting_seats, executing, seats = dict(zeros), dict(zeros), dict(zeros), dict(zeros)
        kinds = {"mutating": 0, "readOnly": 0}
        for level in self._levels.all.values():
            for request in level.queues.requests():
                kinds["mutating" if request.is_mutating else "readOnly"] += request.waiting
                labels = level.name, request.schema
                of, of_seats = (waiting, waiting_seats) if request.waiting else (executing, seats)
                of[labels] = of.get(labels, 0) + 1
                of_seats[labels] = of_seats.get(labels, 0) + request.seats
        yield Shown(_ALL_INQUEUE, [((kind,), float(count)) for kind, count in kinds.items()])
        for family, found in (
            (_INQUEUE, waiting), (_INQUEUE_SEATS, waiting_seats),
            (_EXECUTING, executing), (_EXECUTING_SEATS, seats), (_IN_USE, seats),
        ):  # fmt: skip
            yield Shown(family, [(labels, float(count)) for labels, count in found.items()])

    def _is_exempt(self, name: str) -> bool:
        level = self._levels.all.get(name)
        return level is not None and level.configuration.is_exempt

    def _has_queues(self, name: str) -> bool:
        level = self._levels.all.get(name)
        return level is not None and level.queues.is_queuing


_FAMILIES = (
    _REJECTED, _DISPATCHED, _NO_ROOM, _INQUEUE, _INQUEUE_SEATS, _ALL_INQUEUE, _EXECUTING, _EXECUTING_SEATS, _IN_USE,
    _WAITED, _EXECUTED, _LENGTH, _ESTIMATED, _WATCHES, _SEAT_UTILIZATION, _REQUEST_UTILIZATION, _DEMAND, _FAIR_FRACTION,
    *_OF_LEVELS,
)  # fmt: skip


def _with(found: Distribution, more: int, value: float) -> Distribution:
    """Return a distribution with this number of additional observations of a value."""
    every = Distribution(found.bounds)
    every.merge(found)
    every.counts[bisect_left(found.bounds, value)] += more
    every.sum += more * value
    return every
