"""Metrics of logs and WebSockets, with the names of kube-apiserver."""

from prometheus_client import CollectorRegistry

from controller_manager.common.base.metrics import Counters, Family

_USAGE = ("usage",)
_LOGS = Family(
    "kube_apiserver_pod_logs_insecure_backend_total",
    "Number of requests for logs, by use of insecureSkipTLSVerifyBackend.",
    "counter",
    _USAGE,
)
_OLD_LOGS = Family(
    "kube_apiserver_pod_logs_pods_logs_insecure_backend_total", _LOGS.help, "counter", _USAGE, deprecated="1.27"
)
_FAILURES = Family(
    "kube_apiserver_pod_logs_backend_tls_failure_total",
    "Number of requests for logs that failed to verify the kubelet's certificate.",
    "counter",
)
_OLD_FAILURES = Family(
    "kube_apiserver_pod_logs_pods_logs_backend_tls_failure_total", _FAILURES.help, "counter", deprecated="1.27"
)
_WEBSOCKETS = Family(
    "apiserver_websocket_streaming_requests_total",
    "Number of requests for streams, by subresource and by the server that handles the WebSocket.",
    "counter",
    ("subresource", "proxy_type"),
)
_TRANSLATED = Family(
    "apiserver_stream_translator_requests_total",
    "Number of translated WebSockets of commands, by status code.",
    "counter",
    ("code",),
)
_TUNNELS = Family(
    "apiserver_stream_tunnel_requests_total",
    "Number of WebSocket tunnels for port forwarding, by status code.",
    "counter",
    ("code",),
)


class KubeletMetrics:
    """The metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._logs = Counters(_LOGS, registry), Counters(_OLD_LOGS, registry)
        self._failures = Counters(_FAILURES, registry), Counters(_OLD_FAILURES, registry)
        self._websockets = Counters(_WEBSOCKETS, registry)
        self._translated = Counters(_TRANSLATED, registry)
        self._tunnels = Counters(_TUNNELS, registry)

    def log(self, *, verified: bool) -> None:
        """Count a request for a log."""
        for family in self._logs:
            family.add("enforce_tls" if verified else "skip_tls_allowed")

    def unverified(self) -> None:
        """Count a kubelet whose certificate could not be verified."""
        for family in self._failures:
            family.add()

    def stream(self, subresource: str, *, passed_on: bool) -> None:
        """Count a request for a stream, and whether it is passed to a kubelet that supports WebSocket."""
        self._websockets.add(subresource, "proxied_to_kubelet" if passed_on else "translated_at_apiserver")

    def translated(self, status: int) -> None:
        """Count a finished WebSocket translation by status."""
        self._translated.add(str(status))

    def tunnel(self, status: int) -> None:
        """Count a started WebSocket tunnel by status."""
        self._tunnels.add(str(status))
