"""The rules of autoscalers, in both versions, and of budgets for disruptions."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    Change,
    KindRules,
    at_least,
    between,
    changes,
    each,
    form,
    need,
    one_of,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.formats import SHARE
from apiserver_stub.kinds.rules.quantities import not_negative, positive
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800
_POSITIVE = at_least(1, "must be greater than 0")
_SEGMENT = form(names.path_segment)
_REFERENCE = record({"kind": _SEGMENT, "name": _SEGMENT})
# Of each type of metric: the field that describes it, and the values its target may have.
_METRICS = {
    "Resource": ("resource", ("averageUtilization", "averageValue")),
    "ContainerResource": ("containerResource", ("averageUtilization", "averageValue")),
    "Pods": ("pods", ("averageValue",)),
    "Object": ("object", ("value", "averageValue")),
    "External": ("external", ("value", "averageValue")),
}
_TARGET_VALUES = ("averageUtilization", "averageValue", "value")


def _room(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    lowest, highest = spec.get("minReplicas"), spec.get("maxReplicas")
    if isinstance(highest, int) and isinstance(lowest, int) and 0 < highest < lowest:
        errors.invalid((at, "maxReplicas"), highest, "must not be below `minReplicas`")
    sources = [metric.get("type") for metric in spec.get("metrics", ())]
    if lowest == 0 and sources and not {"Object", "External"}.intersection(sources):
        why = "must have an Object or External metric to scale to zero replicas, where no others tell anything"
        errors.forbidden((at, "metrics"), why)


_TARGET = record({
    "type": one_of("AverageValue", "Utilization", "Value"), "averageUtilization": _POSITIVE, "averageValue": positive,
    "value": positive,
})  # fmt: skip
_IDENTIFIER = record({"name": _SEGMENT, "selector": SELECTOR}, need("name"))
_SOURCES = {
    "resource": record({"target": _TARGET}, need("name", why="must name a resource")),
    "containerResource": record({"target": _TARGET}, need("name", "container")),
    "pods": record({"target": _TARGET, "metric": _IDENTIFIER}),
    "object": record({"target": _TARGET, "metric": _IDENTIFIER, "describedObject": _REFERENCE}),
    "external": record({"target": _TARGET, "metric": _IDENTIFIER}),
}


def _metric(metric: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = metric.get("type")
    source, values = _METRICS.get(kind, ("", ()))
    if not source:
        return
    if source not in metric:
        errors.required((at, source), "must be set for a metric of this type")
    else:
        _target(metric[source].get("target") or {}, ((at, source), "target"), values, errors)
    for name in _SOURCES:
        if name in metric and name != source:
            errors.forbidden((at, name), "may not be set for a metric of another type")


def _target(target: Any, at: FieldPath, allowed: tuple[str, ...], errors: ErrorList) -> None:
    given = [name for name in _TARGET_VALUES if name in target]
    if not set(given) & set(allowed):
        errors.required(at, f"must set either {' or '.join(allowed)}")
    elif len(given) > 1:
        errors.forbidden((at, given[0]), f"may not set both {' and '.join(given)}")


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
_SPEC = record({
    "scaleTargetRef": _REFERENCE, "minReplicas": at_least(0), "maxReplicas": _POSITIVE,
    "targetCPUUtilizationPercentage": _POSITIVE,
    "metrics": each(record(dict(_SOURCES), _metric)),
    "behavior": record({"scaleUp": _SCALING, "scaleDown": _SCALING}),
}, _room)  # fmt: skip


def _one_bound(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        errors.invalid(at, spec, "may have minAvailable or maxUnavailable, but not both")


_BUDGET = record({
    "minAvailable": SHARE, "maxUnavailable": SHARE, "selector": SELECTOR,
    "unhealthyPodEvictionPolicy": one_of("AlwaysAllow", "IfHealthyBudget"),
}, _one_bound)  # fmt: skip


def _counts(*fields: str) -> Change:
    return outcome(within("status", record(dict.fromkeys(fields, at_least(0)))))


def _misread(version: str) -> str:
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else ""


def _target_version(target: Tree, at: FieldPath, errors: ErrorList) -> None:
    """A target is of a group, but for replication controllers, which have none."""
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
    """Versions that were wrong before may stay."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    target, former = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
    if any(target.get(name) != former.get(name) for name in ("apiVersion", "kind")):
        _target_version(target, place("spec.scaleTargetRef"), errors)
    wrong = ErrorList()
    _object_versions(before.get("metrics") or [], None, wrong)
    if not wrong.causes:
        _object_versions(spec.get("metrics") or [], place("spec.metrics"), errors)


_SCALER = KindRules(
    within("spec", _SPEC), _changed_versions, {"status": _counts("currentReplicas", "desiredReplicas")},
    on_create=_VERSIONS,
)  # fmt: skip
RULES = {
    "autoscaling/v1/HorizontalPodAutoscaler": _SCALER,
    "autoscaling/v2/HorizontalPodAutoscaler": _SCALER,
    "policy/v1/PodDisruptionBudget": KindRules(within("spec", _BUDGET), subresources={
        "status": changes(
            _counts("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
            outcome(within("status.conditions", CONDITIONS)),
        ),
    }),
}  # fmt: skip
