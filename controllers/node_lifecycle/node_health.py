"""The health of all nodes: the last heartbeat of each, which ones are silent, and the state of the zones; pure.

A heartbeat is a renewed lease or a change of the Ready condition. Its time is when this process observed it, never the
time stamp in the object. A change to Unknown does not count, because a controller writes it.

a node is silent    after its grace period without a heartbeat (the startup grace period until it reports Ready)
it recovers         with the next heartbeat

Silence counts only if the watch of leases works:

last event of any lease     connection    conclusion
long ago                    any           the watch may be broken: no node becomes silent for now
recent, after a break       the same      the nodes were silent: a watch does not lose events
recent, after a break       another       unknown: grace periods of all nodes restart
any, but we were paused     any           the same: events may still be unread
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum, auto

import msgspec

from controller_manager.common.api.coordination import Lease
from controller_manager.common.api.core import Node
from controller_manager.common.api.resource import Key

from .desired import UNCOUNTED, is_evicted, ready_of, silenced, zone_of
from .zones import EvictionRates, Zone, ZoneState

LEASES_NAMESPACE = "kube-node-lease"


class Silence(Enum):
    """The conclusion from missing heartbeats."""

    REAL = auto()
    """The nodes are silent."""
    UNKNOWN = auto()
    """The watch may be broken. No node becomes silent for now."""
    RESTART = auto()
    """It is unknown which nodes were silent. The grace periods of all nodes restart."""


class HeartbeatMonitor:
    """Decides whether missing heartbeats are due to the nodes or to the watch of leases.

    After `patience` seconds without an event the watch may be broken.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._watch_broken = False
        # The connection that delivered the last event.
        self._connection: Hashable = None

    def judge(self, age: float, connection: Hashable, late: float = 0.0) -> Silence:
        """Return the conclusion, given the age of the last event, the present connection, and how late this
        check is.
        """
        if late > self._patience:
            self._watch_broken, self._connection = False, connection
            return Silence.RESTART
        if age > self._patience:
            self._watch_broken = True
            return Silence.UNKNOWN
        before, self._connection = self._connection, connection
        was_watch_broken, self._watch_broken = self._watch_broken, False
        return Silence.RESTART if was_watch_broken and connection != before else Silence.REAL

    def patient_until(self, now: float, age: float) -> float:
        """Return the time at which the conclusion changes if no event arrives."""
        return math.inf if self._watch_broken else now + self._patience - age


class Grace(msgspec.Struct, frozen=True):
    """Seconds that a node may be silent: `startup` before it reports Ready for the first time, `running` after that."""

    startup: float
    running: float


class HealthChanges(msgspec.Struct):
    """The result of a check of all nodes. `pending` are the names of nodes with pending work."""

    new: list[Node] = []
    gone: list[Node] = []
    pending: list[str] = []
    zones: dict[str, ZoneState] = {}
    """Zones whose state has changed."""
    emptied: list[str] = []
    """Zones that have no nodes any more."""
    until: float = math.inf
    """No check before this time finds anything new unless a node or a lease changes."""


class _Record:
    """The state of one node."""

    __slots__ = (
        "counted",
        "deadline",
        "evicted",
        "healthy",
        "lease",
        "lease_key",
        "node",
        "ready",
        "reported",
        "silenced",
        "silent",
        "waits",
        "zone",
    )

    def __init__(self, node: Node, deadline: float) -> None:
        self.node: Node | None = None
        self.lease: Lease | None = None
        self.lease_key = Key(LEASES_NAMESPACE, node.metadata.name)
        self.reported: tuple[str, str | None, str | None] | None = None
        self.deadline = deadline
        self.silent = False
        # From the node: the status of Ready, whether all its conditions report the silence, and whether it is tainted.
        self.ready = ""
        self.silenced = False
        self.evicted = False
        # Whether it belongs in the queue of its zone.
        self.waits = False
        # How it is counted in its zone.
        self.zone = ""
        self.counted = False
        self.healthy = False


