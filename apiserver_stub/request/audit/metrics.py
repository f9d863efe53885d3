"""Metrics of the audit: events, dropped events, levels of requests, and requests rejected because of the audit."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from apiserver_stub.request.audit.events import legacy_line
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family

_EVENTS = Family("apiserver_audit_event_total", "Number of audit events.", "counter")
_ERRORS = Family("apiserver_audit_error_total", "Number of dropped audit events, by plugin.", "counter", ("plugin",))
_LEVELS = Family("apiserver_audit_level_total", "Number of requests, by audit level.", "counter", ("level",))
_REJECTED = Family(
    "apiserver_audit_requests_rejected_total",
    "Number of requests rejected because their audit event was lost.",
    "counter",
)
_SELDOM = 10.0  # seconds between two log lines about dropped events of a plugin
_SHOWN = 3  # lost events in a line


class AuditMetrics:
    """Counts events, and logs dropped events: the first at once, then at most every ten seconds per plugin."""

    def __init__(self, registry: CollectorRegistry, log: Logger) -> None:
        self.events = Counters(_EVENTS, registry)
        self.levels = Counters(_LEVELS, registry)
        self.rejected = Counters(_REJECTED, registry)
        self._errors = Counters(_ERRORS, registry)
        self._log = log
        self._reported_at: dict[str, float] = {}
        self._unreported: dict[str, int] = {}

    def lost(self, plugin: str, events: Sequence[bytes], why: str) -> None:
        """Count events that a plugin dropped, and log the reason."""
        self._errors.add(plugin, by=len(events))
        count = self._unreported[plugin] = self._unreported.get(plugin, 0) + len(events)
        now = monotonic()
        if plugin in self._reported_at and now - self._reported_at[plugin] < _SELDOM:
            return
        self._reported_at[plugin] = now
        self._unreported[plugin] = 0
        some = [legacy_line(event) for event in events[:_SHOWN]]
        self._log.error("audit events were lost", plugin=plugin, events=count, error=why, some=some)
