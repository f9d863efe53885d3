"""Metrics of a storage in etcd, with the names of kube-apiserver."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from apiserver_stub.storage.interface import Record, RevisionConflict
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms

_BY_OPERATION = ("operation", "group", "resource")
_REQUESTS = Family(
    "etcd_requests_total", "Number of requests to etcd, by operation and resource.", "counter", _BY_OPERATION
)
_ERRORS = Family(
    "etcd_request_errors_total",
    "Number of failed requests to etcd, by operation and resource.",
    "counter",
    _BY_OPERATION,
)
_DURATION = Family(
    "etcd_request_duration_seconds",
    "Seconds that requests to etcd took, by operation and resource.",
    "histogram",
    _BY_OPERATION,
    (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)
_RETRIES = Family("etcd_request_retry_total", "Number of retried requests to etcd, by error.", "counter", ("error",))
_EVENTS = Family(
    "apiserver_storage_events_received_total",
    "Number of watch events received from etcd, by resource.",
    "counter",
    ("group", "resource"),
    stability="BETA",
)
_BOOKMARKS = Family(
    "etcd_bookmark_total", "Number of progress notifications received from etcd.", "counter", ("group", "resource")
)
_BY_RESOURCE = ("group", "resource")
_LISTS = Family("apiserver_storage_list_total", "Number of lists read from etcd, by resource.", "counter", _BY_RESOURCE)
_FETCHED, _EVALUATED, _RETURNED = (
    Family(
        f"apiserver_storage_list_{done}_objects_total",
        f"Objects that were {done} for lists from etcd, by resource.",
        "counter",
        _BY_RESOURCE,
    )
    for done in ("fetched", "evaluated", "returned")
)
_DECODE_ERRORS = Family(
    "apiserver_storage_decode_errors_total",
    "Number of objects that could not be decoded, by resource.",
    "counter",
    _BY_RESOURCE,
)
_LEASED = Family(
    "etcd_lease_object_counts",
    "Number of objects attached to one lease of etcd.",
    "histogram",
    (),
    (10, 50, 100, 500, 1000, 2500, 5000),
)
_SIZE = Family(
    "apiserver_storage_size_bytes",
    "Size of each member's database file in bytes.",
    "gauge",
    ("storage_cluster_id",),
    stability="STABLE",
)


class EtcdMetrics:
    """The metrics of one storage."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._requests = Counters(_REQUESTS, registry)
        self._errors = Counters(_ERRORS, registry)
        self._durations = Histograms(_DURATION, registry)
        self.retries = Counters(_RETRIES, registry)
        self._events = Counters(_EVENTS, registry)
        self._bookmarks = Counters(_BOOKMARKS, registry)
        self._lists = [Counters(family, registry) for family in (_LISTS, _FETCHED, _EVALUATED, _RETURNED)]
        self._decode_errors = Counters(_DECODE_ERRORS, registry)
        self.leased = Histograms(_LEASED, registry)
        self.size = Gauges(_SIZE, registry)

    @contextmanager
    def request(self, operation: str, resource: str = "") -> Iterator[None]:
        """Count a request for a resource (`plural.group`), its duration and its failure. A conflict is not a
        failure.
        """
        plural, _, group = resource.partition(".")
        labels = operation, group, plural
        began = monotonic()
        try:
            yield
        except RevisionConflict:
            raise
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

    def listed(self, resource: str | None, records: Sequence[Record]) -> None:
        """Count a list of a resource, or of each resource in a list of all."""
        found = Counter(record.resource for record in records)
        for one in found if resource is None else (resource,):
            plural, _, group = one.partition(".")
            for counters, number in zip(self._lists, (1, *[found[one]] * 3), strict=True):
                counters.add(group, plural, by=number)

    def unreadable(self, resource: str) -> None:
        """Count an unreadable object."""
        plural, _, group = resource.partition(".")
        self._decode_errors.add(group, plural)

    def bookmark(self) -> None:
        """Count a progress notification of etcd. One watch serves all resources."""
        self._bookmarks.add("", "")
