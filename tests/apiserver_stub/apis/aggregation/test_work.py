"""The work queue of the aggregator: retry pauses, concurrency and repeated keys, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from apiserver_stub.apis.aggregation.work import AT_ONCE, DONE, FAILED, KeyedWork, Pauses
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks

pytestmark = pytest.mark.virtual


class RecordingWorker:
    """Records when each key is processed; `outcome` decides the result."""

    def __init__(self, outcome: Callable[[str], float], lasts: float = 0.0) -> None:
        self.times: dict[str, list[float]] = {}
        self._outcome, self._lasts = outcome, lasts
        self._began = monotonic()

    async def work(self, key: str) -> float:
        self.times.setdefault(key, []).append(round(monotonic() - self._began, 3))
        await asyncio.sleep(self._lasts)
        return self._outcome(key)


@asynccontextmanager
async def running(notes: RecordingWorker, *keys: str) -> AsyncIterator[KeyedWork]:
    found = KeyedWork(notes.work, Pauses(1.0, 10.0), get_logger("test"), "work")
    for key in keys:
        found.add(key)
    async with Tasks() as tasks:
        tasks.start(found.run(), name="run")
        yield found


async def test_retry_pauses_double_up_to_the_maximum() -> None:
    notes = RecordingWorker(lambda _: FAILED)
    async with running(notes, "a"):
        await asyncio.sleep(40)
    assert notes.times["a"] == [0, 1, 3, 7, 15, 25, 35]


async def test_success_resets_retry_pause() -> None:
    outcomes = iter([FAILED, FAILED, FAILED, 5.0, FAILED, FAILED, DONE])
    notes = RecordingWorker(lambda _: next(outcomes))
    async with running(notes, "a"):
        await asyncio.sleep(100)
    assert notes.times["a"] == [0, 1, 3, 7, 12, 13, 15]


async def test_key_is_processed_at_once_and_never_concurrently() -> None:
    notes = RecordingWorker(lambda _: 60.0, lasts=2.0)
    async with running(notes, "a") as work:
        await asyncio.sleep(1)
        for _ in range(5):
            work.add("a")
        await asyncio.sleep(9)
        work.add("a")
        work.add_later("a", 5.0)
        await asyncio.sleep(10)
    assert notes.times["a"] == [0, 2, 10, 15]


async def test_finished_key_is_processed_again_only_if_added() -> None:
    notes = RecordingWorker(lambda _: DONE)
    async with running(notes, "a", "b") as work:
        await asyncio.sleep(100)
        work.add("b")
        await asyncio.sleep(1)
    assert notes.times == {"a": [0], "b": [0, 100]}


async def test_slow_keys_run_concurrently_up_to_a_limit() -> None:
    notes = RecordingWorker(lambda _: DONE, lasts=10.0)
    keys = [f"k{number}" for number in range(AT_ONCE + 1)]
    async with running(notes, *keys):
        await asyncio.sleep(30)
    assert [notes.times[key] for key in keys] == [[0]] * AT_ONCE + [[10]]


async def test_exception_is_retried_and_affects_no_other_key() -> None:
    def outcome(key: str) -> float:
        if key == "bad" and len(notes.times["bad"]) < 3:
            raise RuntimeError("a defect")
        return 10.0

    notes = RecordingWorker(outcome)
    async with running(notes, "bad", "good"):
        await asyncio.sleep(25)
    assert notes.times == {"bad": [0, 1, 3, 13, 23], "good": [0, 10, 20]}
