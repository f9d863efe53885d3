"""Parts of a client's requests: rate limit, encoding of bodies, log line and metrics.

Responses are always requested as JSON, because this client decodes JSON fastest by far.
"""

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from prometheus_client import CollectorRegistry

from controller_manager.common.api import protobuf
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.bucket import TokenBucket
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Distribution, Family, Histograms
from controller_manager.common.base.worker_thread import LARGE
from controller_manager.framework.client.adaptive_rate import AdaptiveRate


class Throttle:
    """Limits requests to `qps` per second with bursts of `burst`. A `qps` of zero or less means no limit.

    A request that would wait longer than `longest` seconds is rejected.
    """

    def __init__(self, qps: float, burst: int, *, longest: float = 600.0) -> None:
        self._bucket = TokenBucket(qps, burst) if qps > 0 else None
        self._qps = qps
        self._longest = longest

    @property
    def rate(self) -> float:
        """The limit in requests per second; zero or less for no limit."""
        return self._qps

    def answered(self, status: int) -> None:
        """Ignore the status of a response: the rate is constant."""

    async def wait(self) -> float:
        """Wait for the rate limit; return the seconds waited. Raises `TooManyRequests` if the queue is too long."""
        if self._bucket is None:
            return 0.0
        seconds = self._bucket.take(monotonic())
        if seconds <= 0.0:
            return 0.0
        if seconds > self._longest:
            self._bucket.release()
            raise TooManyRequests(f"more requests wait than {self._qps:g} per second clear in {self._longest:g} s")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._bucket.release()
            raise
        return seconds


class AdaptiveThrottle(Throttle):
    """A throttle whose rate adapts to the responses, up to `qps`, which must be above zero."""

    def __init__(self, qps: float, burst: int, *, longest: float = 600.0) -> None:
        super().__init__(qps, burst, longest=longest)
        self._adaptive = AdaptiveRate(qps)

    @property
    def rate(self) -> float:
        """The current limit in requests per second."""
        return self._adaptive.rate

    def answered(self, status: int) -> None:
        """Adapt the rate to the status of a response."""
        now = monotonic()
        if self._adaptive.answered(status, now) and self._bucket is not None:
            self._bucket.set_rate(self._adaptive.rate, now)


JSON = "application/json"
PROTOBUF = protobuf.MEDIA_TYPE


# Number and maximum size of cached bodies: controllers send equal ones many times, as for the pods of a ReplicaSet.
_REMEMBERED, _LONGEST_REMEMBERED = 8, 16 << 10


class RequestEncoder:
    """Encodes bodies in one media type, and remembers for which resources the server rejects it."""

    def __init__(self, media_type: str = JSON) -> None:
        self._media_type = media_type
        self._refused: set[Resource[Any]] = set()
        self._remembering = lru_cache(_REMEMBERED)(protobuf.body)

    def make(self, resource: Resource[Any], data: bytes) -> tuple[bytes, str]:
        """Return the body and media type for an object given as JSON. Large objects stay JSON to save time."""
        if self._media_type == PROTOBUF and resource not in self._refused and len(data) <= LARGE:
            write = self._remembering if len(data) <= _LONGEST_REMEMBERED else protobuf.body
            written = write(resource.api_version, resource.kind, data)
            if written is not None:
                return written, PROTOBUF
        return data, JSON

    def refused(self, resource: Resource[Any]) -> None:
        """Use JSON for that resource: the server accepts nothing else for custom or aggregated resources."""
        self._refused.add(resource)


LEVEL = 6
_HARMLESS = frozenset(
    {
        *(
            "labelSelector",
            "fieldSelector",
            "shardSelector",
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
        ),
        *("watch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds"),
        *("dryRun", "fieldManager", "fieldValidation", "force", "propagationPolicy"),
    }
)
_STATUS = {one.value: f"{one.value} {one.phrase}" for one in HTTPStatus}


def log_response(
    log: Logger, method: str, path: str, query: tuple[tuple[str, str], ...], status: int, began: float
) -> None:
    """Log an exchange as client-go does. `status` is 0 without a response, `began` its monotonic start time."""
    if log.shows(LEVEL):
        seconds = monotonic() - began
        url, shown = _url(path, query), _STATUS.get(status, str(status or ""))
        log.debug("Response", v=LEVEL, verb=method, url=url, status=shown, milliseconds=round(seconds * 1000))


def _url(path: str, query: tuple[tuple[str, str], ...]) -> str:
    pairs = [f"{name}={quote(value) if name in _HARMLESS else '<masked>'}" for name, value in query]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


_CALL = ("verb", "host")
_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_BYTES = (64.0, 256.0, 512.0, *(1024.0 * 4**power for power in range(8)))

_REQUESTS = Family(
    "rest_client_requests_total",
    "Number of responses by status code, method and host; code <error> counts requests without a response.",
    "counter",
    ("code", "method", "host"),
)
_RETRIES = Family(
    "rest_client_request_retries_total",
    "Number of responses to retried requests, by status code, verb and host.",
    "counter",
    ("code", "verb", "host"),
)
_DURATION = Family(
    "rest_client_request_duration_seconds",
    "Seconds until the whole response, including waits and retries, by method and host; without watches.",
    "histogram",
    _CALL,
    _SECONDS,
)
_LIMITER = Family(
    "rest_client_rate_limiter_duration_seconds",
    "Seconds a request waited for the client-side rate limit, by method and host.",
    "histogram",
    _CALL,
    _SECONDS,
)
_SENT = Family(
    "rest_client_request_size_bytes", "Size of request bodies in bytes, by method and host.", "histogram", _CALL, _BYTES
)
_RECEIVED = Family(
    "rest_client_response_size_bytes",
    "Size of response bodies in bytes, by method and host; without watches.",
    "histogram",
    _CALL,
    _BYTES,
)


class CallMetrics(NamedTuple):
    """The distributions for requests of one method to one host."""

    duration: Distribution
    limiter: Distribution
    request_size: Distribution
    response_size: Distribution


class ClientMetrics:
    """The metrics of all clients of a process; one instance per registry."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.requests = Counters(_REQUESTS, registry)
        self.retries = Counters(_RETRIES, registry)
        self.duration = Histograms(_DURATION, registry)
        self.limiter = Histograms(_LIMITER, registry)
        self.request_size = Histograms(_SENT, registry)
        self.response_size = Histograms(_RECEIVED, registry)
        self._calls: dict[tuple[str, str], CallMetrics] = {}

    def of(self, method: str, host: str) -> CallMetrics:
        """Return the distributions for a method and a host; the number of hosts is small."""
        found = self._calls.get((method, host))
        if found is None:
            families = (self.duration, self.limiter, self.request_size, self.response_size)
            found = self._calls[method, host] = CallMetrics(*(family.of(method, host) for family in families))
        return found
