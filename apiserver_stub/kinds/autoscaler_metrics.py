"""The metrics of autoscalers as autoscaling/v1 and v2 tell them: the same facts at different places, as tables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, put_in

# By source of metrics: the field of v1, and the path of v2.
Places = Mapping[str, Mapping[str, tuple[str, ...]]]


def _places(what: str, kind: str) -> Places:
    """Where a target is told (`target`), or what was measured (`current`)."""
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


TARGETS = _places("target", "target")
MEASURED = _places("current", "current")


def to_v1(metric: Tree, places: Places) -> Tree:
    """A metric of v2 as v1 tells it."""
    found: Tree = {"type": metric.get("type", "")}
    for source, fields in places.items():
        if source in metric:
            told = {field: get_in(metric[source], path) for field, path in fields.items()}
            found[source] = {field: value for field, value in told.items() if value is not None}
    return found


def to_v2(metric: Tree, places: Places) -> Tree:
    """A metric of v1 as v2 tells it, which also has a word for what sort of target there is."""
    found: Tree = {"type": metric.get("type", "")}
    for source, fields in places.items():
        if isinstance(metric.get(source), dict):
            found[source] = _moved(metric[source], fields)
            if places is TARGETS:
                found[source]["target"] = _with_sort(source, found[source].get("target", {}))
    return found


def _moved(told: Tree, fields: Mapping[str, tuple[str, ...]]) -> Tree:
    found: Tree = {}
    for field, path in fields.items():
        if told.get(field) is not None:
            put_in(found, path, told[field])
    return found


def _with_sort(source: str, target: Tree) -> Tree:
    """v1 has a value for every object, if only zero."""
    if source == "object" and "averageValue" in target:
        target = {"averageValue": target["averageValue"]}
    return {"type": _sort(target), **target}


def _sort(target: Mapping[str, Any]) -> str:
    if "averageUtilization" in target:
        return "Utilization"
    return "Value" if "value" in target else "AverageValue"
