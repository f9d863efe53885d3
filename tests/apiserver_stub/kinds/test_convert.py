"""Conversions between versions that share storage lose nothing."""

import copy
import json
import operator
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.conversions import autoscaler_from_v2, autoscaler_to_v2, event_from_core, event_to_core
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api.errors import BadRequest

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
CURRENT = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 33}}}


def test_new_event_is_stored_with_core_names() -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a", "namespace": "b"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "hello",
        "reportingController": "c",
        "reportingInstance": "c-0",
        "deprecatedCount": 2,
    }
    core = event_to_core(event)
    assert core == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a", "namespace": "b"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "involvedObject": {"kind": "Pod", "name": "p"},
        "message": "hello",
        "reportingComponent": "c",
        "reportingInstance": "c-0",
        "count": 2,
        "source": {},
    }
    assert event_from_core(core) == {**event, "deprecatedSource": {}}


def test_autoscaler_v2_fields_are_stored_in_v1_annotations() -> None:
    new = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "annotations": {"mine": "1"}},
        "spec": {
            "maxReplicas": 5,
            "metrics": [CPU, MEMORY],
            "behavior": {"scaleDown": {"selectPolicy": "Disabled"}},
        },
        "status": {"desiredReplicas": 2, "currentMetrics": [CURRENT], "conditions": [{"type": "AbleToScale"}]},
    }
    before = copy.deepcopy(new)
    old = autoscaler_from_v2(new)
    assert new == before
    assert old["spec"] == {"maxReplicas": 5, "targetCPUUtilizationPercentage": 70}
    assert old["status"] == {"currentReplicas": 0, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 33}
    assert set(old["metadata"]["annotations"]) == {
        "mine",
        "autoscaling.alpha.kubernetes.io/metrics",
        "autoscaling.alpha.kubernetes.io/behavior",
        "autoscaling.alpha.kubernetes.io/current-metrics",
        "autoscaling.alpha.kubernetes.io/conditions",
    }
    new["spec"]["metrics"] = [MEMORY, CPU]
    assert autoscaler_to_v2(old) == new


IDENTIFIED = {"name": "q", "selector": {"matchLabels": {"a": "b"}}}
FIVE = {"type": "AverageValue", "averageValue": "5"}
INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "i"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}},
            MEMORY,
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {"name": "cpu", "container": "c", "targetAverageUtilization": 5},
            },
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 5},
                },
            },
        ),
        (
            {"type": "Pods", "pods": {"metricName": "q", "targetAverageValue": "5"}},
            {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": FIVE}},
        ),
        (
            {"type": "Object", "object": {"metricName": "q", "target": INGRESS, "targetValue": "5"}},
            {
                "type": "Object",
                "object": {
                    "metric": {"name": "q"}, "describedObject": INGRESS, "target": {"type": "Value", "value": "5"},
                },
            },
        ),
        (
            {
                "type": "External",
                "external": {"metricName": "q", "metricSelector": IDENTIFIED["selector"], "targetValue": "5"},
            },
            {"type": "External", "external": {"metric": IDENTIFIED, "target": {"type": "Value", "value": "5"}}},
        ),
    ],
)  # fmt: skip
def test_metric_annotations_use_the_v2beta1_form(old: Any, new: Any) -> None:
    scaler = autoscaler_from_v2({"apiVersion": "autoscaling/v2", "spec": {"metrics": [new]}})
    annotation = scaler["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"]
    assert json.loads(annotation) == [old]
    assert autoscaler_to_v2(scaler)["spec"]["metrics"] == [new]


def test_object_metric_average_is_stored_with_zero_value() -> None:
    metric = {"metricName": "q", "target": INGRESS, "targetValue": "0", "averageValue": "7"}
    text = json.dumps([{"type": "Object", "object": metric}])
    old = {"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": text}}}
    (metric,) = autoscaler_to_v2(old)["spec"]["metrics"]
    assert metric["object"]["target"] == {"type": "AverageValue", "averageValue": "7"}


def test_behavior_annotation_is_capitalized_and_read_either_way() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}], "selectPolicy": "Max"}}
    old = autoscaler_from_v2({"apiVersion": "autoscaling/v2", "spec": {"metrics": [CPU], "behavior": behavior}})
    annotations = old["metadata"]["annotations"]
    name = "autoscaling.alpha.kubernetes.io/behavior"
    assert json.loads(annotations[name]) == {
        "ScaleUp": {
            "StabilizationWindowSeconds": None, "SelectPolicy": "Max",
            "Policies": [{"Type": "Pods", "Value": 4, "PeriodSeconds": 15}], "Tolerance": None,
        },
        "ScaleDown": None,
    }  # fmt: skip
    for text in (annotations[name], json.dumps(behavior), json.dumps({**behavior, "ScaleDown": None})):
        annotations[name] = text
        assert autoscaler_to_v2(old)["spec"]["behavior"] == behavior


