"""Metrics of authorization: what authorizers decided, by type and name; webhooks and their match conditions."""

from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.base.registry import Registry
from controller_manager.common.serving.authorization import Decision

_NAMED = ("type", "name")
_RESULTS = ("name", "result")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DECISIONS = Family(
    "apiserver_authorization_decisions_total",
    "Number of final decisions, by type and name of the authorizer.",
    "counter",
    (*_NAMED, "decision"),
)
_EVALUATIONS = Family(
    "apiserver_authorization_webhook_evaluations_total", "Number of authorization webhook calls.", "counter", _RESULTS
)
_DURATION = Family(
    "apiserver_authorization_webhook_duration_seconds",
    "Seconds spent in authorization webhook calls.",
    "histogram",
    _RESULTS,
    _SECONDS,
)
_FAIL_OPEN = Family(
    "apiserver_authorization_webhook_evaluations_fail_open_total",
    "Number of requests without an opinion of the webhook because it failed.",
    "counter",
    _RESULTS,
)
_MATCH_ERRORS = Family(
    "apiserver_authorization_match_condition_evaluation_errors_total",
    "Number of requests for which the evaluation of match conditions failed.",
    "counter",
    _NAMED,
)
_EXCLUSIONS = Family(
    "apiserver_authorization_match_condition_exclusions_total",
    "Number of requests excluded by match conditions.",
    "counter",
    _NAMED,
)
_MATCH_SECONDS = Family(
    "apiserver_authorization_match_condition_evaluation_seconds",
    "Seconds spent evaluating match conditions of authorization webhooks.",
    "histogram",
    _NAMED,
    (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25),
)


class AuthorizationMetrics:
    """Counts decisions, calls of webhooks and evaluations of match conditions."""

    def __init__(self, registry: Registry) -> None:
        self._decisions = Counters(_DECISIONS, registry)
        self._evaluations = Counters(_EVALUATIONS, registry)
        self._duration = Histograms(_DURATION, registry)
        self._fail_open = Counters(_FAIL_OPEN, registry)
        self._match_errors = Counters(_MATCH_ERRORS, registry)
        self._exclusions = Counters(_EXCLUSIONS, registry)
        self._match_seconds = Histograms(_MATCH_SECONDS, registry)

    def decided(self, type_: str, name: str, decision: Decision) -> None:
        """Count a decision of an authorizer."""
        self._decisions.add(type_, name, decision.value)

    def asked(self, name: str, result: str, seconds: float) -> None:
        """A webhook was called once, with the result `success`, `error`, `timeout` or `canceled`."""
        self._evaluations.add(name, result)
        self._duration.observe(seconds, name, result)

    def failed_open(self, name: str, *, timed_out: bool) -> None:
        """Count a failed webhook call after which the next authorizer decides."""
        self._fail_open.add(name, "timeout" if timed_out else "error")

    def matched(self, type_: str, name: str, seconds: float, *, excluded: bool, failed: bool) -> None:
        """The match conditions of a webhook were evaluated."""
        self._match_seconds.observe(seconds, type_, name)
        if excluded:
            self._exclusions.add(type_, name)
        if failed:
            self._match_errors.add(type_, name)
