"""Many deadlines with one timer behave like `asyncio.timeout`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvloop

from controller_manager.common.base.deadlines import Deadlines, MovingDeadlines
from controller_manager.testing.virtual import VirtualLoop, run

Block = Callable[[], AbstractAsyncContextManager[Any]]
SECONDS = 5.0


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


async def finishes(block: Block) -> None:
    async with block():
        await asyncio.sleep(1)


async def hangs(block: Block) -> None:
    async with block():
        await asyncio.sleep(60)


async def fails_late(block: Block) -> None:
    async with block():
        try:
            await asyncio.sleep(60)
        finally:
            raise KeyError("late")


async def goes_on(block: Block) -> str:
    async with block():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "went on"
    return "over"


async def is_cancelled(block: Block) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(2, task.cancel)
    await hangs(block)


async def is_cancelled_at_the_same_time(block: Block) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(SECONDS, task.cancel)
    await hangs(block)


async def is_within_another(block: Block) -> None:
    async with asyncio.timeout(3):
        await hangs(block)


async def is_around_another(block: Block) -> None:
    async with block():
        async with asyncio.timeout(60):
            await asyncio.sleep(50)


async def is_two(block: Block) -> None:
    async with block():
        await asyncio.sleep(1)
        async with block():
            await asyncio.sleep(60)


BODIES = (
    finishes, hangs, fails_late, goes_on, is_cancelled, is_cancelled_at_the_same_time, is_within_another,
    is_around_another, is_two,
)  # fmt: skip


async def outcome(body: Callable[[Block], Coroutine[Any, Any, Any]], block: Block) -> Any:
    """Return how a body ends, when, and whether its task is still cancelled."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    began = loop.time()
    try:
        found: Any = await body(block)
    except BaseException as error:  # noqa: BLE001 - also that of being cancelled
        found = type(error), str(error)
    return found, round(loop.time() - began, 3), task.cancelling()


@pytest.mark.parametrize("body", BODIES)
def test_deadline_ends_block_like_asyncio_timeout(body: Any) -> None:
    deadlines = Deadlines(SECONDS)

    async def both() -> None:
        loop = asyncio.get_running_loop()
        ours = await loop.create_task(outcome(body, deadlines.deadline))
        assert ours == await loop.create_task(outcome(body, lambda: asyncio.timeout(SECONDS)))

    run(both())
    assert len(deadlines) == 0


@pytest.mark.parametrize("body", BODIES)
def test_moving_deadline_ends_block_like_asyncio_timeout(body: Any) -> None:
    deadlines = MovingDeadlines()

    async def both() -> None:
        loop = asyncio.get_running_loop()
        ours = await loop.create_task(outcome(body, lambda: deadlines.deadline(SECONDS)))
        assert ours == await loop.create_task(outcome(body, lambda: asyncio.timeout(SECONDS)))

    run(both())
    assert len(deadlines) == 0


def test_deadline_is_due_where_it_was_last_moved() -> None:
    async def moved_twice() -> None:
        loop = asyncio.get_running_loop()
        try:
            async with MovingDeadlines().deadline(SECONDS) as deadline:
                deadline.due = 2 * SECONDS
                await asyncio.sleep(SECONDS + 1)
                deadline.due = 4 * SECONDS
                await asyncio.sleep(60)
        finally:
            assert loop.time() == 4 * SECONDS

    with pytest.raises(TimeoutError):
        run(moved_twice())


def test_each_deadline_is_due_after_its_own_time() -> None:
    deadlines = Deadlines(SECONDS)
    ended: list[tuple[int, float]] = []

    async def one(number: int) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(number)
        try:
            async with deadlines.deadline():
                await asyncio.sleep(1 if number % 2 else 60)
        except TimeoutError:
            ended.append((number, round(loop.time(), 3)))

    async def all_of_them() -> None:
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(one(number))
        assert [(number, at - round(began, 3)) for number, at in ended] == [(n, n + SECONDS) for n in (0, 2, 4, 6)]

    run(all_of_them())
    assert len(deadlines) == 0


def test_no_timer_remains_after_block() -> None:
    deadlines = Deadlines(3600)

    async def twice() -> None:
        for _ in range(2):
            async with deadlines.deadline(), deadlines.deadline():
                assert len(deadlines) == 2
            assert deadlines._timer is None

    asyncio.run(twice())
    asyncio.run(twice())  # on another loop


async def test_deadline_outside_a_task_raises_runtime_error() -> None:
    found: list[BaseException] = []

    def enter() -> None:
        try:
            Deadlines(1).deadline().__aenter__().send(None)
        except RuntimeError as error:
            found.append(error)

    asyncio.get_running_loop().call_soon(enter)
    await asyncio.sleep(0)
    assert [str(error) for error in found] == ["a deadline is that of a task"]


def test_many_moving_deadlines_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines = MovingDeadlines()
    ended: list[tuple[float, float]] = []

    async def one(seconds: float, moved: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with deadlines.deadline(seconds) as deadline:
                await asyncio.sleep(0)
                deadline.due = began + moved
                await asyncio.sleep(1000)
        except TimeoutError:
            ended.append((moved, round(loop.time() - began, 3)))

    async def all_of_them() -> None:
        timers = {"set": 0, "wakes": 0}
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        call_at, call_housekeeping_at = loop.call_at, loop.call_housekeeping_at

        def counted(when: float, *what: Any, **more: Any) -> Any:
            timers["wakes"] += 1
            return call_at(when, *what, **more)

        def counted_housekeeping(when: float, *what: Any) -> Any:
            timers["set"] += 1
            return call_housekeeping_at(when, *what)

        monkeypatch.setattr(loop, "call_at", counted)
        monkeypatch.setattr(loop, "call_housekeeping_at", counted_housekeeping)
        async with asyncio.TaskGroup() as group:
            for seconds, moved in ((30, 90), (20, 100), (10, 80), (25, 25), (40, 80)):
                group.create_task(one(seconds, moved))
        assert timers == {"set": 7, "wakes": 5}  # at 30, 20 and 10 s, then at 25, 80, 90 and 100

    run(all_of_them())
    assert ended == [(25, 25), (80, 80), (80, 80), (90, 90), (100, 100)]
    assert len(deadlines) == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_overdue_deadline_does_not_block_others_on_uvloop(seconds: float) -> None:
    deadlines = MovingDeadlines()

    async def is_over(due: float) -> None:
        with pytest.raises(TimeoutError):
            await hangs(partial(deadlines.deadline, due))

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            for due in (seconds, seconds - 1):
                group.create_task(is_over(due))

    uvloop.run(both())
    assert len(deadlines) == 0
