"""The priority levels of a server: configuration, draining of removed levels, and borrowing of seats; without clock or
I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from apiserver_stub.flow_control.classification import usable_schemas
from apiserver_stub.flow_control.concurrency import (
    Demand,
    Need,
    SeatLimits,
    divide,
    first_seats,
    limits_of,
    most_seats_of_one,
    smooth,
)
from apiserver_stub.flow_control.configuration import (
    FlowSchema,
    PriorityLevelConfiguration,
    mandatory,
)
from apiserver_stub.flow_control.queue_set import QueueSet
from apiserver_stub.flow_control.retry_after import RetryAfter
from apiserver_stub.flow_control.seat_requests import SeatRequest
from apiserver_stub.kinds.strategies.flow_control import MANDATORY

_NO_SEATS = SeatLimits(0, 0, 0)


class PriorityLevel:
    """A level, its queues and its demand. One that `is_draining` was removed from the configuration."""

    __slots__ = (
        "configuration", "demand", "is_draining", "limits", "most_seats_of_one", "queues", "retry_after", "smoothed",
        "target",
    )  # fmt: skip

    def __init__(self, configuration: PriorityLevelConfiguration, queues: QueueSet) -> None:
        self.configuration = configuration
        self.queues = queues
        self.limits = _NO_SEATS
        self.most_seats_of_one = 0
        self.demand = Demand()
        self.smoothed = self.target = 0.0
        self.is_draining = False
        self.retry_after = RetryAfter()

    @property
    def name(self) -> str:
        """The name of the level."""
        return self.configuration.name

    def configure(self, configuration: PriorityLevelConfiguration) -> None:
        """Apply a configuration."""
        self.configuration, self.is_draining = configuration, False
        queuing = configuration.queuing
        if queuing is not None:
            self.queues.configure(queuing.queues, queuing.queue_length_limit)
        else:
            self.queues.configure(-1 if configuration.is_exempt else 0, 0)

    def need(self) -> Need:
        """Return its need of seats."""
        return Need(self.limits, self.demand.highest, self.smoothed, self.configuration.is_exempt)


class PriorityLevels:
    """All levels of a server with `total` seats, and the schemas that lead to them.

    `wake` is called with each request that waited and is executed now, `out_of_turns` with queues that need new ones.
    """

    def __init__(
        self, total: int, wake: Callable[[SeatRequest], None], out_of_turns: Callable[[QueueSet], None], now: float
    ) -> None:
        self.total = total
        self.fair_fraction = 0.0
        self.schemas: list[FlowSchema] = []
        self._levels: dict[str, PriorityLevel] = {}
        self._wake = wake
        self._out_of_turns = out_of_turns
        self.configure((), (), now)

    @property
    def all(self) -> Mapping[str, PriorityLevel]:
        """Every level by name, those that are draining too."""
        return MappingProxyType(self._levels)

    def configure(
        self, levels: Iterable[PriorityLevelConfiguration], schemas: Iterable[FlowSchema], now: float
    ) -> None:
        """Apply a configuration. Mandatory levels and schemas always exist; a removed level remains until its last
        request has finished.
        """
        wanted = {level.name: level for level in levels if level.is_usable}
        self.schemas = usable_schemas(schemas, wanted)
        for name, level in tuple(self._levels.items()):
            if name in wanted or name in MANDATORY:
                continue
            level.is_draining = True
            if level.queues.is_idle:
                del self._levels[name]
        always, _ = mandatory()
        for name, configuration in always.items():
            if name not in wanted and name not in self._levels:
                wanted[name] = configuration
        for name, configuration in wanted.items():
            self._take(name, configuration, now)
        self._share(now)

    def adjust(self, now: float) -> None:
        """Divide the seats by the demand since the last call."""
        for level in self._levels.values():
            level.demand = level.queues.measure(now)
            level.smoothed = smooth(level.smoothed, level.demand)
        needs = {name: level.need() for name, level in self._levels.items()}
        division = divide(needs)
        self.fair_fraction = division.fair_fraction
        for name, level in self._levels.items():
            level.target = needs[name].target
            level.queues.set_limit(division.seats[name], now)

    def _take(self, name: str, configuration: PriorityLevelConfiguration, now: float) -> None:
        level = self._levels.get(name)
        if level is None:
            level = PriorityLevel(configuration, QueueSet(self._wake, self._out_of_turns, now))
            self._levels[name] = level
        level.configure(configuration)

    def _share(self, now: float) -> None:
        limits = limits_of({name: level.configuration for name, level in self._levels.items()}, self.total)
        for name, level in self._levels.items():
            if level.limits is _NO_SEATS:
                level.queues.set_limit(first_seats(limits[name]), now)
            level.limits = limits[name]
            level.most_seats_of_one = most_seats_of_one(limits[name], level.configuration.queuing)
        self.adjust(now)
