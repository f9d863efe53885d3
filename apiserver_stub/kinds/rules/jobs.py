"""The rules of jobs, and of what starts them by the clock."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    Rules,
    at_least,
    both,
    changes,
    filled,
    fixed,
    form,
    never,
    record,
    shorter,
    within,
)
from apiserver_stub.kinds.rules.job_policies import FAILURE_POLICY, SUCCESS_POLICY, fits_template
from apiserver_stub.kinds.rules.pod import pod_template
from apiserver_stub.kinds.rules.schedules import schedule, time_zone
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.rules.workloads import matching
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, same_but

_CRON_NAME_LIMIT = 52
_MOST_INDEXED = 100_000
_STEERING = ("affinity", "nodeSelector", "schedulingGates", "tolerations")
_COUNTS = (
    "activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completions", "maxFailedIndexes",
    "parallelism", "ttlSecondsAfterFinished",
)  # fmt: skip


def _managed_by(name: str) -> str:
    return names.domain_prefixed(name) if len(name) <= 63 else ""


def _indexes(spec: Any, at: FieldPath, found: ErrorList) -> None:
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        found.required((at, "backoffLimitPerIndex"), "when maxFailedIndexes is specified")
    if spec.get("completionMode") == "Indexed":
        most = min(spec.get("completions", _MOST_INDEXED), _MOST_INDEXED)
        if spec.get("maxFailedIndexes", 0) > most:
            found.invalid((at, "maxFailedIndexes"), spec["maxFailedIndexes"], f"must be no more than {most}")
        if spec.get("completions") is None:
            found.required((at, "completions"), "when completion mode is Indexed")
        if spec.get("parallelism", 0) > _MOST_INDEXED:
            why = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            found.invalid((at, "parallelism"), spec["parallelism"], why)
        return
    for name in ("backoffLimitPerIndex", "successPolicy", "maxFailedIndexes"):
        if name in spec and spec.get("completionMode") in (None, "NonIndexed"):
            found.invalid((at, name), spec[name], "requires indexed completion mode")


_SPEC = record({
    **dict.fromkeys(_COUNTS, at_least(0)), "selector": SELECTOR,
    "managedBy": both(filled(), shorter(63), form(_managed_by)),
    "podFailurePolicy": FAILURE_POLICY, "successPolicy": SUCCESS_POLICY,
    "template": pod_template("OnFailure", "Never"),
}, _indexes, fits_template)  # fmt: skip


# What a job without a spec has, as every template without a word of it.
_NO_TEMPLATE = {"spec": {"restartPolicy": "Always"}}


def _job(job: Any, at: FieldPath, found: ErrorList) -> None:
    spec = job.get("spec")
    if spec is None:
        _SPEC({"template": _NO_TEMPLATE}, place("spec"), found)
        return
    record({"spec": both(_SPEC, matching)})(job, at, found)
    _pod_names(job, spec, found)


def _pod_names(job: Tree, spec: Tree, found: ErrorList) -> None:
    """The Pods of an indexed job carry its name and their index as host name."""
    completions, name = spec.get("completions"), get_in(job, ("metadata", "name")) or ""
    if spec.get("completionMode") != "Indexed" or not completions or completions < 0 or names.subdomain(name):
        return
    if why := names.label(f"{name}-{completions - 1}"):
        found.invalid(place("metadata.name"), name, f"its Pods would have no valid host names: {why}")


def _change(new: Tree, old: Tree, found: ErrorList) -> None:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        fixed("spec.completions")(new, old, found)
    waits = before.get("suspend") is True and not get_in(old, ("status", "startTime"))
    if not waits or not _same_but_steering(spec.get("template") or {}, before.get("template") or {}):
        fixed("spec.template")(new, old, found)


def _same_but_steering(new: Tree, old: Tree) -> bool:
    """Whether templates differ only in where their Pods run, which a job that waits may still be told."""
    inner, before = new.get("spec") or {}, old.get("spec") or {}
    marks = [{**(template.get("metadata") or {}), "labels": None, "annotations": None} for template in (new, old)]
    return (
        marks[0] == marks[1]
        and same_but(("metadata", "spec"), new, old)
        and same_but(("containers", "initContainers", *_STEERING), inner, before)
        and all(
            _same_containers(inner.get(name) or [], before.get(name) or []) for name in ("containers", "initContainers")
        )
    )


def _same_containers(new: list[Any], old: list[Any]) -> bool:
    return len(new) == len(old) and all(
        same_but(("resources",), one, other) for one, other in zip(new, old, strict=True)
    )


_FIXED = fixed(
    "spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.successPolicy",
    "spec.backoffLimitPerIndex", "spec.managedBy",
)  # fmt: skip


def _cron_name(job: Any, _at: FieldPath, found: ErrorList) -> None:
    name = get_in(job, ("metadata", "name")) or ""
    if len(name) > _CRON_NAME_LIMIT:
        found.invalid(place("metadata.name"), name, f"must be no more than {_CRON_NAME_LIMIT} characters")


def _zone(value: Any, at: FieldPath, found: ErrorList) -> None:
    why = time_zone(value) if value else "timeZone must be nil or non-empty string"
    if why:
        found.invalid(at, value, why)


_OWN_SELECTOR = never("selector", "manualSelector", why="`selector` will be auto-generated")
_CRON = record({
    "schedule": form(schedule), "timeZone": _zone, "startingDeadlineSeconds": at_least(0),
    "successfulJobsHistoryLimit": at_least(0), "failedJobsHistoryLimit": at_least(0),
    "jobTemplate": record({"spec": both(_SPEC, _OWN_SELECTOR)}),
})  # fmt: skip

RULES = {
    "batch/v1/Job": Rules(_job, changes(_change, _FIXED)),
    "batch/v1/CronJob": Rules(both(within("spec", _CRON), _cron_name)),
}
