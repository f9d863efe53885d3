"""Background tasks: restart after failures, and cancellation."""

import asyncio

import pytest

from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks, all_of, first_of, keep_running

pytestmark = pytest.mark.virtual


async def cancelled_from_within() -> None:
    async with Tasks() as tasks:
        other = tasks.start(asyncio.sleep(60), name="other")
        other.cancel()
        await other


@pytest.mark.parametrize("kind", ["error", "cancelled from within"])
async def test_failed_work_is_restarted_with_backoff(kind: str) -> None:
    attempts: list[float] = []

    async def work() -> None:
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) > 3:
            return
        if kind == "error":
            raise ValueError("boom")
        await cancelled_from_within()

    await keep_running(work, get_logger("test"), name="test")
    assert attempts == [0.0, 1.0, 3.0, 7.0]


async def test_body_error_is_raised_after_its_tasks_ended() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("work")

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.start(work(), name="work")
            await asyncio.sleep(1)
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await block()
    assert ended == ["work"]


async def test_failed_task_cancels_body_and_other_tasks() -> None:
    async def work() -> None:
        await asyncio.sleep(1)
        raise ValueError("boom")

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.start(work(), name="work")
            tasks.start(asyncio.sleep(60), name="other")
            await asyncio.sleep(60)

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert [str(error) for error in caught.value.exceptions] == ["boom"]


async def test_cancelling_ends_restarted_work() -> None:
    async with Tasks() as tasks:
        task = tasks.start(keep_running(asyncio.Event().wait, get_logger("test"), name="test"), name="kept")
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


@pytest.mark.parametrize("kind", ["group", "all of"])
async def test_cancelling_ends_work_failing_at_that_moment(kind: str) -> None:
    failing = asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ValueError("boom")

    async def group() -> None:
        async with Tasks() as inner:
            inner.start(fail(), name="what fails")
            await asyncio.Event().wait()

    async def all_at_once() -> None:
        await all_of(fail(), asyncio.Event().wait())

    async with Tasks() as tasks:
        work = {"group": group, "all of": all_at_once}[kind]
        task = tasks.start(keep_running(work, get_logger("test"), name="test"), name="kept")
        await asyncio.sleep(1)
        failing.set()
        task.cancel()
        await asyncio.wait((task,), timeout=60)
        assert task.cancelled()


async def test_first_of_returns_first_result_and_cancels_others() -> None:
    ended: list[float] = []

    async def work(seconds: float, fails: bool = False) -> float:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append(seconds)
        if fails:
            raise ValueError("boom")
        return seconds

    assert await first_of(work(20), work(10), work(30)) == 10
    assert asyncio.get_running_loop().time() == 10
    with pytest.raises(ValueError, match="boom"):
        await first_of(work(2), work(1, fails=True))
    assert sorted(ended) == [1, 2, 10, 20, 30]


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_all_of_with_failure_leaves_caller_uncancelled(others: int) -> None:
    async def fail() -> None:
        raise OSError("no")

    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(OSError, match="no"):
        await all_of(fail(), *(asyncio.sleep(60) for _ in range(others)), fail())
    assert task.cancelling() == 0
