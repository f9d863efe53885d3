"""Virtual time: it jumps, keeps the order of timers, waits for threads, and reports deadlocks."""

import asyncio
import time

import pytest

from controller_manager.common.base import clock, random
from controller_manager.testing.virtual import AllBlockedError, run


@pytest.mark.virtual
async def test_an_hour_passes_at_once() -> None:
    real, virtual, wall = time.monotonic(), clock.monotonic(), clock.wall_seconds()
    await asyncio.sleep(3600)
    assert clock.monotonic() - virtual == pytest.approx(3600)
    assert clock.wall_seconds() - wall == pytest.approx(3600)
    assert time.monotonic() - real < 5


@pytest.mark.virtual
async def test_timers_fire_in_deadline_order() -> None:
    seen: list[int] = []

    async def after(delay: int) -> None:
        await asyncio.sleep(delay)
        seen.append(delay)

    async with asyncio.TaskGroup() as group:
        for delay in (30, 10, 20):
            group.create_task(after(delay))
    assert seen == [10, 20, 30]


@pytest.mark.virtual
async def test_equal_timers_fire_in_order_and_cancelled_ones_never() -> None:
    loop, seen = asyncio.get_running_loop(), list[int]()
    for number in range(1000):
        timer = loop.call_at(10 + number % 2, seen.append, number)
        if number % 5:
            timer.cancel()
    await asyncio.sleep(20)
    assert seen == [*range(0, 1000, 10), *range(5, 1000, 10)]


def test_cancelled_timers_do_not_advance_time() -> None:
    async def wait_for_nothing() -> None:
        asyncio.get_running_loop().call_later(5, print).cancel()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append(asyncio.get_running_loop().time())

    ends: list[float] = []
    with pytest.raises(AllBlockedError):
        run(wait_for_nothing())
    assert ends == [0.0]


@pytest.mark.virtual
async def test_time_stands_still_while_a_thread_works() -> None:
    before = clock.monotonic()
    async with asyncio.timeout(1):
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.05)
    assert clock.monotonic() == before


def test_deadlock_raises_all_blocked_error_with_task_names() -> None:
    async def wait_for_nothing() -> None:
        asyncio.current_task().set_name("forlorn")
        await asyncio.get_running_loop().create_future()

    with pytest.raises(AllBlockedError, match="forlorn"):
        run(wait_for_nothing())


def test_seed_reproduces_random_numbers() -> None:
    async def draw() -> tuple[str, str, float]:
        source = random.random_source()
        return source.uid(), source.suffix(), source.uniform(1, 2)

    assert run(draw(), seed=7) == run(draw(), seed=7)
    assert run(draw(), seed=7) != run(draw(), seed=8)


@pytest.mark.virtual
async def test_no_timer_fires_before_its_time() -> None:
    """Otherwise a task that waits until a time and then compares it would wait forever."""
    loop = asyncio.get_running_loop()
    early: list[float] = []
    for due in (step * 0.1 + more for step in range(1, 2000) for more in (0.0, 4e-7)):
        loop.call_at(due, lambda due=due: early.append(due) if loop.time() < due else None)
    await asyncio.sleep(300)
    assert early == []
