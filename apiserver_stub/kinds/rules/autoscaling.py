"""Validation of HorizontalPodAutoscalers (both versions) and PodDisruptionBudgets."""

from collections.abc import Callable
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    ChangeRule,
    KindRules,
    ValueRule,
    at_least,
    between,
    both,
    changes,
    each,
    filled,
    form,
    if_any,
    need,
    one_of,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.formats import LABEL, SHARE
from apiserver_stub.kinds.rules.quantities import container_resource, not_negative, positive
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800
_POSITIVE = at_least(1, "must be greater than 0")
_SEGMENT = if_any(form(names.path_segment))
_REFERENCE = record({"kind": _SEGMENT, "name": _SEGMENT}, need("kind", "name"))
_SORTS = ("AverageValue", "Utilization", "Value")
# The field that describes a metric, by its type.
_FIELDS = {
    "ContainerResource": "containerResource", "External": "external", "Object": "object", "Pods": "pods",
    "Resource": "resource",
}  # fmt: skip


def _room(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    lowest, highest = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if not highest:
        errors.required((at, "maxReplicas"), "must be 1 at least")
    if lowest is not None and highest < lowest:
        errors.invalid((at, "maxReplicas"), highest, "must not be below `minReplicas`")
    sources = [metric.get("type") for metric in spec.get("metrics", ())]
    if lowest == 0 and sources and not {"Object", "External"}.intersection(sources):
        why = "must have an Object or External metric to scale to zero replicas"
        errors.forbidden((at, "metrics"), why)


def _sort(sort: Any, at: FieldPath, errors: ErrorList) -> None:
    if not sort:
        errors.required(at, "must say what sort of target this is")
    if sort not in _SORTS:
        errors.invalid(at, sort, f"must be one of {', '.join(_SORTS)}")


def _source(rows: dict[str, ValueRule], values: tuple[str, ...], missing: str, surplus: str = "") -> ValueRule:
    """Return the rule of a metric source whose target must set one of `values`.

    `missing` is the field of the error if none is set, `surplus` that of the error if several are.
    """

    def target_has(source: Any, at: FieldPath, errors: ErrorList) -> None:
        target, here = source.get("target") or {}, (at, "target")
        given = [name for name in values if name in target]
        if not given:
            errors.required((here, missing), f"must set {' or '.join(values)}")
        elif surplus and len(given) > 1:
            errors.forbidden((here, surplus), f"may not be set beside {given[0]}")

    return record({**rows, "target": _TARGET}, target_has)


_TARGET = record({
    "type": _sort, "averageUtilization": _POSITIVE, "averageValue": positive, "value": positive,
})  # fmt: skip
_METRIC = {"metric": record({"name": _SEGMENT}, need("name", why="must name a metric"))}
_RAW, _AVERAGE, _USED = "value", "averageValue", "averageUtilization"
# If a metric has several sources, only the first is validated.
_SOURCES: dict[str, ValueRule] = {
    "object": _source({**_METRIC, "describedObject": _REFERENCE}, (_RAW, _AVERAGE), _AVERAGE),
    "external": _source(_METRIC, (_AVERAGE, _RAW), _AVERAGE, _RAW),
    "pods": _source(_METRIC, (_AVERAGE,), _AVERAGE),
    "resource": _source({"name": filled("must name a resource")}, (_USED, _AVERAGE), _USED, _AVERAGE),
    "containerResource": _source(
        {"name": both(filled(), if_any(form(container_resource))), "container": both(filled(), LABEL)},
        (_USED, _AVERAGE), _USED, _AVERAGE,
    ),
}  # fmt: skip


def _metric(metric: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = metric.get("type") or ""
    expected = _FIELDS.get(kind)
    given = [name for name in _SOURCES if name in metric]
    if not kind:
        errors.required((at, "type"), "must say where the metric is from")
    if expected is None:
        errors.unsupported((at, "type"), kind, tuple(_FIELDS))
    elif expected not in given:
        errors.required((at, expected), "must be set for a metric of this type")
    if given:
        _SOURCES[given[0]](metric[given[0]], (at, given[0]), errors)
    for name in given:
        if len(given) > 1 and name != expected:
            errors.forbidden((at, name), "may not be set for a metric of another type")


def _policies(rules: Any, at: FieldPath, errors: ErrorList) -> None:
    if not rules.get("policies") and rules.get("selectPolicy") != "Disabled":
        errors.required((at, "policies"), "must have a policy at least")


_SCALING = record({
    "stabilizationWindowSeconds": between(
        0, _LONGEST_WINDOW, f"must be greater than or equal to zero and less than or equal to {_LONGEST_WINDOW}",
    ),
    "policies": each(record({
        "type": one_of("Percent", "Pods"), "value": at_least(1, "must be greater than zero"),
        "periodSeconds": between(
            1, _LONGEST_PERIOD, f"must be greater than zero and less than or equal to {_LONGEST_PERIOD}",
        ),
    })),
    "selectPolicy": one_of("Disabled", "Max", "Min"), "tolerance": not_negative,
}, _policies)  # fmt: skip
_COMMON: dict[str, ValueRule] = {
    "scaleTargetRef": _REFERENCE, "minReplicas": at_least(0), "maxReplicas": at_least(0),
}  # fmt: skip
_SPEC = record({
    **_COMMON, "metrics": each(_metric), "behavior": record({"scaleUp": _SCALING, "scaleDown": _SCALING}),
}, _room)  # fmt: skip


def older(to_v2: Callable[[Tree], Tree]) -> KindRules:
    """Return the rules of autoscaling/v1. Its CPU target is validated as a v2 metric."""

    def body(autoscaler: Any, at: FieldPath, errors: ErrorList) -> None:
        spec = to_v2(autoscaler)["spec"]
        record(_COMMON, _room)(spec, (at, "spec"), errors)
        if "targetCPUUtilizationPercentage" in (autoscaler.get("spec") or {}):
            last = len(spec["metrics"]) - 1
            _metric(spec["metrics"][last], (((at, "spec"), "metrics"), last), errors)

    return KindRules(body, _changed_versions, {"status": _STATUS}, on_create=_VERSIONS)


def _one_bound(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        errors.invalid(at, spec, "may have minAvailable or maxUnavailable, but not both")


_BUDGET = record({
    "minAvailable": SHARE, "maxUnavailable": SHARE, "selector": SELECTOR,
    "unhealthyPodEvictionPolicy": one_of("AlwaysAllow", "IfHealthyBudget"),
}, _one_bound)  # fmt: skip


def _counts(*fields: str) -> ChangeRule:
    return outcome(within("status", record(dict.fromkeys(fields, at_least(0)))))


def _misread(version: str) -> str:
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else ""


def _target_version(target: Tree, at: FieldPath, errors: ErrorList) -> None:
    """Require an API group in the target. ReplicationControllers have none."""
    version = target.get("apiVersion", "")
    why = _misread(version)
    if not why and target.get("kind") != "ReplicationController" and not version.rpartition("/")[0]:
        why = "apiVersion must specify API group"
    if why:
        errors.invalid((at, "apiVersion"), version, why)


def _object_versions(metrics: list[Any], at: FieldPath, errors: ErrorList) -> None:
    for index, metric in enumerate(metrics):
        version = get_in(metric, ("object", "describedObject", "apiVersion")) or ""
        if why := _misread(version):
            errors.invalid(((((at, index), "object"), "describedObject"), "apiVersion"), version, why)


_VERSIONS = within("spec", record({"scaleTargetRef": _target_version, "metrics": _object_versions}))


def _changed_versions(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check the version of a changed target, and those in metrics unless the stored ones are already invalid."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    target, former = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
    if any(target.get(name) != former.get(name) for name in ("apiVersion", "kind")):
        _target_version(target, place("spec.scaleTargetRef"), errors)
    wrong = ErrorList()
    _object_versions(before.get("metrics") or [], None, wrong)
    if not wrong.causes:
        _object_versions(spec.get("metrics") or [], place("spec.metrics"), errors)


_STATUS = _counts("currentReplicas", "desiredReplicas")
RULES = {
    "autoscaling/v2/HorizontalPodAutoscaler": KindRules(
        change=_changed_versions, subresources={"status": _STATUS}, on_create=_VERSIONS, spec=_SPEC,
    ),
    "policy/v1/PodDisruptionBudget": KindRules(spec=_BUDGET, name=names.path_segment, subresources={
        "status": changes(
            _counts("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
            outcome(within("status.conditions", CONDITIONS)),
        ),
    }),
}  # fmt: skip
