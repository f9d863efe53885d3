"""Validation of events in both groups (API concepts, Event resource).

An event with `eventTime` must have a reporter, an action and a reason. Older events without it may leave them out. In
`events.k8s.io` only the series of an event may change. For both groups kube-apiserver reports most fields under their
core/v1 names.
"""

from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import KindRules, ValueRule, form, need
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

_SHORT, _NOTE = 128, 1024
_CLUSTER_WIDE = ("default", "kube-system")
_NOT_THERE = "does not match event.namespace"
_CORE_NAMES = {
    "regarding": "involvedObject", "note": "message", "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}  # fmt: skip
_OLD = ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "deprecatedSource")
_FIXED = (
    "regarding", "reason", "note", *_OLD, "related", "type", "action", "reportingController", "reportingInstance",
    "eventTime",
)  # fmt: skip
_REPORTED = need("reportingInstance", "action", "reason")


def _core_path(name: str) -> FieldPath:
    return (None, _CORE_NAMES.get(name, name))


def _check_namespace(event: Any, subject: str, errors: ErrorList) -> None:
    """Check that an event is in the namespace of its object, or in `default` for a cluster-scoped object."""
    about = (event.get(subject) or {}).get("namespace") or ""
    namespace = (event.get("metadata") or {}).get("namespace") or ""
    if event.get("eventTime"):
        wrong = not about and namespace not in _CLUSTER_WIDE
    else:
        wrong = about != namespace if about else namespace != _CLUSTER_WIDE[0]
    if wrong:
        errors.invalid(place("involvedObject.namespace"), about, _NOT_THERE)


def _event(subject: str, controller: str, note: str) -> ValueRule:
    """Return the rule for events with these field names."""
    limits = {"reportingInstance": _SHORT, "action": _SHORT, "reason": _SHORT, note: _NOTE}

    def rule(event: Any, at: FieldPath, errors: ErrorList) -> None:
        _check_namespace(event, subject, errors)
        if not event.get("eventTime"):
            return
        need(controller)(event, at, errors)
        form(names.qualified)(event.get(controller) or "", (at, controller), errors)
        _REPORTED(event, at, errors)
        for name, limit in limits.items():
            if len((event.get(name) or "").encode()) > limit:
                errors.invalid(_core_path(name), event[name], f"can have at most {limit} characters")

    return rule


def _series(event: Any, at: FieldPath, errors: ErrorList) -> None:
    series, here = event.get("series"), (at, "series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        errors.invalid((here, "count"), series.get("count", 0), "should be at least 2")
    need("lastObservedTime")(series, here, errors)


def _new_event(event: Any, at: FieldPath, errors: ErrorList) -> None:
    """Reject a new event of the older form. Stored ones may stay."""
    _series(event, at, errors)
    need("eventTime")(event, at, errors)
    if event.get("type") not in ("Normal", "Warning"):
        errors.invalid((at, "type"), event.get("type", ""), "must be Normal or Warning")
    for name in _OLD:
        if event.get(name):
            errors.invalid(_core_path(name), "", "needs to be unset")


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    if new.get("series") != old.get("series"):
        _series(new, None, errors)
    for name in _FIXED:
        value = new.get(name) or None
        if value != (old.get(name) or None):
            errors.invalid(_core_path(name), value, IMMUTABLE)


RULES = {
    "v1/Event": KindRules(
        _event("involvedObject", "reportingComponent", "message"), name=names.path_segment, by_schema=False,
    ),
    "events.k8s.io/v1/Event": KindRules(
        _event("regarding", "reportingController", "note"), _change, on_create=_new_event, by_schema=False,
    ),
}  # fmt: skip
