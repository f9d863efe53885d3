"""The metrics of the node lifecycle controller, as dashboards know them."""

from prometheus_client import CollectorRegistry

from controller_manager.base.metrics import Counters, Family, Gauges, Histograms

from .zones import Zone

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


class NodeMetrics:
    """What this controller counts."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._health = Gauges(_HEALTH, registry)
        self._size = Gauges(_SIZE, registry)
        self._unhealthy = Gauges(_UNHEALTHY, registry)
        self.evictions = Counters(_EVICTIONS, registry)
        self.one = Histograms(_ONE, registry).of()
        self.all = Histograms(_ALL, registry).of()

    def show(self, name: str, zone: Zone | None) -> None:
        """The zone of that name is like this, or has no nodes any more."""
        size, unhealthy = (zone.size, zone.unhealthy) if zone else (0, 0)
        self._size.set(size, name)
        self._unhealthy.set(unhealthy, name)
        self._health.set(100 * (size - unhealthy) / size if size else 100, name)
        self.evictions.add(name, by=0)
