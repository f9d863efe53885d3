"""CPU profiles attribute time to stack, task and thread."""

import asyncio
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from controller_manager.common.api.errors import Conflict, ServiceUnavailable
from controller_manager.common.base import clock
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof.cpu import cpu_profile, ticking
from controller_manager.common.serving.pprof.profile import Profile, Sample

SECOND = 1_000_000_000
DATA = bytes(1 << 16)
TRIES = 10  # a busy machine sometimes leaves too few samples


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def hash_in_c(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)


async def work(spend: Callable[[float], None]) -> None:
    while True:
        await part(spend)
        await asyncio.sleep(0.02)


async def part(spend: Callable[[float], None]) -> None:
    spend(0.02)


def describe(task: str) -> dict[str, str]:
    return {"task": task}


async def measured(spend: Callable[[float], None]) -> tuple[Profile, float]:
    """Return a profile of one second in which a task computes, and the CPU time that was available."""
    async with Tasks() as tasks:
        tasks.start(work(spend), name="busy")
        began = time.process_time()
        profile = await cpu_profile(1.0, describe)
        return profile, time.process_time() - began


def find(profile: Profile, *names: str) -> list[Sample]:
    """Return the samples whose stack has these functions, innermost first."""
    return [
        one
        for one in profile.samples
        if names == tuple(name for frame in one.stack if (name := frame.function.rpartition(".")[2]) in names)
    ]


def run(loop: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return uvloop.run(work()) if loop == "uvloop" else asyncio.run(work())


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("spend", [compute, hash_in_c])
def test_computing_task_is_sampled_with_its_stack(loop: str, spend: Callable[[float], None]):
    for _ in range(TRIES):
        profile, spent = run(loop, lambda: measured(spend))
        found = find(profile, spend.__name__, "part", "work")
        if sum(one.values[0] for one in found) >= 5:
            break
    cpu = sum(one.values[1] for one in found) / SECOND
    assert 0.8 * spent - 0.05 <= cpu <= spent
    assert 5 <= sum(one.values[0] for one in found) <= 130
    assert {one.labels for one in found} == {(("task", "busy"),)}
    assert found[0].stack[0].file == __file__
    assert profile.period == SECOND // 100


async def test_other_threads_are_sampled_by_name():
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            compute(0.01)

    thread = threading.Thread(target=turn, name="turning")
    thread.start()
    try:
        for _ in range(TRIES):
            profile = await cpu_profile(0.5, describe)
            if found := find(profile, "compute", "turn"):
                break
    finally:
        stop.set()
        thread.join()
    assert {one.labels for one in found} == {(("thread", "turning"),)}
    assert sum(one.values[1] for one in found) > 0.5 * sum(one.values[1] for one in profile.samples)


async def test_idle_process_has_an_empty_profile():
    profile = await cpu_profile(0.1, describe)
    assert sum(one.values[1] for one in profile.samples) < SECOND // 20


@pytest.mark.parametrize(
    ("then", "found"), [(-1, 0), (-500_000, 0), (5_000_000, 5_000_000), (-3_000_000_000, 2_000_000_000)]
)
async def test_cpu_clock_stepping_back_counts_nothing(then: int, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large step back means another thread, whose whole time is new."""
    now = 5_000_000_000
    monkeypatch.setattr(clock, "thread_nanoseconds", lambda ident: now)
    noted: list[int] = []
    with ticking(describe, lambda stack, labels, nanoseconds: noted.append(nanoseconds)):
        now += then
        signal.raise_signal(signal.SIGPROF)
    assert sum(noted[:1]) == found


async def test_timer_is_stopped_when_profile_is_cancelled():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await cpu_profile(60, describe)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) == signal.SIG_IGN
    signal.raise_signal(signal.SIGPROF)


async def test_second_concurrent_cpu_profile_is_a_conflict():
    with ticking(describe, lambda *_: None), pytest.raises(Conflict, match="another profile uses the profiling timer"):
        await cpu_profile(1, describe)
    assert (await cpu_profile(0.01, describe)).units[-1].type == "cpu"


def test_cpu_profile_requires_main_thread():
    refused: list[Exception] = []

    def ask() -> None:
        try:
            asyncio.run(cpu_profile(1, describe))
        except ServiceUnavailable as error:
            refused.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(refused[0])