class NodeHealth:
    """All nodes by name, and their zones."""

    def __init__(self, grace: Grace, rates: EvictionRates) -> None:
        self.zones: dict[str, Zone] = {}
        self.disrupted = False
        """True while all zones are fully disrupted. No node is evicted then, and NoExecute taints are removed."""
        self._grace = grace
        self._rates = rates
        self._records: dict[str, _Record] = {}

    def look(
        self, nodes: Sequence[Node], lease_of: Callable[[Key], Lease | None], now: float, *, judge: bool = True
    ) -> HealthChanges:
        """Update the state from all nodes. Without `judge` no node becomes silent."""
        found, records = HealthChanges(), self._records
        for node in nodes:
            name = node.metadata.name
            record = records.get(name)
            if record is None or (node is not record.node and _is_another(record.node, node)):
                record = self._meet(node, now, found)
            lease = lease_of(record.lease_key)
            if node is not record.node or lease is not record.lease:
                self._take_in(record, node, lease, now)
            if now > record.deadline and judge and not record.silent:
                record.silent = True
                self._count(record)
            if (record.silent and not record.silenced) or (self.disrupted and record.evicted):
                found.pending.append(name)
            if record.waits:
                self.zones[record.zone].wait(name)
                found.until = now
            elif not record.silent:
                found.until = min(found.until, record.deadline)
        if len(nodes) != len(records):
            self._miss(nodes, found)
        self._assess(now, found)
        if found.pending:
            found.until = now
        return found

    def update(self, node: Node, lease: Lease | None, now: float) -> bool:
        """Update the state of one node. Return whether it is silent nevertheless."""
        record = self._records.get(node.metadata.name)
        if record is None or _is_another(record.node, node):
            return False
        self._take_in(record, node, lease, now)
        return record.silent

    def restart_grace_periods(self, now: float) -> None:
        """Restart the grace periods of all nodes and delay evictions, because heartbeats may have been missed."""
        for record in self._records.values():
            self._restart_grace(record, now)
            self._count(record)
        for zone in self.zones.values():
            zone.rest(now)

    def turns(self) -> Iterator[tuple[str, float]]:
        """Yield the next node to evict in each zone, and from when."""
        turns = (zone.next_turn() for zone in self.zones.values())
        return (turn for turn in turns if turn is not None)

    def begin(self, name: str, now: float) -> Zone | None:
        """Return the zone of a node that may be evicted now, else None. Its `end` must be called after the attempt."""
        record = self._records.get(name)
        if record is None or not record.waits or self.disrupted or self._all_disrupted():
            return None
        zone = self.zones[record.zone]
        zone.assess(self._rates)
        return zone if zone.begin(name, now) else None

    def _meet(self, node: Node, now: float, found: HealthChanges) -> _Record:
        name = node.metadata.name
        if name in self._records:
            self._forget(name, found)
        record = self._records[name] = _Record(node, now)
        found.new.append(node)
        self._restart_grace(record, now)
        return record

    def _miss(self, nodes: Sequence[Node], found: HealthChanges) -> None:
        there = {node.metadata.name for node in nodes}
        for name in [name for name in self._records if name not in there]:
            self._forget(name, found)

    def _forget(self, name: str, found: HealthChanges) -> None:
        record = self._records.pop(name)
        if record.node is not None:
            found.gone.append(record.node)
            self._uncount(record)
            self.zones[record.zone].leave(name)

    def _take_in(self, record: _Record, node: Node, lease: Lease | None, now: float) -> None:
        if node is not record.node:
            self._take_in_node(record, node, now)
        if lease is None or lease is record.lease:
            return
        before, record.lease = record.lease, lease
        if before is None or lease.spec.renew_time != before.spec.renew_time:
            self._restart_grace(record, now)
            self._count(record)

    def _take_in_node(self, record: _Record, node: Node, now: float) -> None:
        ready = ready_of(node)
        record.ready = ready.status if ready else ""
        reported = (ready.status, ready.last_heartbeat_time, ready.last_transition_time) if ready else None
        if reported is not None and record.ready != "Unknown" and reported != record.reported:
            record.reported = reported
            self._restart_grace(record, now)
        record.silenced = record.ready == "Unknown" and silenced(node, "") is node
        record.evicted = is_evicted(node)
        record.waits = record.ready in ("False", "Unknown") and not record.evicted
        self._place(record, node, now)
        if not record.waits:
            self.zones[record.zone].leave(node.metadata.name)

    def _place(self, record: _Record, node: Node, now: float) -> None:
        """Count a node in its present zone."""
        name = zone_of(node)
        if record.node is not None:
            self._uncount(record)
            if name != record.zone:
                self.zones[record.zone].leave(node.metadata.name)
        record.node, record.zone = node, name
        if name not in self.zones:
            self.zones[name] = Zone(now)
        zone = self.zones[name]
        zone.members += 1
        record.counted = UNCOUNTED not in (node.metadata.labels or {})
        record.healthy = record.ready == "True" and not record.silent
        zone.size += record.counted
        zone.unhealthy += record.counted and not record.healthy

    def _uncount(self, record: _Record) -> None:
        zone = self.zones[record.zone]
        zone.members -= 1
        zone.size -= record.counted
        zone.unhealthy -= record.counted and not record.healthy

    def _count(self, record: _Record) -> None:
        """Update the count of a node that stays in its zone."""
        healthy = record.ready == "True" and not record.silent
        if healthy != record.healthy:
            self.zones[record.zone].unhealthy += record.counted * (1 if record.healthy else -1)
            record.healthy = healthy

    def _restart_grace(self, record: _Record, now: float) -> None:
        record.silent = False
        record.deadline = now + (self._grace.running if record.ready else self._grace.startup)

    def _assess(self, now: float, found: HealthChanges) -> None:
        for name in [name for name, zone in self.zones.items() if not zone.members]:
            del self.zones[name]
            found.emptied.append(name)
        was, self.disrupted = self.disrupted, self._all_disrupted()
        if was and not self.disrupted:
            self.restart_grace_periods(now)
        for name, zone in self.zones.items():
            before = zone.state
            zone.assess(self._rates, stopped=self.disrupted)
            if zone.state is not before:
                found.zones[name] = zone.state
        if self.disrupted and not was:
            found.pending += [name for name, record in self._records.items() if record.evicted]

    def _all_disrupted(self) -> bool:
        counted = [zone for zone in self.zones.values() if zone.size]
        return bool(counted) and all(zone.unhealthy == zone.size for zone in counted)


def _is_another(known: Node | None, node: Node) -> bool:
    return known is not None and known.metadata.uid != node.metadata.uid
