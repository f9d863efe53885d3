"""What holds the loop is found out, with the stack and the task that held it."""

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.base.tasks import Tasks
from controller_manager.serving.pprof import contention
from controller_manager.serving.pprof.contention import ContentionWatch, Hold, Look, mutex_profile
from controller_manager.serving.pprof.profile import RawStack

A, B = (("a", "file", 2, 1),), (("b", "file", 4, 3),)
MS = 1_000_000


def look(time: int, stack: RawStack = A) -> Look:
    return Look(time, stack, ())


@pytest.mark.parametrize(
    ("times", "delays"),
    [
        ([], []),
        ([5], [30]),
        ([5, 10, 20], [10, 10, 10]),
        ([5, 10, 31], [10, 20]),
        ([30, 31], []),
    ],
)
def test_each_look_stands_for_the_time_until_the_next(times: list[int], delays: list[int]):
    hold = Hold(0, tuple(look(time) for time in times), 30)
    assert [delay for _, delay in hold.delays()] == delays


@given(st.lists(st.integers(1, 100), max_size=10, unique=True), st.integers(1, 100))
def test_all_of_a_stretch_is_accounted_for(times: list[int], answered: int):
    delays = Hold(0, tuple(look(time) for time in sorted(times)), answered).delays()
    assert all(delay > 0 for _, delay in delays)
    assert sum(delay for _, delay in delays) in (0, answered)


def test_a_stretch_counts_once_for_what_was_seen_first():
    watch = ContentionWatch(lambda task: {"task": task})
    watch.record(Hold(0, (look(5, A), look(10, B), look(20, A)), 30))
    watch.record(Hold(100, (look(105, B),), 140))
    values = [one.values for one in watch.profile().samples]
    assert values == [(1, 20), (1, 50)]
    assert len(watch) == 2


def test_a_bounded_number_of_stacks_is_kept(monkeypatch):
    monkeypatch.setattr(contention, "_MOST_STACKS", 1)
    watch = ContentionWatch(lambda task: {"task": task})
    for stack in (A, B, B):
        watch.record(Hold(0, (look(5, stack),), 30))
    assert [one.values for one in watch.profile().samples] == [(1, 30), (2, 60)]
    assert len(watch) == 3


async def hold_for(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


async def test_what_holds_the_loop_is_found():
    watch = ContentionWatch(lambda task: {"task": task})
    async with Tasks() as tasks:
        tasks.start(watch.run(), name="watch")
        await asyncio.sleep(0.05)
        await tasks.start(hold_for(0.2), name="holder")
        await asyncio.sleep(0.05)
        found = [one for one in watch.profile().samples if one.labels == (("task", "holder"),)]
    assert sum(one.values[0] for one in found) == 1
    assert 170 * MS <= sum(one.values[1] for one in found) <= 300 * MS
    assert found[0].stack[0].function.endswith("test_contention.hold_for")


async def test_its_thread_ends_with_it():
    before = set(threading.enumerate())
    watch = ContentionWatch(lambda task: {"task": task})
    async with Tasks() as tasks:
        tasks.start(watch.run(), name="watch")
        await asyncio.sleep(0.03)
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
    thread.join(1.0)
    assert not thread.is_alive()


def test_there_are_no_mutexes_and_it_says_so():
    profile = mutex_profile()
    assert profile.samples == ()
    assert "without locks" in profile.comments[0]
