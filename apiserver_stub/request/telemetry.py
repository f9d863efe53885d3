"""Metrics of requests (count, status, duration, in flight) and of storage.

Names, labels and buckets match kube-apiserver for existing dashboards and alerts.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.storage.interface import Storage
from controller_manager.common.api.wire import Request
from controller_manager.common.base.metrics import Counters, Family, Histograms, Shown

_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0),
    *(4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_REQUESTS = Family("apiserver_request_total", "Number of requests.", "counter", (*_LABELS, "code"), stability="STABLE")
_DURATION = Family(
    "apiserver_request_duration_seconds",
    "Seconds until the response began, without watches.",
    "histogram",
    _LABELS,
    _BUCKETS,
    stability="STABLE",
)
_UNDER_WAY = Family(
    "apiserver_current_inflight_requests",
    "Number of requests in flight, without watches.",
    "gauge",
    ("request_kind",),
    stability="STABLE",
)
_STREAMED = tuple(label for label in _LABELS if label != "dry_run")
_LONG_RUNNING = Family(
    "apiserver_longrunning_requests",
    "Number of open watches and other streams.",
    "gauge",
    _STREAMED,
    stability="STABLE",
)
_ABORTS = Family(
    "apiserver_request_aborts_total",
    "Number of requests whose clients disconnected before the response.",
    "counter",
    ("verb", "group", "version", "resource", "subresource", "scope"),
)
_TERMINATIONS = Family(
    "apiserver_request_terminations_total",
    "Number of requests terminated to protect the server.",
    "counter",
    ("verb", "group", "version", "resource", "subresource", "scope", "component", "code"),
)
_STORED = Family(
    "apiserver_storage_objects",
    "Objects in the store, by resource.",
    "gauge",
    ("resource",),
    stability="STABLE",
    deprecated="1.34",
)
_OBJECTS = Family("apiserver_resource_objects", "Objects in the store, by resource.", "gauge", ("group", "resource"))
_SHARDS = Family(
    "apiserver_watch_shards_total", "Number of open sharded watches, by resource.", "gauge", ("group", "resource")
)
_FILTERED = Family(
    "apiserver_watch_filtered_events_total",
    "Number of object states filtered out of sharded watches, by resource.",
    "counter",
    ("group", "resource"),
)
_CHECKPOINTS = Family(
    "apiserver_storage_checkpoints_total",
    "Attempts to fold the write-ahead log of the store into its file, by result (success or failure).",
    "counter",
    ("result",),
)
_FAILURES = Family(
    "apiserver_storage_write_failures_total",
    "Number of failed writes, by result: refused, or unknown if they may appear later.",
    "counter",
    ("outcome",),
)

_VERBS = {"create": "POST", "update": "PUT"}
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_PAGES = frozenset({"healthz", "livez", "readyz", "openapi/v2", "openapi/v3", "apis", "api", "version", "metrics"})
_APPLY = "application/apply-patch"

RequestLabels = tuple[str, ...]


class Telemetry(Collector):
    """Counts requests. Label values are bounded: known resources, and the first path segment of other pages."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counters(_REQUESTS, registry)
        self._durations = Histograms(_DURATION, registry)
        self._under_way = {"mutating": 0, "readOnly": 0}
        self._aborts = Counters(_ABORTS, registry)
        self._terminations = Counters(_TERMINATIONS, registry)
        self._streams: dict[RequestLabels, int] = {}
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metric families without samples."""
        return Shown(_UNDER_WAY), Shown(_LONG_RUNNING)

    def collect(self) -> Iterable[Metric]:
        """Yield the requests in flight; called by the registry."""
        yield Shown(_UNDER_WAY, [((kind,), float(count)) for kind, count in self._under_way.items()])
        yield Shown(_LONG_RUNNING, [(labels, float(count)) for labels, count in self._streams.items()])

    def begin(self, method: str) -> str:
        """Record the start of a request; return the argument for `end`."""
        kind = "readOnly" if method == "GET" else "mutating"
        self._under_way[kind] += 1
        return kind

    def end(self, kind: str) -> None:
        """Record the end of a request; a stream remains counted until `closed`."""
        self._under_way[kind] -= 1

    def count(self, context: RequestContext, status: int, seconds: float) -> None:
        """Count a response."""
        labels = _labels(context)
        self._requests.add(*labels, str(status))
        if not context.long_running:
            self._durations.observe(seconds, *labels)

    def abort(self, context: RequestContext) -> None:
        """Count a request whose client disconnected before the response."""
        verb, _, group, version, resource, subresource, scope, _ = _labels(context)
        self._aborts.add(verb, group, version, resource, subresource, scope)

    def terminate(self, context: RequestContext, status: int) -> None:
        """Count a request rejected to protect the server."""
        verb, _, *others = _labels(context)
        self._terminations.add(verb, *others, str(status))

    def opened(self, context: RequestContext) -> RequestLabels:
        """Record the start of a stream; return the argument for `closed`."""
        verb, _, *others = _labels(context)
        labels = (verb, *others)
        self._streams[labels] = self._streams.get(labels, 0) + 1
        return labels

    def closed(self, labels: RequestLabels) -> None:
        """Record the end of a stream."""
        self._streams[labels] -= 1


class StoredObjects(Collector):
    """Number of stored objects per resource (`plural.group`), computed at each scrape."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], registry: CollectorRegistry) -> None:
        self._counts = counts
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return both families without their samples."""
        return Shown(_STORED), Shown(_OBJECTS)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        counts = sorted(self._counts().items())
        yield Shown(_STORED, [((resource,), float(count)) for resource, count in counts])
        yield Shown(_OBJECTS, [((group, plural), float(count)) for (plural, _, group), count in _split(counts)])


def _split(counts: Iterable[tuple[str, int]]) -> Iterable[tuple[tuple[str, str, str], int]]:
    return ((resource.partition("."), count) for resource, count in counts)


def _labels(context: RequestContext) -> RequestLabels:
    """Return the metric labels of a request; those of a page if it addresses no served resource."""
    request, info = context.http, context.info
    if not context.resolved:
        return _of_page(request)
    verb = info.verb
    shown = _VERBS.get(verb) or verb.upper()
    if verb == "patch" and request.headers.get("content-type", "").startswith(_APPLY):
        shown = "APPLY"
    if context.long_running and verb != "watch":
        shown = "CONNECT"
    dry = "All" if verb not in ("get", "list", "watch") and ("dryRun", "All") in request.query else ""
    scope = "resource" if info.name or verb == "create" else "namespace" if info.namespace else "cluster"
    return (shown, dry, info.group, info.version, info.resource, info.subresource, scope, context.component)


def _of_page(request: Request) -> RequestLabels:
    first, slash, rest = request.path.lstrip("/").partition("/")
    page = first if first in _PAGES else f"{first}{slash}{rest.partition('/')[0]}"
    page = page if page in _PAGES else ""
    return (request.method if request.method in _METHODS else "OTHER", "", "", "", "", page, "", "")


class ShardedWatches(Collector):
    """Counts sharded watches per resource (`plural.group`), using `count`, and the events they filter out."""

    def __init__(self, count: Callable[[], Mapping[str, int]], registry: CollectorRegistry) -> None:
        self._count = count
        self._filtered = Counters(_FILTERED, registry)
        registry.register(self)

    def filtered(self, resource: str) -> Callable[[], None]:
        """Return a function that counts a filtered event of a resource."""
        plural, _, group = resource.partition(".")
        return partial(self._filtered.add, group, plural)

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return (Shown(_SHARDS),)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        counts = sorted(self._count().items())
        yield Shown(_SHARDS, [((group, plural), float(count)) for (plural, _, group), count in _split(counts)])


class StorageMetrics(Collector):
    """Exports the counters of the storage."""

    def __init__(self, storage: Storage, registry: CollectorRegistry) -> None:
        self._storage = storage
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        success, failure = self._storage.checkpoint_counts
        yield Shown(_CHECKPOINTS, [(("success",), success), (("failure",), failure)])
        yield Shown(_FAILURES, [((outcome,), count) for outcome, count in self._storage.failures.items()])
