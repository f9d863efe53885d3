"""Decisions of the autoscaler: replicas from metrics, limits and conditions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.autoscaling import (
    Behavior,
    ScalingPolicy,
    ScalingRules,
)
from controller_manager.common.api.resource import Key
from controller_manager.common.api.selectors import LabelSelector, LabelSelectorSpec, SelectorRequirement
from controllers.horizontal_pod_autoscaler.decision import (
    ScalingDefaults,
    bounds_of,
    by_metrics,
    without_metrics,
    zero_updates,
)
from controllers.horizontal_pod_autoscaler.limits import (
    Bounds,
    ConditionUpdate,
    History,
    normalize,
    normalize_with_behavior,
    with_updates,
)
from controllers.horizontal_pod_autoscaler.metrics_client import query_of, text_of
from controllers.horizontal_pod_autoscaler.replica_calculator import SelectorIndex
from tests.controllers.autoscaler_builders import FAILED, METRIC, RESOURCE, RULES, pod, proposal, scaler, spec

BOUNDS = Bounds(2, 20)


@pytest.mark.parametrize(
    ("recommended", "current", "replicas", "reasons"),
    [
        (5, 4, 5, ("ReadyForNewScale", "DesiredWithinRange")),
        (9, 4, 8, ("ReadyForNewScale", "ScaleUpLimit")),
        (9, 2, 4, ("ReadyForNewScale", "ScaleUpLimit")),
        (30, 15, 20, ("ReadyForNewScale", "TooManyReplicas")),
        (3, 4, 4, ("ScaleDownStabilized", "DesiredWithinRange")),
    ],
)
def test_replicas_without_behavior(recommended: int, current: int, replicas: int, reasons: tuple[str, str]) -> None:
    found = normalize(recommended, current, BOUNDS, History("u", 0.0, current), 300.0, 10.0)
    assert (found.replicas, tuple(one.reason for one in found.updates)) == (replicas, reasons)


def test_scale_down_uses_highest_recommendation_in_window() -> None:
    history = History("u", 0.0, 4)
    seen = [normalize(wanted, 4, BOUNDS, history, 60.0, at).replicas
            for at, wanted in ((10, 6), (30, 3), (60, 3), (71, 3), (80, 1), (131, 1), (200, 1))]  # fmt: skip
    assert seen == [6, 6, 6, 3, 3, 2, 2]


def rules(window: int | None, *policies: tuple[str, int, int], select: str = "Max") -> ScalingRules:
    made = tuple(ScalingPolicy(type=kind, value=value, period_seconds=period) for kind, value, period in policies)
    return ScalingRules(stabilization_window_seconds=window, select_policy=select, policies=made)


@pytest.mark.parametrize(
    ("up", "down", "recommended", "current", "replicas", "limited"),
    [
        (rules(0, ("Pods", 2, 60)), None, 9, 4, 6, "ScaleUpLimit"),
        (rules(0, ("Pods", 2, 60), ("Percent", 100, 60)), None, 9, 4, 8, "ScaleUpLimit"),
        (rules(0, ("Pods", 2, 60), ("Percent", 100, 60), select="Min"), None, 9, 4, 6, "ScaleUpLimit"),
        (rules(0, ("Pods", 2, 60), select="Disabled"), None, 9, 4, 4, "ScaleUpLimit"),
        (rules(0, ("Percent", 10, 60)), None, 99, 11, 13, "ScaleUpLimit"),
        (rules(0, ("Pods", 50, 60)), None, 30, 4, 20, "TooManyReplicas"),
        (None, None, 9, 1, 5, "ScaleUpLimit"),
        (None, rules(0, ("Pods", 2, 60)), 3, 9, 7, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 50, 60)), 3, 9, 4, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 50, 60), ("Pods", 2, 60), select="Min"), 3, 9, 7, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 50, 60), select="Disabled"), 3, 9, 9, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 100, 60)), 1, 9, 2, "TooFewReplicas"),
        (None, rules(0, ("Percent", 100, 60)), 5, 9, 5, "DesiredWithinRange"),
        (None, rules(None, ("Percent", 100, 60)), 5, 9, 9, "DesiredWithinRange"),
        (rules(60, ("Pods", 9, 60)), None, 9, 4, 4, "DesiredWithinRange"),
    ],
)
def test_replicas_with_behavior(
    up: ScalingRules | None, down: ScalingRules | None, recommended: int, current: int, replicas: int, limited: str
) -> None:
    behavior = Behavior(scale_up=up, scale_down=down)
    found = normalize_with_behavior(behavior, recommended, current, BOUNDS, History("u", 0.0, current), 300.0, 10.0)
    assert (found.replicas, found.updates[1].reason) == (replicas, limited)


def test_policy_counts_earlier_scaling_in_its_period() -> None:
    history = History("u", 0.0, 4)
    history.scaled(10.0, 4, 7)
    slow = Behavior(scale_up=rules(0, ("Pods", 4, 60)))
    assert normalize_with_behavior(slow, 20, 7, BOUNDS, history, 300.0, 20.0).replicas == 8
    history.scaled(20.0, 7, 8)
    assert normalize_with_behavior(slow, 20, 8, BOUNDS, history, 300.0, 69.0).replicas == 8
    assert normalize_with_behavior(slow, 20, 8, BOUNDS, history, 300.0, 71.0).replicas == 11


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), max_size=40), st.integers(0, 100))
def test_history_returns_extremes_of_window(steps: list[tuple[int, int]], window: int) -> None:
    history, now, known = History("u", 0.0, 7), 0.0, [(0.0, 7)]
    for pause, value in steps:
        now += pause
        recent = [past for at, past in known if at > now - window]
        assert history.highest(now, window, value) == max([*recent, value])
        assert history.lowest(now, window, value) == min([*recent, value])
        history.recommended(now, value)
        known.append((now, value))


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=60))
def test_policies_are_never_exceeded(steps: list[tuple[int, int]]) -> None:
    behavior = Behavior(scale_up=rules(0, ("Pods", 3, 60)), scale_down=rules(0, ("Pods", 2, 60)))
    history, now, current, past = History("u", 0.0, 10), 0.0, 10, [(0.0, 10)]
    for pause, wanted in steps:
        now += pause
        after = normalize_with_behavior(behavior, wanted, current, BOUNDS, history, 0.0, now).replicas
        began = next((replicas for at, replicas in reversed(past) if at <= now - 60), 10)
        assert BOUNDS.low <= after <= BOUNDS.high
        assert min(current, began - 2) <= after <= max(current, began + 3)
        if after != current:
            history.scaled(now, current, after)
            current = after
        past.append((now, current))


@pytest.mark.parametrize(
    ("current", "parts", "found"),
    [
        (0, {}, (0, "")),
        (11, {}, (10, "more replicas than there may be, above Spec.MaxReplicas")),
        (1, {"minReplicas": 3}, (3, "fewer replicas than there must be, below Spec.MinReplicas")),
        (3, {"minReplicas": 3}, None),
    ],
)
def test_decisions_without_metrics(current: int, parts: dict[str, int], found: Any) -> None:
    decision = without_metrics(scaler(**parts), current, RULES)
    assert (decision and (decision.replicas, decision.reason)) == found


QUEUE = {"type": "External", "external": {"metric": METRIC, "target": {"type": "Value", "value": "1"}}}


ASLEEP = {"conditions": [{"type": "ScaledToZero", "status": "True"}]}


TO_ZERO = ScalingDefaults(0.1, 300.0, to_zero=True, own_tolerance=True)


@pytest.mark.parametrize(
    ("status", "metrics", "rules", "looks"),
    [
        (ASLEEP, [QUEUE], TO_ZERO, True),
        ({}, [QUEUE], TO_ZERO, False),
        (ASLEEP, [QUEUE], RULES, False),
        (ASLEEP, [{"type": "Resource", "resource": RESOURCE}], TO_ZERO, False),
    ],
)
def test_scale_from_zero_requires_own_scale_to_zero(
    status: Any, metrics: Any, rules: ScalingDefaults, looks: bool
) -> None:
    found = without_metrics(scaler(status, minReplicas=0, metrics=metrics), 0, rules)
    assert (found is None) is looks


@pytest.mark.parametrize("metric", [QUEUE, {"type": "Resource", "resource": RESOURCE}])
@pytest.mark.parametrize(("status", "rules", "replicas"), [(ASLEEP, TO_ZERO, 2), ({}, TO_ZERO, 0), (ASLEEP, RULES, 0)])
def test_raised_minimum_scales_from_zero(metric: Any, status: Any, rules: ScalingDefaults, replicas: int) -> None:
    found = without_metrics(scaler(status, minReplicas=2, metrics=[metric]), 0, rules)
    assert found is not None
    assert found.replicas == replicas


@pytest.mark.parametrize(
    ("status", "current", "desired", "rules", "expected"),
    [
        ({}, 3, 0, TO_ZERO, [True]),
        (ASLEEP, 0, 3, TO_ZERO, [False]),
        (ASLEEP, 0, 0, TO_ZERO, []),
        (ASLEEP, 2, 2, TO_ZERO, [False]),
        ({}, 2, 2, TO_ZERO, []),
        ({}, 3, 0, RULES, []),
    ],
)
def test_scaled_to_zero_condition_updates(
    status: Any, current: int, desired: int, rules: ScalingDefaults, expected: Any
) -> None:
    found = zero_updates(scaler(status, minReplicas=0, metrics=[QUEUE]), current, desired, rules)
    assert [one.holds for one in found] == expected


def test_minimum_zero_without_gate_counts_as_one() -> None:
    assert bounds_of(scaler(minReplicas=0).spec, RULES) == Bounds(1, 10)


def test_decision_contains_reason_and_problem() -> None:
    decision = by_metrics(scaler(), 4, [proposal(6)], History("u", 0.0, 4), RULES, 10.0)
    assert (decision.replicas, decision.reason, decision.agreed) == (6, "cpu is above its target", True)
    failed = by_metrics(scaler(), 4, [proposal(3), FAILED], History("u", 0.0, 4), RULES, 10.0)
    assert (failed.replicas, failed.agreed, failed.problem) == (4, False, "1 of 2 metrics are invalid: no")
    assert [one.type for one in failed.metrics] == ["Resource", ""]


def test_transition_time_changes_with_status_only() -> None:
    first = with_updates(
        (), [ConditionUpdate("AbleToScale", True, "A", "a"), ConditionUpdate("AbleToScale", True, "B", "b")], "t1"
    )
    second = with_updates(first, [ConditionUpdate("AbleToScale", True, "C", "c")], "t2")
    third = with_updates(second, [ConditionUpdate("AbleToScale", False, "D", "d")], "t3")
    assert [(one.reason, one.status, one.last_transition_time) for (one,) in (first, second, third)] == [
        ("B", "True", "t1"), ("C", "True", "t1"), ("D", "False", "t3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        (LabelSelectorSpec(match_labels={"b": "2", "a": "1"}), "a=1,b=2"),
        (
            LabelSelectorSpec(match_expressions=(SelectorRequirement(key="k", operator="In", values=("y", "x")),)),
            "k in (x,y)",
        ),
        (
            LabelSelectorSpec(match_expressions=(SelectorRequirement(key="k", operator="NotIn", values=("x",)),)),
            "k notin (x)",
        ),
        (LabelSelectorSpec(match_expressions=(SelectorRequirement(key="k", operator="DoesNotExist"),)), "!k"),
        (LabelSelectorSpec(match_expressions=(SelectorRequirement(key="k", operator="Exists"),)), "k"),
    ],
)
def test_label_selector_as_text(selector: LabelSelectorSpec | None, text: str) -> None:
    assert text_of(selector) == text


def test_unknown_metric_type_has_no_query() -> None:
    assert query_of(spec({"type": "Dream"}), "default", "app=web") is None


def test_selector_index_finds_autoscalers_of_pods() -> None:
    claims, web, more = SelectorIndex(), Key("default", "web"), Key("default", "more")
    claims.put(web, LabelSelector.parse("app=web"))
    claims.put(more, LabelSelector.parse("app in (web,api),!canary"))
    claims.put(Key("default", "other"), LabelSelector.parse("app=other"))
    claims.put(Key("default", "any"), LabelSelector.parse("canary"))
    claims.put(Key("elsewhere", "web"), LabelSelector.parse("app=web"))
    assert claims.of([pod()]) == [more, web]
    claims.put(more, LabelSelector.parse("app=api"))
    assert claims.of([pod()]) == [web]
    claims.drop(web)
    claims.drop(web)
    assert claims.of([pod()]) == []
