"""Long-running requests, which no limit applies to."""

from apiserver_stub.request.request_info import RequestInfo

_SUBRESOURCES = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_PROFILES = "/debug/pprof/"


def is_unlimited(info: RequestInfo) -> bool:
    """Return whether a request is a stream other than a watch, or profiles the server."""
    return info.subresource in _SUBRESOURCES if info.resource else info.path.startswith(_PROFILES)
