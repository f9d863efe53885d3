"""The watchdog of the event loop: it measures in real time and names the blocking task."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller_manager.common.base import watchdog
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.base.watchdog import Hold, Look, Watchdog

BLOCK = 0.4


def _block_loop(_key: str) -> None:
    time.sleep(BLOCK)


async def _reconcile(key: str) -> None:
    _block_loop(key)


def _by_key(frame: FrameType) -> str:
    return f"GET {frame.f_locals['key']} of jane" if frame.f_code is _reconcile.__code__ else ""


@pytest.fixture
def registry() -> CollectorRegistry:
    """The registry that counts delays."""
    return CollectorRegistry()


@pytest.fixture
def lines() -> Iterator[list[dict[str, object]]]:
    """The log lines."""
    with capture_logs() as found:
        yield found


@pytest.fixture
def every_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log every delay, because other processes may delay this one first."""
    monkeypatch.setattr(watchdog, "_WARN_EVERY", 0.0)


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    """Tasks that end with the test."""
    async with Tasks() as made:
        yield made


async def _blocked(tasks: Tasks, watchdog: Watchdog, times: int = 1) -> None:
    tasks.start(watchdog.run(), name="watchdog")
    for _ in range(times):
        await asyncio.sleep(0.1)
        await tasks.start(_reconcile("default/a"), name="endpoints default/a")
    await asyncio.sleep(0.1)


@pytest.mark.usefixtures("every_delay")
async def test_blocking_task_is_logged_with_stack(tasks, registry, lines) -> None:
    await _blocked(tasks, Watchdog(get_logger("test"), registry))
    assert {line["event"] for line in lines} == {"the event loop was blocked"}
    line = next(line for line in lines if line["by"] == "endpoints default/a")
    assert str(line["stack"]).startswith("_block_loop (test_watchdog.py:")
    assert "< _reconcile (test_watchdog.py:" in str(line["stack"])
    assert line["seconds"] >= BLOCK / 2


@pytest.mark.usefixtures("every_delay")
async def test_frame_can_name_its_request(tasks, registry, lines) -> None:
    await _blocked(tasks, Watchdog(get_logger("test"), registry, _by_key))
    assert "GET default/a of jane" in [line["by"] for line in lines]


async def test_loop_delays_are_exported(tasks, registry) -> None:
    await _blocked(tasks, Watchdog(get_logger("test"), registry))
    name = "asyncio_event_loop_delay_seconds"
    whole = registry.get_sample_value(f"{name}_count")
    assert whole is not None
    assert whole > (registry.get_sample_value(f"{name}_bucket", {"le": "0.1"}) or 0)
    assert (registry.get_sample_value(f"{name}_sum") or 0) >= BLOCK / 2


async def test_repeated_blocking_is_logged_once(tasks, registry, lines) -> None:
    await _blocked(tasks, Watchdog(get_logger("test"), registry), times=3)
    assert len(lines) == 1


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
def test_each_sample_counts_until_the_next(times: list[int], delays: list[int]):
    hold = Hold(0, tuple(Look(time, ()) for time in times), 30)
    assert [delay for _, delay in hold.shares()] == delays


@given(st.lists(st.integers(1, 100), max_size=10, unique=True), st.integers(1, 100))
def test_shares_sum_to_the_whole_hold(times: list[int], answered: int):
    delays = Hold(0, tuple(Look(time, ()) for time in sorted(times)), answered).shares()
    assert all(delay > 0 for _, delay in delays)
    assert sum(delay for _, delay in delays) in (0, answered)


@pytest.mark.usefixtures("every_delay")
@pytest.mark.parametrize("recorded", [True, False])
async def test_holds_are_recorded_on_request(tasks, registry, lines, recorded: bool) -> None:
    holds: list[Hold] = []
    await _blocked(tasks, Watchdog(get_logger("test"), registry, record=holds.append if recorded else None))
    seen = [share for hold in holds for share in hold.shares() if share[0].task == "endpoints default/a"]
    assert bool(seen) == recorded
    assert {look.stack[0].function for look, _ in seen} <= {"_block_loop"}
    assert not recorded or sum(nanoseconds for _, nanoseconds in seen) >= BLOCK / 2 * 1e9
    assert "endpoints default/a" in [line["by"] for line in lines]


async def test_watchdog_thread_ends_with_its_task(registry) -> None:
    before = set(threading.enumerate())
    async with Tasks() as tasks:
        tasks.start(Watchdog(get_logger("test"), registry).run(), name="watchdog")
        await asyncio.sleep(0)
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()
