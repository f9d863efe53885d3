"""Conditions as controllers set them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api.conditions import (
    Condition,
    condition_of,
    is_condition_true,
    with_condition,
    with_conditions,
)
from controller_manager.common.api.core import Pod, PodStatus, is_pod_ready, is_pod_terminal

NEWS = st.builds(
    Condition,
    type=st.sampled_from(("Ready", "Synced", "Held")),
    status=st.sampled_from(("True", "False", "Unknown")),
    reason=st.sampled_from(("A", "B")),
    message=st.sampled_from(("", "so it is")),
)
SETS = st.lists(NEWS, unique_by=lambda c: c.type, max_size=3).map(tuple)


def test_condition_is_found_by_type() -> None:
    ready, held = Condition(type="Ready", status="True"), Condition(type="Held", status="Unknown")
    assert condition_of((held, ready), "Ready") is ready
    assert condition_of((held, ready), "Synced") is None
    holding = {kind for kind in ("Ready", "Held", "Synced") if is_condition_true((held, ready), kind)}
    assert holding == {"Ready"}


@pytest.mark.parametrize(
    ("phase", "conditions", "ready", "terminal"),
    [
        ("Running", (("Ready", "True"),), True, False),
        ("Running", (("Ready", "False"), ("ContainersReady", "True")), False, False),
        ("Running", (("Ready", "Unknown"),), False, False),
        ("Pending", (), False, False),
        ("Succeeded", (("Ready", "False"),), False, True),
        ("Failed", (), False, True),
    ],
)
def test_ready_and_terminal_pods(
    phase: str, conditions: tuple[tuple[str, str], ...], ready: bool, terminal: bool
) -> None:
    converted = tuple(Condition(type=kind, status=status) for kind, status in conditions)
    pod = Pod(status=PodStatus(phase=phase, conditions=converted))
    assert (is_pod_ready(pod), is_pod_terminal(pod)) == (ready, terminal)


def test_transition_time_changes_with_status_only() -> None:
    ready = Condition(type="Ready", status="True", reason="A", last_transition_time="t0")
    other = Condition(type="Held", status="False", last_transition_time="t0")
    same = with_conditions((ready, other), (Condition(type="Ready", status="True", reason="B"),), "t1")
    assert same == (replace(ready, reason="B"), other)
    turned = with_conditions((ready, other), (Condition(type="Ready", status="False", reason="B"),), "t1")
    assert turned == (Condition(type="Ready", status="False", reason="B", last_transition_time="t1"), other)
    added = with_conditions((other,), (Condition(type="Ready", status="True", reason="A"),), "t1")
    assert added == (other, replace(ready, last_transition_time="t1"))


@pytest.mark.virtual
async def test_transition_time_defaults_to_loop_time() -> None:
    ready = Condition(type="Ready", status="True", last_transition_time="t0")
    await asyncio.sleep(60)
    turned = with_conditions((ready,), (Condition(type="Ready", status="False"), Condition(type="Held", status="True")))
    assert [one.last_transition_time for one in turned] == ["2026-01-01T00:01:00Z"] * 2
    assert with_conditions((ready,), (Condition(type="Ready", status="True"),)) == (ready,)
    (one,) = with_condition((), Condition(type="Held", status="True"))
    assert one.last_transition_time == "2026-01-01T00:01:00Z"


def test_last_condition_of_a_type_wins() -> None:
    ready = Condition(type="Ready", status="True", last_transition_time="t0")
    news = (Condition(type="Ready", status="False"), Condition(type="Ready", status="True"))
    assert with_conditions((ready,), news, "t1") == (ready,)


@given(SETS, st.lists(NEWS, max_size=5))
def test_with_conditions_is_idempotent(before: tuple[Condition, ...], news: list[Condition]) -> None:
    once = with_conditions(before, news, "t1")
    assert with_conditions(once, news, "t2") == once
    last = {new.type: new for new in news}
    assert {c.type for c in once} == {c.type for c in before} | last.keys()
    assert all((c.status, c.reason, c.message) == (n.status, n.reason, n.message)
               for c in once if (n := last.get(c.type)))  # fmt: skip
    assert [c for c in once if c.type not in last] == [c for c in before if c.type not in last]
