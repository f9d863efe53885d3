"""How many requests were answered, with what status and how fast."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from apiserver_stub.parse import Route

_LABELS = ("verb", "group", "version", "resource", "subresource", "scope")
_BUCKETS = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    10.0,
    15.0,
    20.0,
    30.0,
    60.0,
)
_VERBS = {"create": "POST", "update": "PUT"}

_Labels = tuple[str, str, str, str, str, str]


class Telemetry:
    """Counts answers. Only routes that address a known kind may be counted as themselves: names are not bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter("apiserver_request", "Requests answered.", (*_LABELS, "code"), registry=registry)
        self._duration = Histogram(
            "apiserver_request_duration_seconds",
            "Time until an answer began, watches left out.",
            _LABELS,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._totals: dict[tuple[_Labels, int], Counter] = {}
        self._durations: dict[_Labels, Histogram] = {}

    def count(self, route: Route, code: int, seconds: float) -> None:
        """Note one answer."""
        labels = (route.verb, route.group, route.version, route.resource, route.subresource, _scope(route))
        total = self._totals.get((labels, code))
        if total is None:
            total = self._totals[labels, code] = self._total.labels(*_shown(labels), str(code))
        total.inc()
        if route.verb == "watch":
            return
        duration = self._durations.get(labels)
        if duration is None:
            duration = self._durations[labels] = self._duration.labels(*_shown(labels))
        duration.observe(seconds)


def _scope(route: Route) -> str:
    if not route.resource:
        return ""
    if route.name:
        return "resource"
    return "namespace" if route.namespace else "cluster"


def _shown(labels: _Labels) -> _Labels:
    verb, *rest = labels
    return (_VERBS.get(verb, verb.upper()), *rest)  # type: ignore[return-value]  # six in, six out
