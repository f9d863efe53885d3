"""Profiles of tasks and threads, binary and as text."""

import asyncio
import re
import threading

from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof.formats import as_text, tasks_as_text
from controller_manager.common.serving.pprof.tasks import task_profile, task_states, thread_profile


async def wait_inside(event: asyncio.Event) -> None:
    await event.wait()


async def wait_for(task: asyncio.Task[None]) -> None:
    await task


def describe(task: str) -> dict[str, str]:
    return {"task": task}


async def test_task_text_shows_state_and_stack():
    event = asyncio.Event()
    async with Tasks() as tasks:
        first = tasks.start(wait_inside(event), name="first")
        tasks.start(wait_for(first), name="second")
        tasks.start(asyncio.sleep(0), name="third")
        await asyncio.sleep(0)
        tasks.start(wait_inside(event), name="new")
        event.set()
        tasks.start(asyncio.sleep(60), name="fourth")
        found = {one.name: one for one in task_states()}
        me = asyncio.current_task()
        assert me is not None
        assert found["second"].state == "waiting"
        assert found["second"].waits_for == "first"
        assert {found[name].state for name in ("first", "third", "new")} == {"ready"}
        assert found[me.get_name()].state == "running"
        own = [function for function, *_ in found[me.get_name()].stack]
        assert own[-1] == "test_task_text_shows_state_and_stack"
        text = tasks_as_text(found.values())
    block = next(block for block in text.split("\n\n") if "second" in block)
    assert re.fullmatch(r'task "second" \[waiting for first\]:\n\S+wait_for\(\)\n\t/.*test_tasks.py:\d+', block)


async def test_equal_stacks_are_grouped_in_text_only():
    event = asyncio.Event()
    async with Tasks() as tasks:
        for number in range(8):
            tasks.start(wait_inside(event), name=f"task {number}")
        await asyncio.sleep(0)
        profile = task_profile(describe)
    assert [unit.type for unit in profile.units] == ["goroutine"]
    waiting = [one for one in profile.samples if one.stack[-1].function.endswith("wait_inside")]
    assert sorted(dict(one.labels)["task"] for one in waiting) == [f"task {number}" for number in range(8)]
    text = as_text("goroutine", profile)
    assert text.startswith("goroutine profile: total 9\n")
    block = next(block for block in text.split("\n\n") if "wait_inside" in block)
    assert block.startswith("8 @\n")
    assert " and 3 more\n" in block
    assert "# state: waiting (8)\n" in block


def hold(stop: threading.Event) -> None:
    stop.wait()


async def test_threads_are_listed_with_stacks():
    stop = threading.Event()
    thread = threading.Thread(target=hold, args=(stop,), name="holding")
    thread.start()
    try:
        profile = thread_profile()
    finally:
        stop.set()
        thread.join()
    (found,) = [one for one in profile.samples if one.labels == (("thread", "holding"),)]
    assert any(frame.function == "hold" for frame in found.stack)
