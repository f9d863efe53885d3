"""Metrics of authentication and authorization, with the names of kube-controller-manager."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Decision

_SECONDS = tuple(0.001 * 2**power for power in range(15))
_CACHE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_USERS = Family(
    "authenticated_user_requests",
    "Number of authenticated requests, by user name or group of user names.",
    "counter",
    ("username",),
)
_ATTEMPTS = Family("authentication_attempts", "Number of authentication attempts, by result.", "counter", ("result",))
_AUTHENTICATION = Family(
    "authentication_duration_seconds", "Seconds spent authenticating a request.", "histogram", ("result",), _SECONDS
)
_DECISIONS = Family(
    "authorization_attempts_total", "Number of authorization decisions, by result.", "counter", ("result",)
)
_AUTHORIZATION = Family(
    "authorization_duration_seconds",
    "Seconds spent authorizing a request.",
    "histogram",
    ("result",),
    _SECONDS,
)
_CACHED = Family(
    "authentication_token_cache_request_total",
    "Number of bearer token lookups, by cache hit or miss.",
    "counter",
    ("status",),
)
_CACHE_TIME = Family(
    "authentication_token_cache_request_duration_seconds",
    "Seconds spent looking up a bearer token.",
    "histogram",
    ("status",),
    _CACHE_SECONDS,
)
_FETCHES = Family(
    "authentication_token_cache_fetch_total", "Number of token reviews sent to the API server.", "counter", ("status",)
)
_ACTIVE = Family(
    "authentication_token_cache_active_fetch_count",
    "Number of running token reviews (in_flight), and of requests that wait for them (blocked).",
    "gauge",
    ("status",),
)
# User names that are shown. Other names are grouped, since their number is unlimited.
_WELL_KNOWN = frozenset({"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"})


class AuthenticationMetrics:
    """Counts authentications."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._users = Counters(_USERS, registry)
        self._attempts = Counters(_ATTEMPTS, registry)
        self._authentication = Histograms(_AUTHENTICATION, registry)
        self._successes, self._success = self._attempts.of("success"), self._authentication.of("success")

    def authenticated(self, user: User | None, seconds: float, *, refused: bool = False) -> None:
        """Count an authentication; `user` is None for rejected credentials (`refused`) and for none."""
        if user is not None:
            self._users.add(_sort_of(user.name))
            self._successes.value += 1
            self._success.observe(seconds)
            return
        result = "error" if refused else "failure"
        self._attempts.add(result)
        self._authentication.observe(seconds, result)


class AuthorizationMetrics:
    """Counts authorization decisions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counters(_DECISIONS, registry)
        self._authorization = Histograms(_AUTHORIZATION, registry)
        self._permissions, self._allowed = self._decisions.of("allowed"), self._authorization.of("allowed")

    def authorized(self, decision: Decision | None, seconds: float) -> None:
        """Count a decision; None if the decision failed."""
        if decision is Decision.ALLOW:
            self._permissions.value += 1
            self._allowed.observe(seconds)
            return
        result = "error" if decision is None else decision.value
        self._decisions.add(result)
        self._authorization.observe(seconds, result)


class AccessMetrics(AuthenticationMetrics, AuthorizationMetrics):
    """Counts authentications and authorization decisions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        AuthenticationMetrics.__init__(self, registry)
        AuthorizationMetrics.__init__(self, registry)


class TokenCacheMetrics:
    """Counts lookups of bearer tokens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counters(_CACHED, registry)
        self._time = Histograms(_CACHE_TIME, registry)
        self._fetches = Counters(_FETCHES, registry)
        self._active = Gauges(_ACTIVE, registry)
        self._now = {"in_flight": 0, "blocked": 0}

    @contextmanager
    def asked(self, *, known: bool) -> Iterator[None]:
        """Measure the lookup of a token, which waits unless the result is `known`."""
        began = monotonic()
        if not known:
            self._count("blocked", 1)
        try:
            yield
        finally:
            if not known:
                self._count("blocked", -1)
            status = "hit" if known else "miss"
            self._requests.add(status)
            self._time.observe(monotonic() - began, status)

    @contextmanager
    def fetched(self) -> Iterator[None]:
        """Measure a request to the API server; an exception counts as an error."""
        self._count("in_flight", 1)
        status = "error"
        try:
            yield
            status = "ok"
        finally:
            self._count("in_flight", -1)
            self._fetches.add(status)

    def _count(self, status: str, change: int) -> None:
        self._now[status] += change
        self._active.set(self._now[status], status)


def _sort_of(name: str) -> str:
    if name in _WELL_KNOWN:
        return name
    return "email_id" if "@" in name else "other"
