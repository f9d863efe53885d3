"""Metrics of admission webhook calls and match conditions."""

from prometheus_client import CollectorRegistry

from controller_manager.common.base.metrics import Counters, Family, Histograms

_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)
_SECONDS = Family(
    "apiserver_admission_webhook_admission_duration_seconds",
    "Seconds spent in admission webhook calls, by whether the request was rejected.",
    "histogram",
    ("name", "operation", "rejected", "type"),
    _BUCKETS,
    stability="STABLE",
)
_REQUESTS = Family(
    "apiserver_admission_webhook_request_total",
    "Number of admission webhook calls, by response code and whether the request was rejected.",
    "counter",
    ("code", "name", "operation", "rejected", "type"),
)
_REJECTIONS = Family(
    "apiserver_admission_webhook_rejection_count",
    "Number of requests rejected by admission webhooks or because the call failed.",
    "counter",
    ("error_type", "name", "operation", "rejection_code", "type"),
)
_FAIL_OPEN = Family(
    "apiserver_admission_webhook_fail_open_count",
    "Number of requests admitted although the admission webhook call failed.",
    "counter",
    ("name", "type"),
)
_BY_CONDITIONS = ("kind", "name", "operation", "type")
_CONDITION_SECONDS = Family(
    "apiserver_admission_match_condition_evaluation_seconds",
    "Seconds spent evaluating match conditions.",
    "histogram",
    _BY_CONDITIONS,
    (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25),
)
_CONDITION_ERRORS = Family(
    "apiserver_admission_match_condition_evaluation_errors_total",
    "Number of failed evaluations of match conditions.",
    "counter",
    _BY_CONDITIONS,
)
_EXCLUSIONS = Family(
    "apiserver_admission_match_condition_exclusions_total",
    "Number of requests excluded by match conditions of webhooks or policies.",
    "counter",
    _BY_CONDITIONS,
)
_HIGHEST = 600  # the highest status code used as a label value

CALLING, INTERNAL, NO_ERROR = "calling_webhook_error", "apiserver_internal_error", "no_error"
"""Why a request was rejected: the call failed, the server could not apply the response, or the webhook rejected it."""


class WebhookMetrics:
    """Metrics of all webhooks of one server."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._seconds = Histograms(_SECONDS, registry)
        self._requests = Counters(_REQUESTS, registry)
        self._rejections = Counters(_REJECTIONS, registry)
        self._fail_open = Counters(_FAIL_OPEN, registry)

    def asked(self, name: str, kind: str, operation: str, code: int, rejected: str, seconds: float) -> None:
        """Record a finished call of a webhook of type `admit` or `validating`; `rejected` is the reason of a rejection,
        or empty.
        """
        status, refused = str(min(code, _HIGHEST)), "true" if rejected else "false"
        self._requests.add(status, name, operation, refused, kind)
        self._seconds.observe(seconds, name, operation, refused, kind)
        if rejected:
            self._rejections.add(rejected, name, operation, status, kind)

    def failed_open(self, name: str, kind: str) -> None:
        """Record a request that was admitted although the webhook call failed."""
        self._fail_open.add(name, kind)


class ConditionMetrics:
    """Counts of the match conditions of webhooks and policies."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._seconds = Histograms(_CONDITION_SECONDS, registry)
        self._errors = Counters(_CONDITION_ERRORS, registry)
        self._exclusions = Counters(_EXCLUSIONS, registry)

    def evaluated(
        self, of: str, name: str, kind: str, operation: str, seconds: float, *, failed: bool, excluded: bool
    ) -> None:
        """Record an evaluation of the conditions of a `webhook` or a `policy` (`of`), with the same types as in other
        metrics.
        """
        labels = of, name, operation, kind
        self._seconds.observe(seconds, *labels)
        if failed:
            self._errors.add(*labels)
        if excluded:  # by phase; its name for webhooks differs from their type in other metrics
            self._exclusions.add(of, name, operation, "validate" if kind == "validating" else kind)
