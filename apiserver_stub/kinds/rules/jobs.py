"""Validation of Jobs, their pod failure and success policies, and CronJobs."""

from collections.abc import Sequence
from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    at_least,
    at_most,
    both,
    changes,
    distinct,
    each,
    filled,
    fixed,
    form,
    one_of,
    record,
    shorter,
    within,
)
from apiserver_stub.kinds.rules.formats import QUALIFIED, schedule, time_zone
from apiserver_stub.kinds.rules.job_status import change_status, index_ranges
from apiserver_stub.kinds.rules.pod import pod_template
from apiserver_stub.kinds.rules.selectors import SELECTOR, is_readable, selects
from apiserver_stub.kinds.rules.workloads import selecting
from apiserver_stub.kinds.strategies.jobs import job_labels
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import dicts, get_in, same_but
from controller_manager.common.api.tree import Tree

_MOST_RULES, _MOST_CODES, _MOST_PATTERNS = 20, 255, 20
_LONGEST_INDEXES = 64 * 1024


def _codes(requirement: Any, at: FieldPath, errors: ErrorList) -> None:
    values, here = requirement.get("values") or [], (at, "values")
    if not values:
        errors.invalid(here, values, "at least one value is required")
    elif len(values) > _MOST_CODES:
        errors.too_many(here, len(values), _MOST_CODES)
    if values != sorted(values):
        errors.invalid(here, values, "must be ordered")
    if requirement.get("operator") == "In" and 0 in values:
        errors.invalid((here, values.index(0)), 0, "must not be 0 for the In operator")
    distinct()(values, here, errors)


