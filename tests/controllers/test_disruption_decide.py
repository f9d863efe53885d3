"""How many disruptions a PodDisruptionBudget allows."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller_manager.common.api.core import Pod
from controller_manager.common.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from controller_manager.common.api.timestamps import format_time
from controllers.disruption import (
    Count,
    announced_since,
    desired_count,
    desired_status,
    disrupted_pods,
    healthy,
    selects,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return format_time(NOW + timedelta(seconds=seconds))


def pod(name: str = "p", *, ready: bool = True, deleting: bool = False, phase: str = "Running", **target: Any) -> Pod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    conditions += [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(-30), **target}] * bool(
        target
    )
    meta = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    meta |= {"deletionTimestamp": at(0)} if deleting else {}
    return Pod.decode(json.dumps({"metadata": meta, "status": {"phase": phase, "conditions": conditions}}).encode())


def budget(spec: dict[str, Any], **status: Any) -> PodDisruptionBudget:
    tree = {"metadata": {"name": "b", "namespace": "default", "generation": 2}, "spec": spec, "status": status}
    return PodDisruptionBudget.decode(json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("spec", "expected", "desired"),
    [
        ({"max_unavailable": 1}, 5, 4),
        ({"max_unavailable": 7}, 5, 0),
        ({"max_unavailable": "30%"}, 5, 3),  # 1.5 is 2
        ({"max_unavailable": "100%"}, 5, 0),
        ({"max_unavailable": "0%"}, 5, 5),
        ({"min_available": "50%"}, 5, 3),
        ({"min_available": "1%"}, 5, 1),
        ({"min_available": "100%"}, 5, 5),
    ],
)
def test_desired_healthy_count_from_budget(spec: dict[str, Any], expected: int, desired: int) -> None:
    assert desired_count(PodDisruptionBudgetSpec(**spec), expected)[:2] == (expected, desired)


@pytest.mark.parametrize(
    ("count", "current", "allowed", "reason"),
    [
        (Count(3, 2), 3, 1, "SufficientPods"),
        (Count(3, 2), 2, 0, "InsufficientPods"),
        (Count(3, 2), 0, 0, "InsufficientPods"),
        (Count(0, 0), 2, 0, "InsufficientPods"),
        (Count(1, 0), 2, 2, "SufficientPods"),
    ],
)
def test_disruptions_allowed_from_healthy_count(count: Count, current: int, allowed: int, reason: str) -> None:
    status = desired_status(budget({}), count, current, {}, at(0))
    (condition,) = status.conditions
    assert (status.disruptions_allowed, status.current_healthy, status.observed_generation) == (allowed, current, 2)
    assert (condition.type, condition.reason, condition.status) == ("DisruptionAllowed", reason, str(allowed > 0))


def test_unchanged_status_is_equal() -> None:
    first = desired_status(budget({}), Count(3, 2), 3, {}, at(0))
    known = budget({})
    again = PodDisruptionBudget(metadata=known.metadata, spec=known.spec, status=first)
    assert desired_status(again, Count(3, 2), 3, {}, at(60)) == first


def test_disrupted_pods_expire_after_timeout() -> None:
    known = {"a": at(-119), "b": at(-120), "c": at(-10), "d": at(-10)}
    pods = [pod("a"), pod("b"), pod("c", deleting=True), pod("e")]
    assert disrupted_pods(known, pods, NOW) == {"a": at(-119)}


def test_which_pods_are_healthy() -> None:
    pods = [pod("a"), pod("b", ready=False), pod("c", deleting=True), pod("d"), pod("e")]
    assert healthy(pods, {"d": at(0)}) == 2


@pytest.mark.parametrize(
    ("selector", "found"),
    [(None, False), ({}, True), ({"matchLabels": {"app": "web"}}, True), ({"matchLabels": {"app": "db"}}, False)],
)
def test_which_pods_a_budget_selects(selector: Any, found: bool) -> None:
    assert selects(budget({"selector": selector} if selector is not None else {}), pod()) is found


@pytest.mark.parametrize(
    ("one", "announced"),
    [
        (pod(reason="EvictionByEvictionAPI"), True),
        (pod(), False),
        (pod(reason="x", status="False"), False),
        (pod(reason="TerminationByKubelet"), False),
        (pod(reason="x", deleting=True), False),
        (pod(reason="x", phase="Succeeded"), False),
    ],
)
def test_disruption_target_since_by_reason(one: Pod, announced: bool) -> None:
    assert (announced_since(one) == NOW - timedelta(seconds=30)) is announced
