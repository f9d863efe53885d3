"""Conversions between versions that share storage lose nothing."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.convert import autoscaler_from_v2, autoscaler_to_v2, event_from_core, event_to_core

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
CURRENT = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 33}}}


def test_a_new_event_is_stored_under_the_old_names() -> None:
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
    }
    assert event_from_core(core) == event


def test_the_cpu_target_moves_and_the_rest_travels_in_annotations() -> None:
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
    assert old["status"] == {"desiredReplicas": 2, "currentCPUUtilizationPercentage": 33}
    assert set(old["metadata"]["annotations"]) == {
        "mine",
        "autoscaling.alpha.kubernetes.io/metrics",
        "autoscaling.alpha.kubernetes.io/behavior",
        "autoscaling.alpha.kubernetes.io/current-metrics",
        "autoscaling.alpha.kubernetes.io/conditions",
    }
    assert autoscaler_to_v2(old) == new


def test_an_old_client_s_target_becomes_a_metric() -> None:
    old = {"apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"targetCPUUtilizationPercentage": 70}}
    assert autoscaler_to_v2(old)["spec"] == {"metrics": [CPU]}


def test_text_that_is_no_metric_stays_an_annotation() -> None:
    name = "autoscaling.alpha.kubernetes.io/metrics"
    for text in ("{", "7", "[1]", ""):
        old = {"metadata": {"annotations": {name: text}}, "spec": {}}
        assert autoscaler_to_v2(old)["metadata"]["annotations"] == {name: text}


_metrics = st.lists(
    st.sampled_from([CPU, MEMORY, {"type": "External", "external": {"metric": {"name": "q"}}}]), max_size=3
)
_autoscalers = st.fixed_dictionaries(
    {
        "apiVersion": st.just("autoscaling/v2"),
        "metadata": st.fixed_dictionaries(
            {"name": st.just("a")},
            optional={"annotations": st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1)},
        ),
        "spec": st.fixed_dictionaries(
            {"maxReplicas": st.integers()},
            optional={
                "metrics": _metrics.filter(bool),
                "behavior": st.just({"scaleUp": {"selectPolicy": "Max"}}),
            },
        ),
    },
    optional={
        "status": st.fixed_dictionaries(
            {"desiredReplicas": st.integers()},
            optional={
                "currentMetrics": st.lists(st.sampled_from([CURRENT, {"type": "Pods"}]), min_size=1, max_size=3),
                "conditions": st.just([{"type": "AbleToScale", "status": "True"}]),
            },
        )
    },
)


@settings(max_examples=150, deadline=None)
@given(_autoscalers)
def test_an_autoscaler_comes_back_whole(new: dict[str, Any]) -> None:
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
def test_an_event_comes_back_whole(fields: dict[str, Any]) -> None:
    event = {"apiVersion": "events.k8s.io/v1", "metadata": {}, "regarding": {}, **fields}
    assert event_from_core(event_to_core(event)) == event