def _one_trigger(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    codes, conditions = "onExitCodes" in rule, bool(rule.get("onPodConditions"))
    if codes and conditions:
        errors.invalid(at, rule, "may have `onExitCodes` or `onPodConditions`, not both")
    elif not codes and not conditions:
        errors.invalid(at, rule, "needs `onExitCodes` or `onPodConditions`")


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


def _success(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that success rules refer to existing indexes."""
    policy, here = spec.get("successPolicy"), (at, "successPolicy")
    if policy is None:
        return
    if spec.get("completionMode") != "Indexed":
        errors.invalid(here, policy, "requires indexed completion mode")
        return
    both(filled("needs at least one rule"), at_most(_MOST_RULES))(policy.get("rules") or [], (here, "rules"), errors)
    for index, rule in enumerate(policy.get("rules") or ()):
        if "succeededCount" not in rule and "succeededIndexes" not in rule:
            errors.required(((here, "rules"), index), "needs `succeededCount` or `succeededIndexes`")
        elif "completions" in spec:
            _success_rule(rule, spec["completions"], ((here, "rules"), index), errors)


def _success_rule(rule: Tree, completions: int, at: FieldPath, errors: ErrorList) -> None:
    count, indexes, most = rule.get("succeededCount"), rule.get("succeededIndexes"), completions
    if indexes is not None:
        shorter(_LONGEST_INDEXES)(indexes, (at, "succeededIndexes"), errors)
        ranges = index_ranges(indexes, completions)
        if ranges is None:
            why = f"must be ascending numbers and ranges of numbers below {completions}, joined by ','"
            errors.invalid((at, "succeededIndexes"), indexes, why)
        most = min(most, sum(last - first + 1 for first, last in ranges or ()))
    if count is not None and not 0 <= count <= most:
        errors.invalid((at, "succeededCount"), count, f"must be between 0 and {most}, inclusive")


def fits_template(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that failure rules refer to existing containers and that the Pods have restartPolicy Never."""
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return
    if spec.get("podReplacementPolicy", "Failed") != "Failed":
        errors.unsupported((at, "podReplacementPolicy"), spec["podReplacementPolicy"], ("Failed",))
    here, inner = (at, "podFailurePolicy"), get_in(spec, ("template", "spec")) or {}
    restart = inner.get("restartPolicy")
    if restart == "OnFailure":
        at_policy = (((at, "template"), "spec"), "restartPolicy")
        errors.invalid(at_policy, restart, 'only "Never" is supported when podFailurePolicy is specified')
    known = {c.get("name") for name in ("initContainers", "containers") for c in inner.get(name) or ()}
    for index, rule in enumerate(policy.get("rules") or ()):
        name = get_in(rule, ("onExitCodes", "containerName"))
        if name is not None and name not in known:
            place = (((here, "rules"), index), "onExitCodes")
            why = "must be the name of a container of the template"
            errors.invalid((place, "containerName"), name, why)
        if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            why = "requires the backoffLimitPerIndex to be set"
            errors.invalid((((here, "rules"), index), "action"), "FailIndex", why)


_CRON_NAME_LIMIT = 52
_MOST_INDEXED = 100_000
_STEERING = ("affinity", "nodeSelector", "schedulingGates", "tolerations")
_CONTAINERS = ("containers", "initContainers")
_COUNTS = (
    "activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completions", "maxFailedIndexes",
    "parallelism", "ttlSecondsAfterFinished",
)  # fmt: skip


def _indexes(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errors.required((at, "backoffLimitPerIndex"), "when maxFailedIndexes is specified")
    if spec.get("completionMode") == "Indexed":
        most = min(spec.get("completions", _MOST_INDEXED), _MOST_INDEXED)
        if spec.get("maxFailedIndexes", 0) > most:
            errors.invalid((at, "maxFailedIndexes"), spec["maxFailedIndexes"], f"must be no more than {most}")
        if spec.get("completions") is None:
            errors.required((at, "completions"), "when completion mode is Indexed")
        if spec.get("parallelism", 0) > _MOST_INDEXED:
            why = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            errors.invalid((at, "parallelism"), spec["parallelism"], why)
        return
    for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if name in spec and spec.get("completionMode") in (None, "NonIndexed"):
            errors.invalid((at, name), spec[name], "requires indexed completion mode")


_SPEC = record({
    **dict.fromkeys(_COUNTS, at_least(0)),
    "managedBy": both(filled(), shorter(63), form(names.domain_prefixed)),
    "podFailurePolicy": FAILURE_POLICY, "template": pod_template("OnFailure", "Never"),
}, _indexes, _success, fits_template)  # fmt: skip


# The defaults that a job without a spec has, as an empty template has.
_NO_TEMPLATE = {"spec": {"restartPolicy": "Always"}}


def _job(job: Any, at: FieldPath, errors: ErrorList) -> None:
    spec = job.get("spec")
    if spec is None:
        _SPEC({"template": _NO_TEMPLATE}, place("spec"), errors)
        return
    within("spec", both(_SPEC, record({"selector": SELECTOR})))(job, at, errors)
    if "selector" in spec or spec.get("manualSelector"):  # without both, the selector is generated
        selecting(spec, place("spec"), errors)
    _pod_names(job, spec, errors)


def _generated(job: Any, _at: FieldPath, errors: ErrorList) -> None:
    """Check that a new job has the generated selector and labels, unless `manualSelector` is set."""
    spec, ours, at = job.get("spec") or {}, job_labels(job), place("spec.template.metadata.labels")
    if spec.get("manualSelector") or "selector" not in spec:
        return
    labels = get_in(spec, ("template", "metadata", "labels")) or {}
    for name, value in ours.items():
        if labels.get(name) != value:
            errors.invalid((at, key(name)), labels.get(name, ""), f"must be {value}")
    if is_readable(spec["selector"]) and not selects(spec["selector"], ours):
        errors.invalid(place("spec.selector"), spec["selector"], "must only be what is made for the job")


def _pod_names(job: Tree, spec: Tree, errors: ErrorList) -> None:
    """Check that the names of the Pods of an indexed job are valid host names."""
    completions, name = spec.get("completions"), get_in(job, ("metadata", "name")) or ""
    if spec.get("completionMode") != "Indexed" or not completions or completions < 0 or names.subdomain(name):
        return
    if why := names.label(f"{name}-{completions - 1}"):
        errors.invalid(place("metadata.name"), name, f"its Pods would have no valid host names: {why}")


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if "selector" not in spec:
        selecting(spec, place("spec"), errors)
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        fixed("spec.completions")(new, old, errors)
    if not _is_steerable(old):
        fixed("spec.template")(new, old, errors)
    elif not _same_but_steering(spec, before):
        errors.invalid(place("spec.template.spec"), get_in(spec, ("template", "spec")), IMMUTABLE)


def _is_steerable(job: Tree) -> bool:
    """Return whether a job is suspended and has no pods, so that scheduling fields and resources of its template may
    change (KEP-2926, KEP-5440).
    """
    status = job.get("status") or {}
    conditions = (condition for _, condition in dicts(status.get("conditions")))
    is_suspended = any((one.get("type"), one.get("status")) == ("Suspended", "True") for one in conditions)
    waits = is_suspended or not status.get("startTime")
    return waits and not status.get("active") and get_in(job, ("spec", "suspend")) is True


def _same_but_steering(new: Tree, old: Tree) -> bool:
    """Return whether pods differ only in scheduling fields and container resources."""
    inner, before = (get_in(spec, ("template", "spec")) or {} for spec in (new, old))
    affinity, was = (spec.get("affinity") or {} for spec in (inner, before))
    return (
        same_but(("containers", "initContainers", *_STEERING), inner, before)
        and same_but(("nodeAffinity",), affinity, was)
        and all(_same_containers(inner.get(name) or (), before.get(name) or ()) for name in _CONTAINERS)
    )


def _same_containers(new: Sequence[Tree], old: Sequence[Tree]) -> bool:
    return len(new) == len(old) and all(
        same_but(("resources",), one, other) for one, other in zip(new, old, strict=True)
    )


_FIXED = fixed(
    "spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.successPolicy",
    "spec.backoffLimitPerIndex", "spec.managedBy",
)  # fmt: skip


def _cron_name(job: Any, _at: FieldPath, errors: ErrorList) -> None:
    name = get_in(job, ("metadata", "name")) or ""
    if len(name) > _CRON_NAME_LIMIT:
        errors.invalid(place("metadata.name"), name, f"must be no more than {_CRON_NAME_LIMIT} characters")


def _zone(value: Any, at: FieldPath, errors: ErrorList) -> None:
    why = time_zone(value) if value else "timeZone must be nil or non-empty string"
    if why:
        errors.invalid(at, value, why)


def _own_selector(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if "selector" in spec:
        errors.invalid((at, "selector"), spec["selector"], "is made for each job")
    if spec.get("manualSelector"):
        errors.unsupported((at, "manualSelector"), True, ("nil", "false"))


_CRON = record({
    "schedule": form(schedule), "timeZone": _zone, "startingDeadlineSeconds": at_least(0),
    "successfulJobsHistoryLimit": at_least(0), "failedJobsHistoryLimit": at_least(0),
    "jobTemplate": record({"spec": both(_SPEC, _own_selector)}),
})  # fmt: skip

RULES = {
    "batch/v1/Job": KindRules(_job, changes(_change, _FIXED), {"status": change_status}, on_create=_generated),
    "batch/v1/CronJob": KindRules(_cron_name, spec=_CRON),
}
