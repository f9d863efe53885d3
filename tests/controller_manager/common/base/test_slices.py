"""Long work gets what short work leaves, at least its minimum share, and callers share it fairly."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.base import fair_loop
from controller_manager.common.base.fair_loop import SLICE, FairQueue, Pace, Share, Slices, charge_to, give_way

MICRO, MILLI = 1e-6, 1e-3


class Clock:
    """A clock that advances with work."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += MICRO  # time of other work
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def looks(pace: Pace, now: float, rounds: int, took: float, *, arrived: bool = False) -> list[bool]:
    return [pace.decide(now + number * took, arrived=arrived) for number in range(1, rounds + 1)]


def test_slice_is_due_after_quiet_rounds() -> None:
    pace = Pace(0.0)
    assert pace.decide(0.01 * MILLI, arrived=True)
    pace.spent(0.01 * MILLI, 10 * MILLI)  # so that only a quiet loop makes the next slice due
    assert not pace.decide(10.01 * MILLI, arrived=True)
    due = looks(pace, 10.01 * MILLI, 25, 10 * MICRO)
    assert due[:18] == [False] * 18
    assert due[21:] == [True] * 4


@pytest.mark.parametrize("arrived", [True, False], ids=["requests come", "other work"])
def test_beside_short_work_slices_get_one_eighth(arrived: bool) -> None:
    pace = Pace(0.0)
    assert looks(pace, 0.0, 3, 10 * MICRO)[-1] is True
    now = 30 * MICRO + 0.3 * MILLI
    assert pace.decide(now, arrived=arrived)
    pace.spent(now, now + MILLI)
    due = looks(pace, now + MILLI, 25, 0.3 * MILLI, arrived=arrived)
    assert due.index(True) == 22  # of 0.3 ms each, after a slice of 1 ms and a seventh of 0.3 ms to begin with


def test_long_pause_of_machine_does_not_delay_slices() -> None:
    pace = Pace(0.0)
    assert pace.decide(0.01 * MILLI, arrived=True)
    pace.spent(0.01 * MILLI, 3.0)
    due = looks(pace, 3.0, 40, MILLI, arrived=True)
    assert due.index(True) < 36


def test_slices_are_short_until_loop_is_quiet() -> None:
    pace = Pace(0.0)
    pace.decide(MILLI, arrived=True)
    assert pace.slice < SLICE
    looks(pace, MILLI, 490, 10 * MICRO)
    assert pace.slice < SLICE
    looks(pace, 5.9 * MILLI, 20, 10 * MICRO)
    assert pace.slice == SLICE


def test_loop_with_slow_rounds_is_quiet_too() -> None:
    pace = Pace(0.0)
    pace.decide(MILLI, arrived=True)
    pace.spent(MILLI, 50 * MILLI)
    assert looks(pace, 50 * MILLI, 10, 0.2 * MILLI)[-1] is True


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.lists(st.floats(0.1, 1.0), min_size=200, max_size=200),
)
def test_waiting_callers_share_equally_across_connections(connections: list[int], costs: list[float]) -> None:
    queue: FairQueue[str] = FairQueue()
    had: Counter[str] = Counter()
    for number, count in enumerate(connections):
        for _ in range(count):
            queue.add(str(number), str(number))
    for cost in costs:
        caller = queue.take()
        queue.add(caller, caller)
        queue.charge(cost)
        had[caller] += cost
    assert max(had.values()) - min(had[str(number)] for number in range(len(connections))) <= 1.0
    assert len(queue) == sum(connections)


def test_connections_of_a_caller_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("a1", "a2", "b1"):
        queue.add(name[0], name)
    taken = []
    for _ in range(6):
        taken.append(queue.take())
        queue.add(taken[-1][0], taken[-1])
        queue.charge(1.0)
    assert taken == ["a1", "b1", "a2", "b1", "a1", "b1"]


