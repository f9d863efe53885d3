"""Metrics of client connections and credentials, with the names of client-go."""

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms, Shown

_HOUR, _DAY = 3600.0, 86400.0

_ENTRIES = Family("rest_client_transport_cache_entries", "Number of TLS contexts in use.", "gauge")
_CREATED = Family(
    "rest_client_transport_create_calls_total",
    "Number of client transports created: with existing connections (hit), or with a new TLS context (miss).",
    "counter",
    ("result",),
)
_DROPPED = Family(
    "rest_client_transport_cert_rotation_gc_calls_total",
    "Number of TLS contexts dropped because their certificates were replaced.",
    "counter",
)
_RELOADED = Family(
    "rest_client_transport_ca_reload_total",
    "Number of reloads of CA files, by result and reason.",
    "counter",
    ("result", "reason"),
)
_CALLS = Family(
    "rest_client_exec_plugin_call_total",
    "Number of credential plugin runs, by exit status and outcome.",
    "counter",
    ("code", "call_status"),
)
_TTL = Family(
    "rest_client_exec_plugin_ttl_seconds",
    "Seconds until the first certificate from a credential plugin expires; +Inf without certificates.",
    "gauge",
)
_AGE = Family(
    "rest_client_exec_plugin_certificate_rotation_age",
    "Age in seconds of a credential plugin's certificate when it was replaced.",
    "histogram",
    buckets=(
        *(600.0, 1800.0, _HOUR, 4 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY, 180 * _DAY, 360 * _DAY),
        1440 * _DAY,
    ),
)


class TransportMetrics(Collector):
    """Created once per registry and shared by all transports of the process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._entries = 0
        self._contexts = Gauges(_ENTRIES, registry)
        self._created = Counters(_CREATED, registry)
        self._dropped = Counters(_DROPPED, registry)
        self._reloaded = Counters(_RELOADED, registry)
        self._calls = Counters(_CALLS, registry)
        self._age = Histograms(_AGE, registry)
        # Start and end of the validity of the current certificate, by plugin.
        self._valid: dict[str, tuple[float, float]] = {}
        if registry is not None:
            registry.register(self)

    def shared(self) -> None:
        """Count a transport that uses existing connections."""
        self._created.add("hit")

    def made_context(self) -> None:
        """Count a new TLS context."""
        self._created.add("miss")
        self._count(1)

    def dropped_context(self) -> None:
        """Count a TLS context that was dropped because its certificate is no longer used."""
        self._dropped.add()
        self._count(-1)

    def closed(self, contexts: int) -> None:
        """Count closed connections and their contexts."""
        self._count(-contexts)

    def reloaded_authorities(self, result: str, reason: str) -> None:
        """Count a read of a CA file."""
        self._reloaded.add(result, reason)

    def ran(self, exit_status: int, found: bool = True) -> None:
        """Count a run of a plugin, or a plugin that was not found."""
        ended = "no_error" if exit_status == 0 else "plugin_execution_error"
        self._calls.add(str(exit_status), ended if found else "plugin_not_found_error")

    def failed(self) -> None:
        """Count a plugin that was stopped."""
        self._calls.add("1", "client_internal_error")

    def certified(self, plugin: str, certificate: bytes) -> None:
        """Record the certificate (PEM) from a plugin; empty if it gave none."""
        valid = _validity(certificate) if certificate else None
        before = self._valid.pop(plugin, None)
        if before is not None and before != valid:
            self._age.observe(wall_seconds() - before[0])
        if valid is not None:
            self._valid[plugin] = valid

    def collect(self) -> Iterable[Metric]:
        """Yield the remaining validity; called by the registry."""
        first = min((end for _, end in self._valid.values()), default=math.inf)
        yield Shown(_TTL, [((), first - wall_seconds())])

    def _count(self, more: int) -> None:
        self._entries += more
        self._contexts.set(self._entries)


def _validity(certificate: bytes) -> tuple[float, float] | None:
    from cryptography import x509  # only a plugin that gives certificates needs it

    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        return None  # an error is raised when it is used
    return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
