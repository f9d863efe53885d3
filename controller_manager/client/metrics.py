"""The client's metrics, under the names users of client-go know."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class ClientMetrics:
    """Made once per registry and shared by all clients of the process."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.requests = Counter(
            "rest_client_requests_total",
            "Answers received, by status code, method and host; code <error> counts requests without an answer.",
            ["code", "method", "host"],
            registry=registry,
        )
        self.duration = Histogram(
            "rest_client_request_duration_seconds",
            "Seconds until an answer, or the start of a stream, by method and host.",
            ["verb", "host"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.limiter = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Seconds a request waited for the client's own rate limit, by method and host.",
            ["verb", "host"],
            buckets=_SECONDS,
            registry=registry,
        )