def test_returning_caller_gets_no_credit_for_its_absence() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("a", "a")
    for _ in range(10):
        queue.add("a", queue.take())
        queue.charge(1.0)
    queue.add("b", "b")
    taken = []
    for _ in range(4):
        taken.append(queue.take())
        queue.add(taken[-1], taken[-1])
        queue.charge(1.0)
    assert sorted(taken) == ["a", "a", "b", "b"]


async def take_part(slices: Slices, caller: str, had: Counter[str], piece: Callable[[], float], clock: Clock) -> None:
    Share(slices).enter()
    charge_to(caller)
    while True:
        await give_way()
        seconds = piece()
        clock.work(seconds)
        had[caller] += seconds


class Load:
    """Requests that take `each` seconds in each round of the loop until `end`."""

    def __init__(self, slices: Slices, clock: Clock, each: float) -> None:
        self.slices, self.clock, self.each = slices, clock, each
        self.done = 0.0
        self.rounds: list[float] = []
        self._handle = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self.slices.arrived += 1
        self.clock.work(self.each)
        self.done += self.each
        self.rounds.append(self.clock.now)
        self._handle = asyncio.get_running_loop().call_soon(self._round)

    def end(self) -> None:
        self._handle.cancel()


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_long_work_gets_minimum_share_beside_short_work() -> None:
    clock, had = Clock(), Counter[str]()
    slices = Slices(asyncio.get_running_loop(), clock)
    load = Load(slices, clock, 0.2 * MILLI)
    lister = asyncio.ensure_future(take_part(slices, "a", had, lambda: 0.3 * MILLI, clock))
    await rounds(3000)
    assert 0.11 <= had["a"] / (had["a"] + load.done) <= 0.16
    longest = max(after - before for before, after in zip(load.rounds, load.rounds[1:], strict=False))
    assert longest <= 0.2 * MILLI + 0.3 * MILLI + 0.1 * MILLI  # one piece runs between two rounds of requests
    load.end()
    began, before = clock.now, had["a"]
    await rounds(3000)
    assert (had["a"] - before) / (clock.now - began) >= 0.9
    lister.cancel()


async def test_callers_share_equally_with_any_number_of_connections() -> None:
    clock, had = Clock(), Counter[str]()
    slices = Slices(asyncio.get_running_loop(), clock)
    many = [asyncio.ensure_future(take_part(slices, "many", had, lambda: 0.4 * MILLI, clock)) for _ in range(10)]
    one = asyncio.ensure_future(take_part(slices, "one", had, lambda: 0.1 * MILLI, clock))
    await rounds(3000)
    assert 0.9 <= had["many"] / had["one"] <= 1.1
    for task in (*many, one):
        task.cancel()


async def test_cancelled_waiters_do_not_block_others() -> None:
    clock, had = Clock(), Counter[str]()
    slices = Slices(asyncio.get_running_loop(), clock)
    tasks = [asyncio.ensure_future(take_part(slices, name, had, lambda: MILLI, clock)) for name in "abc"]
    await rounds(10)
    tasks[0].cancel()
    tasks[1].cancel()
    await rounds(10)
    before = had.copy()
    await rounds(200)
    assert (had["a"], had["b"]) == (before["a"], before["b"])
    assert had["c"] > before["c"]
    tasks[2].cancel()
    await rounds(10)
    stopped = clock.now
    await rounds(10)
    assert clock.now == stopped  # no slice is running any more


async def test_tasks_without_share_yield_once_per_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ran, counts = Clock(), list[int](), list[int]()
    monkeypatch.setattr(fair_loop, "precise_clock", lambda: clock)
    for piece in range(3):  # of 0.3 ms each, while a slice has 0.5 ms
        asyncio.get_running_loop().call_soon(ran.append, piece)
        await give_way()
        counts.append(len(ran))
        clock.work(0.3 * MILLI)
    assert counts == [1, 1, 3]
