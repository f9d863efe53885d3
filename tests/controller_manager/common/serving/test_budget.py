"""Memory budget for request bodies: limits, order and timeouts."""

import asyncio

import pytest

from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.serving.body import Budget

pytestmark = pytest.mark.virtual


class Readers:
    """Callers that each take room for a body."""

    def __init__(self, budget: Budget, group: asyncio.TaskGroup) -> None:
        self.budget, self._group = budget, group
        self.reading: list[str] = []

    async def begin(self, *callers: str, size: int = 10) -> None:
        for caller in callers:
            self._group.create_task(self._take(caller, size))
            await asyncio.sleep(0.01)

    async def end(self, caller: str, size: int = 10) -> None:
        self.reading.remove(caller)
        self.budget.release(caller, size)
        await asyncio.sleep(0.01)

    async def _take(self, caller: str, size: int) -> None:
        await self.budget.take(caller, size)
        self.reading.append(caller)


async def test_caller_may_read_four_of_the_largest_bodies():
    async with asyncio.TaskGroup() as group:
        readers = Readers(Budget(10), group)
        await readers.begin("a", "a", "a", "a", "a", "b")
        assert readers.reading == ["a", "a", "a", "a", "b"]
        await readers.end("a")
        assert readers.reading == ["a", "a", "a", "b", "a"]


async def test_total_budget_is_bounded_and_fifo():
    async with asyncio.TaskGroup() as group:
        readers = Readers(Budget(10), group)
        await readers.begin(*map(str, range(24)))
        assert readers.budget.held == 240
        await readers.begin("late")
        await readers.begin("later", size=1)
        assert len(readers.reading) == 24
        await readers.end("0", 1)
        readers.reading.append("0")
        assert "later" not in readers.reading
        await readers.end("0", 9)
        assert "late" in readers.reading
        await readers.end("1")
        assert "later" in readers.reading


async def test_waiting_too_long_raises_too_many_requests():
    budget, loop = Budget(10), asyncio.get_running_loop()
    for _ in range(4):
        await budget.take("a", 10)
    with pytest.raises(TooManyRequests) as refusal:
        await budget.take("a", 10)
    assert refusal.value.details is not None
    assert (loop.time(), refusal.value.details.retry_after_seconds) == (10, 1)
    assert budget.held == 40


async def test_too_many_waiters_are_refused_at_once():
    budget, loop = Budget(10), asyncio.get_running_loop()
    for _ in range(4):
        await budget.take("a", 10)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(budget.take("a", 10)) for _ in range(200)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await budget.take("a", 10)
        assert loop.time() == 0
        for one in waiting:
            one.cancel()


async def test_cancelled_waiters_release_their_room():
    budget = Budget(10)
    for _ in range(4):
        await budget.take("a", 10)
    async with asyncio.TaskGroup() as group:
        early, late = (group.create_task(budget.take("a", 10)) for _ in range(2))
        await asyncio.sleep(0)
        early.cancel()
        await asyncio.sleep(0)
        budget.release("a", 10)
        late.cancel()  # it has just got its room
    for _ in range(3):
        budget.release("a", 10)
    assert budget.held == 0
    await budget.take("a", 40)


@pytest.mark.parametrize("leavers", [1, 2])
async def test_release_skips_waiters_cancelled_in_the_same_turn(leavers: int) -> None:
    budget = Budget(10)
    for _ in range(4):
        await budget.take("a", 10)
    waiting = [asyncio.ensure_future(budget.take("a", 10)) for _ in range(leavers + 1)]
    await asyncio.sleep(0)
    for one in waiting[:leavers]:
        one.cancel()
    budget.release("a", 10)
    await waiting[-1]
    assert [one.cancelled() for one in waiting] == [True] * leavers + [False]
    for _ in range(4):
        budget.release("a", 10)
    assert budget.held == 0
