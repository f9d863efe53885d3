"""The client's metrics, under the names users of client-go know."""

from prometheus_client import CollectorRegistry

from controller_manager.base.metrics import Counters, Family, Histograms

_CALL = ("verb", "host")
_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_BYTES = (64.0, 256.0, 512.0, *(1024.0 * 4**power for power in range(8)))

_REQUESTS = Family(
    "rest_client_requests_total",
    "Answers received, by status code, method and host; code <error> counts requests without an answer.",
    "counter",
    ("code", "method", "host"),
)
_RETRIES = Family(
    "rest_client_request_retries_total",
    "Those of these that answered a request which was sent before.",
    "counter",
    ("code", "verb", "host"),
)
_DURATION = Family(
    "rest_client_request_duration_seconds",
    "Seconds until the whole answer, waits and retries included, by method and host; watches are left out.",
    "histogram",
    _CALL,
    _SECONDS,
)
_LIMITER = Family(
    "rest_client_rate_limiter_duration_seconds",
    "Seconds a request waited for the client's own rate limit, by method and host.",
    "histogram",
    _CALL,
    _SECONDS,
)
_SENT = Family(
    "rest_client_request_size_bytes", "Bytes in the body of a request, by method and host.", "histogram", _CALL, _BYTES
)
_RECEIVED = Family(
    "rest_client_response_size_bytes",
    "Bytes in the body of an answer, by method and host; watches are left out.",
    "histogram",
    _CALL,
    _BYTES,
)


class ClientMetrics:
    """Made once per registry and shared by all clients of the process."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.requests = Counters(_REQUESTS, registry)
        self.retries = Counters(_RETRIES, registry)
        self.duration = Histograms(_DURATION, registry)
        self.limiter = Histograms(_LIMITER, registry)
        self.request_size = Histograms(_SENT, registry)
        self.response_size = Histograms(_RECEIVED, registry)
