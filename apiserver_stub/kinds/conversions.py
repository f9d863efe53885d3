"""Conversions between versions that share storage: the two Event groups, the two autoscaler versions, and others.

Events are stored in the form of the core group, autoscalers as autoscaling/v2. Every function returns a new tree, and a
round trip loses nothing. Clients of autoscaling/v1 get the fields it does not have in annotations: metrics in v1 form,
conditions, and the behavior with capitalized field names, as Kubernetes does.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import orjson

from apiserver_stub.kinds.resource_info import Convert
from apiserver_stub.kinds.schema.clean import clean_tree
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.tree import Tree

# By source of metrics: the field of v1, and the path of v2.
Places = Mapping[str, Mapping[str, tuple[str, ...]]]


def _metric_paths(what: str, kind: str) -> Places:
    """Return the paths of a target (`target`) or of a measured value (`current`)."""
    utilization, average, value = (f"{what}AverageUtilization", f"{what}AverageValue", f"{what}Value")
    named = {"metricName": ("metric", "name")}
    resource = {"name": ("name",), utilization: (kind, "averageUtilization"), average: (kind, "averageValue")}
    return MappingProxyType({
        "object": {
            **named, "target": ("describedObject",), "selector": ("metric", "selector"),
            value: (kind, "value"), "averageValue": (kind, "averageValue"),
        },
        "pods": {**named, "selector": ("metric", "selector"), average: (kind, "averageValue")},
        "resource": resource,
        "containerResource": {**resource, "container": ("container",)},
        "external": {
            **named, "metricSelector": ("metric", "selector"),
            value: (kind, "value"), average: (kind, "averageValue"),
        },
    })  # fmt: skip


TARGETS = _metric_paths("target", "target")
MEASURED = _metric_paths("current", "current")


def to_v1(metric: Tree, places: Places) -> Tree:
    """Return a v2 metric in v1 form."""
    found: Tree = {"type": metric.get("type", "")}
    for source, fields in places.items():
        if source in metric:
            values = {field: get_in(metric[source], path) for field, path in fields.items()}
            found[source] = {field: value for field, value in values.items() if value is not None}
    return found


def to_v2(metric: Tree, places: Places) -> Tree:
    """Return a v1 metric in v2 form, including the type of the target."""
    found: Tree = {"type": metric.get("type", "")}
    for source, fields in places.items():
        if isinstance(metric.get(source), dict):
            found[source] = _moved(metric[source], fields)
            if places is TARGETS:
                found[source]["target"] = _with_target_type(source, found[source].get("target", {}))
    return found


def _moved(metric: Tree, fields: Mapping[str, tuple[str, ...]]) -> Tree:
    found: Tree = {}
    for field, path in fields.items():
        if metric.get(field) is not None:
            put_in(found, path, metric[field])
    return found


def _with_target_type(source: str, target: Tree) -> Tree:
    """Set the type of a target. v1 always has a value for object metrics, possibly zero."""
    if source == "object" and "averageValue" in target:
        target = {"averageValue": target["averageValue"]}
    return {"type": _sort(target), **target}


def _sort(target: Mapping[str, Any]) -> str:
    if "averageUtilization" in target:
        return "Utilization"
    return "Value" if "value" in target else "AverageValue"


_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
_CURRENT = "autoscaling.alpha.kubernetes.io/current-metrics"
_CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_USUAL_TARGET = 80  # percent
_DEEPEST = 10  # levels whose field names are converted; a behavior has fewer
_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY = ("type", "value", "periodSeconds")
_UNSAID = ("reportingController", "reportingInstance")

# events.k8s.io -> core
_EVENT_NAMES: Mapping[str, str] = MappingProxyType({
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
})  # fmt: skip
_CORE_NAMES: Mapping[str, str] = MappingProxyType({core: new for new, core in _EVENT_NAMES.items()})


def fitted(convert: Convert, node: Schema) -> Convert:
    """Return a conversion whose result is fitted to the storage schema. Raises `BadRequest` if content of annotations
    does not fit.
    """

    def fit(tree: Tree) -> Tree:
        found = convert(tree)
        report = clean_tree(found, node)
        if report.wrong:
            raise BadRequest(f"the object can't be stored as {found['apiVersion']}: {'; '.join(report.wrong)}")
        return found

    return fit


def event_to_core(event: Tree) -> Tree:
    """Return an Event of events.k8s.io/v1 as a core/v1 Event."""
    always: Tree = {"involvedObject": {}, "source": {}, "reportingComponent": "", "reportingInstance": ""}
    return always | _renamed(event, _EVENT_NAMES, "v1")


def event_from_core(event: Tree) -> Tree:
    """Return a core/v1 Event as an Event of events.k8s.io/v1."""
    found: Tree = {"regarding": {}, "deprecatedSource": {}} | _renamed(event, _CORE_NAMES, "events.k8s.io/v1")
    return {name: value for name, value in found.items() if value or name not in _UNSAID}


def autoscaler_to_v2(old: Tree) -> Tree:
    """Return an autoscaling/v1 autoscaler as v2. Fields that v1 lacks are read from annotations."""
    metadata, annotations = _annotations(old)
    spec, status = dict(old.get("spec", {})), dict(old.get("status", {}))
    metrics = [to_v2(metric, TARGETS) for metric in _pop_annotation(annotations, _METRICS, [])]
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        metrics.append(_cpu(target))
    behavior = _uncapitalized(_pop_annotation(annotations, _BEHAVIOR, None))
    _put(spec, metrics=metrics or [_cpu(_USUAL_TARGET)], behavior=behavior)
    current = [to_v2(metric, MEASURED) for metric in _pop_annotation(annotations, _CURRENT, [])]
    seen = status.pop("currentCPUUtilizationPercentage", None)
    if seen is not None and not any(map(_current_cpu, current)):
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": seen}}}, *current]
    _put(status, currentMetrics=current, conditions=_pop_annotation(annotations, _CONDITIONS, []))
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    return _whole(old, "autoscaling/v2", _with_annotations(metadata, annotations), spec, status)


def autoscaler_from_v2(new: Tree) -> Tree:
    """Return an autoscaling/v2 autoscaler as v1."""
    metadata, annotations = _annotations(new)
    spec, status = dict(new.get("spec", {})), {"currentReplicas": 0, "desiredReplicas": 0, **new.get("status", {})}
    metrics = list(spec.pop("metrics", ()))
    first = next((i for i, metric in enumerate(metrics) if _cpu_target(metric) is not None), None)
    if first is not None:
        spec["targetCPUUtilizationPercentage"] = _cpu_target(metrics.pop(first))
    _kept(annotations, _METRICS, [to_v1(metric, TARGETS) for metric in metrics])
    _kept(annotations, _BEHAVIOR, _behavior(spec.pop("behavior", None)))
    current = status.pop("currentMetrics", None) or []
    seen = next((cpu for cpu in map(_current_cpu, current) if cpu is not None), None)
    if seen is not None:
        status["currentCPUUtilizationPercentage"] = seen
    _kept(annotations, _CURRENT, [to_v1(metric, MEASURED) for metric in current])
    _kept(annotations, _CONDITIONS, status.pop("conditions", None))
    return _whole(new, "autoscaling/v1", _with_annotations(metadata, annotations), spec, status)


def renamed(api_version: str) -> Convert:
    """Return a conversion that only replaces the apiVersion. The schemas of the versions are equal."""
    return lambda tree: {**tree, "apiVersion": api_version}


def _renamed(event: Tree, names: Mapping[str, str], api_version: str) -> Tree:
    found = {names.get(name, name): value for name, value in event.items()}
    found["apiVersion"] = api_version
    return found


def _cpu(target: int) -> Tree:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}},
    }


def _cpu_target(metric: Tree) -> Any:
    target = metric.get("resource", {}).get("target", {}).get("averageUtilization")
    return target if target is not None and metric == _cpu(target) else None


def _current_cpu(metric: Tree) -> Any:
    resource = metric.get("resource", {})
    return resource.get("current", {}).get("averageUtilization") if resource.get("name") == "cpu" else None


def _uncapitalized(value: Any, levels: int = _DEEPEST) -> Any:
    """Return the value without nulls and with all field names starting in lower case."""
    if levels and isinstance(value, dict):
        inner = ((name, _uncapitalized(v, levels - 1)) for name, v in value.items() if v is not None)
        return {name[:1].lower() + name[1:]: v for name, v in inner}
    return [_uncapitalized(v, levels - 1) for v in value] if levels and isinstance(value, list) else value


def _behavior(behavior: Tree | None) -> Tree | None:
    """Return a behavior in annotation form: capitalized field names, null for unset fields."""
    return behavior and {_capital(name): _rules(behavior.get(name)) for name in ("scaleUp", "scaleDown")}


def _rules(rules: Tree | None) -> Tree | None:
    if rules is None:
        return None
    policies = [{_capital(name): policy.get(name) for name in _POLICY} for policy in rules.get("policies", ())]
    return {_capital(name): rules.get(name) for name in _RULES} | {"Policies": policies or None}


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _annotations(tree: Tree) -> tuple[Tree, dict[str, str]]:
    metadata = dict(tree.get("metadata", {}))
    return metadata, dict(metadata.pop("annotations", None) or {})


def _with_annotations(metadata: Tree, annotations: dict[str, str]) -> Tree:
    return {**metadata, "annotations": annotations} if annotations else metadata


def _pop_annotation(annotations: dict[str, str], name: str, otherwise: Any) -> Any:
    """Remove an annotation and return its decoded value. An annotation that is not JSON of the expected form stays."""
    try:
        found = orjson.loads(annotations.get(name, ""))
    except orjson.JSONDecodeError:
        return otherwise
    shape = dict if otherwise is None else list
    fits = isinstance(found, shape) and (shape is dict or all(isinstance(item, dict) for item in found))
    if not fits:
        return otherwise
    del annotations[name]
    return found


def _kept(annotations: dict[str, str], name: str, value: Any) -> None:
    if value:
        annotations[name] = msgspec.json.encode(value).decode()


def _put(tree: Tree, **values: Any) -> None:
    tree.update({name: value for name, value in values.items() if value})


def _whole(tree: Tree, api_version: str, metadata: Tree, spec: Tree, status: Tree) -> Tree:
    parts = {"metadata": metadata, "spec": spec, "status": status}
    return {**tree, "apiVersion": api_version, **{name: part for name, part in parts.items() if part or name in tree}}
