"""Time that blocked the loop is summed by stack and task."""

import pytest

from controller_manager.common.base.stacks import Stack, StackFrame
from controller_manager.common.base.watchdog import Hold, Look
from controller_manager.common.serving.pprof import tasks
from controller_manager.common.serving.pprof.tasks import Contention, mutex_profile

A, B = (StackFrame("a", "file", 2, 1),), (StackFrame("b", "file", 4, 3),)


def look(time: int, stack: Stack = A, task: str = "") -> Look:
    return Look(time, stack, task)


def describe(task: str) -> dict[str, str]:
    return {"task": task, "controller": ""}


def test_hold_counts_once_for_its_first_stack():
    found = Contention(describe, on=True)
    found.record(Hold(0, (look(5, A), look(10, B), look(20, A)), 30))
    found.record(Hold(100, (look(105, B),), 140))
    values = [one.values for one in found.profile().samples]
    assert values == [(1, 20), (1, 50)]
    assert len(found) == 2


def test_number_of_contention_stacks_is_bounded(monkeypatch):
    monkeypatch.setattr(tasks, "_MOST_STACKS", 1)
    found = Contention(describe, on=True)
    for stack in (A, B, B):
        found.record(Hold(0, (look(5, stack),), 30))
    assert [one.values for one in found.profile().samples] == [(1, 30), (2, 60)]
    assert len(found) == 3


def test_contention_is_labelled_with_its_task():
    found = Contention(describe, on=True)
    found.record(Hold(0, (look(5, A, "holder"), look(10, A)), 30))
    assert [(one.labels, one.values) for one in found.profile().samples] == [
        ((("task", "holder"),), (1, 10)),
        ((), (0, 20)),
    ]


@pytest.mark.parametrize(
    ("on", "words"), [(True, "From 30 ms on it is always seen, below 20 ms never"), (False, "Nothing is recorded")]
)
def test_contention_comment_shows_threshold(on: bool, words: str):
    assert words in Contention(describe, on=on).profile().comments[0]


def test_mutex_profile_is_empty_with_comment():
    profile = mutex_profile()
    assert profile.samples == ()
    assert "without locks" in profile.comments[0]
