"""The zones of a cluster: how disrupted each one is, how fast it may be evicted, and whose turn it is; pure.

nodes of the zone                                   state                 evictions a second
none has been looked at                             Initial               none
fewer than three unhealthy, or below the threshold  Normal                normal rate
at or above the threshold                           PartialDisruption     secondary rate; none unless it is large
all unhealthy                                       FullDisruption        normal rate
all unhealthy in all zones                          FullDisruption        none
"""

from enum import StrEnum

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms

# So many unhealthy nodes are no disruption, whatever part of the zone they are.
FEW = 2
_ZONE = ("zone",)
_HEALTH = Family("node_collector_zone_health", "Percentage of the nodes of a zone that are healthy.", "gauge", _ZONE)
_SIZE = Family("node_collector_zone_size", "Nodes registered in a zone.", "gauge", _ZONE)
_UNHEALTHY = Family("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready.", "gauge", _ZONE)
_EVICTIONS = Family(
    "node_collector_evictions_total",
    "Nodes whose pods were told to go since this controller started.",
    "counter",
    _ZONE,
    stability="STABLE",
)
_ONE = Family(
    "node_collector_update_node_health_duration_seconds",
    "Seconds it took to bring what is said of one node up to date.",
    "histogram",
    buckets=tuple(0.001 * 4**power for power in range(8)),
)
_ALL = Family(
    "node_collector_update_all_nodes_health_duration_seconds",
    "Seconds it took to look at all nodes.",
    "histogram",
    buckets=tuple(0.01 * 4**power for power in range(8)),
)


class ZoneState(StrEnum):
    """A zone by how much of it is healthy."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


class EvictionRates(msgspec.Struct, frozen=True):
    """Rates in nodes a second; `threshold` is the unhealthy part of a zone that is a disruption, and a zone with more
    than `large` nodes is large.
    """

    rate: float
    secondary_rate: float
    threshold: float
    large: int

    def state_of(self, size: int, unhealthy: int) -> ZoneState:
        """The state of a zone with so many nodes."""
        if unhealthy == size > 0:
            return ZoneState.FULL
        is_partial = unhealthy > FEW and unhealthy / size >= self.threshold
        return ZoneState.PARTIAL if is_partial else ZoneState.NORMAL

    def rate_in(self, state: ZoneState, size: int) -> float:
        """Return how fast a zone may be evicted while not all zones are fully disrupted."""
        match state:
            case ZoneState.INITIAL:
                return 0.0
            case ZoneState.PARTIAL:
                return self.secondary_rate if size > self.large else 0.0
            case _:
                return self.rate


class Zone:
    """One zone: its census, and the queue of nodes that wait to be evicted.

    Evictions are `1 / rate` apart, from the end of one to the beginning of the next, and the first comes so long after
    the zone was first seen: so neither a slow server nor a new leader makes them more frequent. An eviction that fails
    has cost the turn, and goes to the end.
    """

    def __init__(self, now: float) -> None:
        self.state = ZoneState.INITIAL
        self.rate = 0.0
        # Nodes of the zone, those of them that count, and those of these that are unhealthy.
        self.members = 0
        self.size = 0
        self.unhealthy = 0
        self._waiting: dict[str, None] = {}
        self._evicting = False
        self._last = now

    def assess(self, rates: EvictionRates, *, stopped: bool = False) -> None:
        """Find the state and the rate that follow from the census; `stopped` when all zones are disrupted."""
        self.state = rates.state_of(self.size, self.unhealthy)
        self.rate = 0.0 if stopped else rates.rate_in(self.state, self.size)

    def wait(self, name: str) -> None:
        """Have a node queue up, behind all others unless it waits already."""
        self._waiting.setdefault(name)

    def leave(self, name: str) -> None:
        """A node waits no longer."""
        self._waiting.pop(name, None)

    def next_turn(self) -> tuple[str, float] | None:
        """Return whose turn comes next, and when; None when it is nobody's."""
        if self._evicting or not self._waiting or self.rate <= 0:
            return None
        return next(iter(self._waiting)), self._last + 1 / self.rate

    def begin(self, name: str, now: float) -> bool:
        """Return whether that node may be evicted now; `end` must follow."""
        turn = self.next_turn()
        if turn is None or turn[0] != name or turn[1] > now:
            return False
        self._evicting = True
        return True

    def end(self, name: str, now: float, *, evicted: bool) -> None:
        """The eviction that was begun has succeeded or failed."""
        self._evicting = False
        self._last = now
        if name in self._waiting:
            self._waiting.pop(name)
            if not evicted:
                self._waiting[name] = None

    def rest(self, now: float) -> None:
        """The next turn comes no sooner than after an eviction now."""
        self._last = now


class NodeMetrics:
    """The metrics of the controller."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._health = Gauges(_HEALTH, registry)
        self._size = Gauges(_SIZE, registry)
        self._unhealthy = Gauges(_UNHEALTHY, registry)
        self._shown: dict[str, tuple[int, int]] = {}  # by zone
        self.evictions = Counters(_EVICTIONS, registry)
        self.one = Histograms(_ONE, registry).of()
        self.all = Histograms(_ALL, registry).of()

    def show(self, name: str, zone: Zone | None) -> None:
        """The zone of that name is like this, or has no nodes any more."""
        size, unhealthy = shown = (zone.size, zone.unhealthy) if zone else (0, 0)
        if zone is None:
            self._shown.pop(name, None)
        elif self._shown.get(name) == shown:
            return
        else:
            self._shown[name] = shown
        self._size.set(size, name)
        self._unhealthy.set(unhealthy, name)
        self._health.set(100 * (size - unhealthy) / size if size else 100, name)
        self.evictions.add(name, by=0)
