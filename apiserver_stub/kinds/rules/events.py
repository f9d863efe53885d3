"""The rules of events, in both groups (API concepts, Event resource).

An event with a time of its own says who reports what and why; one without is of the older sort, which may leave all
that open. In `events.k8s.io`, only the series of an event goes on after it was made.
"""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import KindRules, Rule, at_least, fixed, form, need, record
from apiserver_stub.kinds.schema import Tree

_SHORT, _NOTE = 128, 1024
_CLUSTER_WIDE = ("default", "kube-system")
# Whatever the group, a real server tells of it under the name in the core group.
_ABOUT = ((None, "involvedObject"), "namespace")
_OLD = {
    "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count", "deprecatedSource": "source",
}  # fmt: skip
_NOT_THERE = "does not match event.namespace"


def _lives(event: Any, subject: str, errors: ErrorList) -> None:
    """An event lives where the object it is about does; those of cluster-wide objects in `default`."""
    about = (event.get(subject) or {}).get("namespace") or ""
    namespace = (event.get("metadata") or {}).get("namespace") or ""
    if event.get("eventTime"):
        wrong = not about and namespace not in _CLUSTER_WIDE
    else:
        wrong = about != namespace if about else namespace != _CLUSTER_WIDE[0]
    if wrong:
        errors.invalid(_ABOUT, about, _NOT_THERE)


def _text(limit: int) -> Rule:
    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(value.encode()) > limit:
            errors.invalid(at, value, f"can have at most {limit} characters")

    return rule


def _note(value: Any, _at: FieldPath, errors: ErrorList) -> None:
    _text(_NOTE)(value, (None, "message"), errors)


_SERIES = record({"count": at_least(2, "should be at least 2")})


def _event(subject: str, controller: str, note: str, *also: str) -> Rule:
    """Return the rule of events that name these things so; `also` are more that new ones say."""
    reported = record({
        controller: form(names.qualified), note: _note, "series": _SERIES,
        **dict.fromkeys(("reportingInstance", "action", "reason"), _text(_SHORT)),
    }, need(controller, "reportingInstance", "action", "reason", *also))  # fmt: skip

    def rule(event: Any, at: FieldPath, errors: ErrorList) -> None:
        _lives(event, subject, errors)
        if event.get("eventTime"):
            reported(event, at, errors)

    return rule


_NEW = _event("regarding", "reportingController", "note")
_FIXED = fixed(
    "regarding", "reason", "note", "deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp",
    "deprecatedCount", "related", "type", "action", "reportingController", "reportingInstance", "eventTime",
)  # fmt: skip


def _of_today(event: Any, at: FieldPath, errors: ErrorList) -> None:
    """A new event in this group is none of the older sort; those that are there may go on."""
    if event.get("type") not in ("Normal", "Warning"):
        errors.invalid((at, "type"), event.get("type", ""), "must be Normal or Warning")
    for field, told in _OLD.items():
        if event.get(field):
            errors.invalid((at, told), "", "needs to be unset")


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    if old.get("eventTime"):
        _FIXED(new, old, errors)


RULES = {
    "v1/Event": KindRules(_event("involvedObject", "reportingComponent", "message")),
    "events.k8s.io/v1/Event": KindRules(_NEW, _change, on_create=_of_today),
}
