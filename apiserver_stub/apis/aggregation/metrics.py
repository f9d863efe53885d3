"""Metrics of APIService availability, with the names of kube-aggregator."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.apis.aggregation.api_services import APIServices
from controller_manager.common.base.metrics import Counters, Family, Shown

_UNAVAILABLE = Family(
    "aggregator_unavailable_apiservice",
    "Whether an APIService is unavailable (1) or not (0), by name.",
    "gauge",
    ("name",),
)
_TURNS = Family(
    "aggregator_unavailable_apiservice_total",
    "Number of times that APIServices became unavailable, by name and reason.",
    "counter",
    ("name", "reason"),
)


class AvailabilityMetrics(Collector):
    """The current availability of APIServices, and how often they became unavailable."""

    def __init__(self, services: APIServices, registry: CollectorRegistry) -> None:
        self._services = services
        self._turns = Counters(_TURNS, None)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return one family without samples; the other one has the same name except for the suffix of its type."""
        return self._turns.describe()

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        found = sorted(self._services.all.items())
        yield Shown(_UNAVAILABLE, [((name,), float(not service.is_available)) for name, service in found])
        yield from self._turns.collect()

    def turned(self, name: str, reason: str) -> None:
        """Count an APIService that became unavailable."""
        self._turns.add(name, reason)
