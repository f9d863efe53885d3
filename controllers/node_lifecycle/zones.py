"""The zones of a cluster: their state, eviction rate, and the next node to evict; pure.

nodes of the zone                                     state               evictions per second
none checked yet                                      Initial             none
fewer than three unhealthy, or below the threshold    Normal              normal rate
at or above the threshold                             PartialDisruption   secondary rate; none unless it is large
all unhealthy                                         FullDisruption      normal rate
all unhealthy in all zones                            FullDisruption      none
"""

from enum import StrEnum

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms

# Up to this number of unhealthy nodes a zone is not disrupted, whatever its size.
FEW = 2
_ZONE = ("zone",)
_HEALTH = Family("node_collector_zone_health", "Percentage of healthy nodes in a zone.", "gauge", _ZONE)
_SIZE = Family("node_collector_zone_size", "Nodes registered in a zone.", "gauge", _ZONE)
_UNHEALTHY = Family("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready.", "gauge", _ZONE)
_EVICTIONS = Family(
    "node_collector_evictions_total",
    "Number of node evictions since this controller started.",
    "counter",
    _ZONE,
    stability="STABLE",
)
_ONE = Family(
    "node_collector_update_node_health_duration_seconds",
    "Seconds spent updating the health of one node.",
    "histogram",
    buckets=tuple(0.001 * 4**power for power in range(8)),
)
_ALL = Family(
    "node_collector_update_all_nodes_health_duration_seconds",
    "Seconds spent checking the health of all nodes.",
    "histogram",
    buckets=tuple(0.01 * 4**power for power in range(8)),
)


class ZoneState(StrEnum):
    """The state of a zone, by the share of unhealthy nodes."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


class EvictionRates(msgspec.Struct, frozen=True):
    """Eviction rates in nodes per second.

    `threshold` is the unhealthy share of a zone that counts as disruption. A zone with more than `large` nodes is
    large.
    """

    rate: float
    secondary_rate: float
    threshold: float
    large: int

    def state_of(self, size: int, unhealthy: int) -> ZoneState:
        """Return the state of a zone with these numbers of nodes."""
        if unhealthy == size > 0:
            return ZoneState.FULL
        is_partial = unhealthy > FEW and unhealthy / size >= self.threshold
        return ZoneState.PARTIAL if is_partial else ZoneState.NORMAL

    def rate_in(self, state: ZoneState, size: int) -> float:
        """Return the eviction rate of a zone while not all zones are fully disrupted."""
        match state:
            case ZoneState.INITIAL:
                return 0.0
            case ZoneState.PARTIAL:
                return self.secondary_rate if size > self.large else 0.0
            case _:
                return self.rate


class Zone:
    """One zone: its node counts, and the queue of nodes to evict.

    The time between the end of an eviction and the start of the next is `1 / rate`, also after the zone was first
    seen, so neither a slow server nor a new leader increases the rate. A node whose eviction failed goes to the end of
    the queue.
    """

    def __init__(self, now: float) -> None:
        self.state = ZoneState.INITIAL
        self.rate = 0.0
        # Nodes of the zone, those that count, and the unhealthy ones among those.
        self.members = 0
        self.size = 0
        self.unhealthy = 0
        self._waiting: dict[str, None] = {}
        self._evicting = False
        self._last = now

    def assess(self, rates: EvictionRates, *, stopped: bool = False) -> None:
        """Compute state and rate from the counts. `stopped` means that all zones are disrupted."""
        self.state = rates.state_of(self.size, self.unhealthy)
        self.rate = 0.0 if stopped else rates.rate_in(self.state, self.size)

    def wait(self, name: str) -> None:
        """Append a node to the queue, unless it is in it."""
        self._waiting.setdefault(name)

    def leave(self, name: str) -> None:
        """Remove a node from the queue."""
        self._waiting.pop(name, None)

    def next_turn(self) -> tuple[str, float] | None:
        """Return the next node to evict and its time, or None."""
        if self._evicting or not self._waiting or self.rate <= 0:
            return None
        return next(iter(self._waiting)), self._last + 1 / self.rate

    def begin(self, name: str, now: float) -> bool:
        """Return whether that node may be evicted now. If so, `end` must be called."""
        turn = self.next_turn()
        if turn is None or turn[0] != name or turn[1] > now:
            return False
        self._evicting = True
        return True

    def end(self, name: str, now: float, *, evicted: bool) -> None:
        """Record the result of the eviction that was begun."""
        self._evicting = False
        self._last = now
        if name in self._waiting:
            self._waiting.pop(name)
            if not evicted:
                self._waiting[name] = None

    def rest(self, now: float) -> None:
        """Delay the next eviction as if one had ended now."""
        self._last = now


class NodeMetrics:
    """The metrics of the node lifecycle controller."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._health = Gauges(_HEALTH, registry)
        self._size = Gauges(_SIZE, registry)
        self._unhealthy = Gauges(_UNHEALTHY, registry)
        self._shown: dict[str, tuple[int, int]] = {}  # by zone
        self.evictions = Counters(_EVICTIONS, registry)
        self.one = Histograms(_ONE, registry).of()
        self.all = Histograms(_ALL, registry).of()

    def show(self, name: str, zone: Zone | None) -> None:
        """Record the state of a zone, or None if it has no nodes any more."""
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
