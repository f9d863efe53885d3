"""What is counted of a storage in etcd, by the names of kube-apiserver."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from controller_manager.base.clock import monotonic
from controller_manager.base.metrics import Counters, Family, Gauges, Histograms

_BY_OPERATION = ("operation", "group", "resource")
_REQUESTS = Family("etcd_requests_total", "Requests to etcd, by operation and resource.", "counter", _BY_OPERATION)
_ERRORS = Family(
    "etcd_request_errors_total", "Requests to etcd that failed, by operation and resource.", "counter", _BY_OPERATION
)
_DURATION = Family(
    "etcd_request_duration_seconds",
    "How long requests to etcd took, by operation and resource.",
    "histogram",
    _BY_OPERATION,
    (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)
_RETRIES = Family("etcd_request_retry_total", "Requests to etcd that were made again, by why.", "counter", ("error",))
_EVENTS = Family(
    "apiserver_storage_events_received_total",
    "Events that etcd told, by resource.",
    "counter",
    ("group", "resource"),
    stability="BETA",
)
_BOOKMARKS = Family("etcd_bookmark_total", "Notes of etcd of how far it is.", "counter", ("group", "resource"))
_LEASED = Family(
    "etcd_lease_object_counts",
    "Objects that were attached to one lease of etcd.",
    "histogram",
    (),
    (10, 50, 100, 500, 1000, 2500, 5000),
)
_SIZE = Family(
    "apiserver_storage_size_bytes",
    "Bytes of the file of each member's database.",
    "gauge",
    ("storage_cluster_id",),
    stability="STABLE",
)


class EtcdMetrics:
    """The families of one storage."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._requests = Counters(_REQUESTS, registry)
        self._errors = Counters(_ERRORS, registry)
        self._durations = Histograms(_DURATION, registry)
        self.retries = Counters(_RETRIES, registry)
        self._events = Counters(_EVENTS, registry)
        self._bookmarks = Counters(_BOOKMARKS, registry)
        self.leased = Histograms(_LEASED, registry)
        self.size = Gauges(_SIZE, registry)

    @contextmanager
    def request(self, operation: str, resource: str = "") -> Iterator[None]:
        """Count a request of a resource (`plural.group`), how long it takes and whether it fails."""
        plural, _, group = resource.partition(".")
        labels = operation, group, plural
        began = monotonic()
        try:
            yield
        except BaseException:
            self._errors.add(*labels)
            raise
        finally:
            self._requests.add(*labels)
            self._durations.observe(monotonic() - began, *labels)

    def event(self, resource: str) -> None:
        """Count an event."""
        plural, _, group = resource.partition(".")
        self._events.add(group, plural)

    def bookmark(self) -> None:
        """Count a note of how far etcd is; there is one watch for all resources."""
        self._bookmarks.add("", "")
