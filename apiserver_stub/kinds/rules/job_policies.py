"""The rules of what a job makes of Pods that fail, and of when it has succeeded."""

import re
from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import at_least, at_most, both, distinct, each, filled, one_of, record
from apiserver_stub.kinds.rules.formats import QUALIFIED
from apiserver_stub.kinds.trees import get_in

_MOST_RULES, _MOST_CODES, _MOST_PATTERNS = 20, 255, 20
_INDEXES = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", re.ASCII)


def _codes(requirement: Any, at: FieldPath, found: ErrorList) -> None:
    values, here = requirement.get("values") or [], (at, "values")
    if not values:
        found.invalid(here, values, "at least one value is required")
    elif len(values) > _MOST_CODES:
        found.too_many(here, len(values), _MOST_CODES)
    if values != sorted(values):
        found.invalid(here, values, "must be ordered")
    if requirement.get("operator") == "In" and 0 in values:
        found.invalid((here, values.index(0)), 0, "must not be 0 for the In operator")
    distinct()(values, here, found)


def _one_trigger(rule: Any, at: FieldPath, found: ErrorList) -> None:
    codes, conditions = "onExitCodes" in rule, bool(rule.get("onPodConditions"))
    if codes and conditions:
        found.invalid(at, rule, "may have `onExitCodes` or `onPodConditions`, not both")
    elif not codes and not conditions:
        found.invalid(at, rule, "needs `onExitCodes` or `onPodConditions`")


FAILURE_POLICY = record({"rules": both(
    at_most(_MOST_RULES),
    each(record({
        "action": one_of("Count", "FailIndex", "FailJob", "Ignore"),
        "onExitCodes": record({"operator": one_of("In", "NotIn")}, _codes),
        "onPodConditions": both(at_most(_MOST_PATTERNS), each(record({
            "type": QUALIFIED, "status": one_of("False", "True", "Unknown"),
        }))),
    }, _one_trigger)),
)})  # fmt: skip


def _indexes(text: Any, at: FieldPath, found: ErrorList) -> None:
    if not _INDEXES.fullmatch(text):
        found.invalid(at, text, "must be numbers and ranges of numbers, joined by ','")


def _one_measure(rule: Any, at: FieldPath, found: ErrorList) -> None:
    if "succeededCount" not in rule and "succeededIndexes" not in rule:
        found.required(at, "needs `succeededCount` or `succeededIndexes`")


SUCCESS_POLICY = record({"rules": both(
    filled("needs at least one rule"), at_most(_MOST_RULES),
    each(record({"succeededCount": at_least(0), "succeededIndexes": _indexes}, _one_measure)),
)})  # fmt: skip


def fits_template(spec: Any, at: FieldPath, found: ErrorList) -> None:
    """The rules for failures speak of containers there are, of a job whose Pods are not started again."""
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return
    here, inner = (at, "podFailurePolicy"), get_in(spec, ("template", "spec")) or {}
    restart = inner.get("restartPolicy")
    if restart == "OnFailure":
        at_policy = (((at, "template"), "spec"), "restartPolicy")
        found.invalid(at_policy, restart, 'only "Never" is supported when podFailurePolicy is specified')
    known = {c.get("name") for name in ("initContainers", "containers") for c in inner.get(name) or ()}
    for index, rule in enumerate(policy.get("rules") or ()):
        name = get_in(rule, ("onExitCodes", "containerName"))
        if name is not None and name not in known:
            place = (((here, "rules"), index), "onExitCodes")
            why = "must be the name of a container of the template"
            found.invalid((place, "containerName"), name, why)
        if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            why = "requires the backoffLimitPerIndex to be set"
            found.invalid((((here, "rules"), index), "action"), "FailIndex", why)
