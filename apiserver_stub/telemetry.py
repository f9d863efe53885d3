"""What is counted of requests: how many, with what status and how fast, how many are under way, and what is stored.

Names, labels and buckets are those of kube-apiserver, which dashboards and alerts query.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.parse import RequestInfo
from controller_manager.api.wire import Request, Response, Upgrade
from controller_manager.base.metrics import Counters, Family, Histograms, Shown

_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0),
    *(4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_REQUESTS = Family("apiserver_request_total", "Requests answered.", "counter", (*_LABELS, "code"), stability="STABLE")
_DURATION = Family(
    "apiserver_request_duration_seconds",
    "Seconds until an answer began, watches left out.",
    "histogram",
    _LABELS,
    _BUCKETS,
    stability="STABLE",
)
_UNDER_WAY = Family(
    "apiserver_current_inflight_requests",
    "Requests that are being answered, watches left out.",
    "gauge",
    ("request_kind",),
    stability="STABLE",
)
_WATCHED = tuple(label for label in _LABELS if label != "dry_run")
_LONG_RUNNING = Family(
    "apiserver_longrunning_requests", "Watches that are open.", "gauge", _WATCHED, stability="STABLE"
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

_VERBS = {"create": "POST", "update": "PUT"}
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_PAGES = ("healthz", "livez", "readyz", "openapi/v2", "openapi/v3", "apis", "api", "version", "metrics")
_APPLY = "application/apply-patch"

Labels = tuple[str, ...]


class Telemetry(Collector):
    """Counts requests by labels whose values are bounded: routes of known resources, and pages by their first part."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counters(_REQUESTS, registry)
        self._durations = Histograms(_DURATION, registry)
        self._under_way = {"mutating": 0, "readOnly": 0}
        self._watches: dict[Labels, int] = {}
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """What is known without counting, without its samples."""
        return Shown(_UNDER_WAY), Shown(_LONG_RUNNING)

    def collect(self) -> Iterable[Metric]:
        """What is under way; called by the registry."""
        yield Shown(_UNDER_WAY, [((kind,), float(count)) for kind, count in self._under_way.items()])
        yield Shown(_LONG_RUNNING, [(labels, float(count)) for labels, count in self._watches.items()])

    def begin(self, method: str) -> str:
        """A request comes; the kind to tell `end`."""
        kind = "readOnly" if method == "GET" else "mutating"
        self._under_way[kind] += 1
        return kind

    def end(self, kind: str) -> None:
        """Its answer is made; a watch goes on as `long_running`."""
        self._under_way[kind] -= 1

    def count(self, request: Request, route: RequestInfo | None, status: int, seconds: float) -> None:
        """Note an answer; `route` is None if it addressed no known resource."""
        labels = _of_page(request) if route is None else _of_route(request, route)
        self._requests.add(*labels, str(status))
        if labels[0] != "WATCH":
            self._durations.observe(seconds, *labels)

    def long_running(self, request: Request, route: RequestInfo, response: Response) -> Response:
        """The same answer, which counts as a watch until its reader closes the stream."""
        if isinstance(response.body, bytes | Upgrade):
            return response
        verb, _, *others = _of_route(request, route)
        labels = (verb, *others)
        self._watching(labels, 1)
        body = _Counted(response.body, lambda: self._watching(labels, -1))
        return replace(response, body=body)

    def _watching(self, labels: Labels, by: int) -> None:
        self._watches[labels] = self._watches.get(labels, 0) + by


class _Counted:
    """A stream that tells when it is closed; its chunks take no detour."""

    def __init__(self, body: AsyncIterator[bytes], closed: Callable[[], None]) -> None:
        self._body = body
        self.ends_at = getattr(body, "ends_at", math.inf)
        self._closed: Callable[[], None] | None = closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body.__aiter__()

    async def __anext__(self) -> bytes:
        return await self._body.__anext__()

    async def aclose(self) -> None:
        """Close the stream; the first time it is told."""
        told, self._closed = self._closed, None
        if told is not None:
            told()
        aclose = getattr(self._body, "aclose", None)
        if aclose is not None:
            await aclose()


class StoredObjects(Collector):
    """How many objects of each resource (`plural.group`) the store holds, looked up when asked."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], registry: CollectorRegistry) -> None:
        self._counts = counts
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Both families without their samples."""
        return Shown(_STORED), Shown(_OBJECTS)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        counts = sorted(self._counts().items())
        yield Shown(_STORED, [((resource,), float(count)) for resource, count in counts])
        yield Shown(_OBJECTS, [((group, plural), float(count)) for (plural, _, group), count in _split(counts)])


def _split(counts: Iterable[tuple[str, int]]) -> Iterable[tuple[tuple[str, str, str], int]]:
    return ((resource.partition("."), count) for resource, count in counts)


def _of_route(request: Request, route: RequestInfo) -> Labels:
    verb, _, group, version, resource, subresource, namespace, name = route
    shown = _VERBS.get(verb) or verb.upper()
    if verb == "patch" and request.headers.get("content-type", "").startswith(_APPLY):
        shown = "APPLY"
    dry = "All" if verb not in ("get", "list", "watch") and ("dryRun", "All") in request.query else ""
    scope = "resource" if name or verb == "create" else "namespace" if namespace else "cluster"
    return (shown, dry, group, version, resource, subresource, scope, "apiserver")


def _of_page(request: Request) -> Labels:
    path = request.path.lstrip("/")
    page = next((page for page in _PAGES if path == page or path.startswith(f"{page}/")), "")
    return (request.method if request.method in _METHODS else "OTHER", "", "", "", "", page, "", "")