def test_autoscaler_without_target_defaults_to_80_percent_cpu() -> None:
    old = autoscaler_to_v2({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3}})
    assert autoscaler_from_v2(old)["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}


def test_v1_cpu_target_becomes_a_metric() -> None:
    old = {"apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"targetCPUUtilizationPercentage": 70}}
    assert autoscaler_to_v2(old)["spec"] == {"metrics": [CPU]}


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("metrics", '[{"type": "Resource", "resource": {"name": 5}}]', "spec.metrics[0].resource.name"),
        ("current-metrics", '[{"type": {}}]', "status.currentMetrics[0].type"),
        ("conditions", '[{"status": []}]', "status.conditions[0].status"),
        ("behavior", '{"ScaleUp": 5}', "spec.behavior.scaleUp"),
        ("behavior", '{"ScaleUp":' * 200 + "{}" + "}" * 200, ""),
    ],
)
def test_conversion_annotations_are_validated(name: str, text: str, where: str) -> None:
    annotations = {f"autoscaling.alpha.kubernetes.io/{name}": text}
    convert = built_in().find("autoscaling", "v1", "horizontalpodautoscalers").to_storage
    if not where:
        assert convert({"metadata": {"annotations": annotations}})["spec"]["behavior"] == {"scaleUp": {}}
        return
    with pytest.raises(BadRequest, match=re.escape(where)):
        convert({"metadata": {"annotations": annotations}})


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 50_000, '{"a":' * 900 + "1" + "}" * 900])
def test_annotation_of_any_depth_is_converted(text: str) -> None:
    for name in ("metrics", "current-metrics", "conditions", "behavior"):
        autoscaler_to_v2({"metadata": {"annotations": {f"autoscaling.alpha.kubernetes.io/{name}": text}}})


def test_invalid_metrics_annotation_is_preserved() -> None:
    name = "autoscaling.alpha.kubernetes.io/metrics"
    for text in ("{", "7", "[1]", ""):
        old = {"metadata": {"annotations": {name: text}}, "spec": {}}
        assert autoscaler_to_v2(old)["metadata"]["annotations"] == {name: text}


_OTHERS = st.lists(
    st.sampled_from([MEMORY, {"type": "External", "external": {
        "metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}
    }}]), max_size=3,
)  # fmt: skip
_autoscalers = st.fixed_dictionaries(
    {
        "apiVersion": st.just("autoscaling/v2"),
        "metadata": st.fixed_dictionaries(
            {"name": st.just("a")},
            optional={"annotations": st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1)},
        ),
        "spec": st.fixed_dictionaries(
            {
                "maxReplicas": st.integers(),
                "metrics": st.builds(operator.add, _OTHERS, st.lists(st.just(CPU), max_size=1)).filter(bool),
            },
            optional={"behavior": st.just({"scaleUp": {"selectPolicy": "Max"}})},
        ),
        "status": st.fixed_dictionaries(
            {"desiredReplicas": st.integers()},
            optional={
                "currentReplicas": st.integers(1, 5),
                "currentMetrics": st.lists(st.sampled_from([CURRENT, {"type": "Pods"}]), min_size=1, max_size=3),
                "conditions": st.just([{"type": "AbleToScale", "status": "True"}]),
            },
        ),
    }
)


@settings(max_examples=150, deadline=None)
@given(_autoscalers)
def test_any_autoscaler_round_trips(new: dict[str, Any]) -> None:
    """A target for the CPU becomes the last metric."""
    assert autoscaler_to_v2(autoscaler_from_v2(new)) == new


_NAMES = [
    "note",
    "regarding",
    "related",
    "deprecatedCount",
    "deprecatedSource",
    "series",
    "action",
    "reportingController",
]


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(_NAMES), st.text(max_size=4)))
def test_any_event_round_trips(fields: dict[str, Any]) -> None:
    always = {"apiVersion": "events.k8s.io/v1", "metadata": {}, "regarding": {}, "deprecatedSource": {}}
    event = {**always, **{name: value for name, value in fields.items() if value or name != "reportingController"}}
    assert event_from_core(event_to_core(event)) == event
