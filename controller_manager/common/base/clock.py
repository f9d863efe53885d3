"""Wall time, loop time and process time. Only this module asks the operating system for the time.

A loop with a `wall_time()` method (the virtual-time loop has one) replaces the system clock, so that wall time and
the loop's timers always advance together. Functions in nanoseconds only measure this process; no decision depends on
them.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TypeVarTuple, Unpack
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Ts = TypeVarTuple("Ts")

_THREAD = threading.local()
_LOCAL_TIME = "/etc/localtime"


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def loop_served() -> asyncio.AbstractEventLoop | None:
    """Return the running loop, or the loop that this thread works for. Its clock and randomness are used."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return getattr(_THREAD, "loop", None)


@contextmanager
def working_for(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Mark this thread, which runs no loop, as working for the loop of another thread."""
    _THREAD.loop = loop
    try:
        yield
    finally:
        del _THREAD.loop


def wall_seconds() -> float:
    """Return the seconds since the Unix epoch, as the running loop sees them."""
    loop = loop_served()
    wall_time = getattr(loop, "wall_time", None)
    return wall_time() if wall_time is not None else time.time()


def utc_now() -> datetime:
    """Return the current wall time as an aware UTC datetime with microseconds."""
    return datetime.fromtimestamp(wall_seconds(), UTC)


def local_zone() -> tzinfo:
    """Return the time zone of this process: `TZ`, or the time zone of the machine, or UTC."""
    name = os.environ.get("TZ", _LOCAL_TIME).removeprefix(":")
    try:
        if not name.startswith("/"):
            return ZoneInfo(name or "UTC")
        with Path(name).open("rb") as rules:
            return ZoneInfo.from_file(rules)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def monotonic() -> float:
    """Return the seconds of the running loop's clock, or of the system's monotonic clock outside a loop."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        loop = getattr(_THREAD, "loop", None)
    return loop.time() if loop is not None else time.monotonic()


def loop_clock() -> Callable[[], float]:
    """Return the function behind `monotonic` for the running loop, for frequent callers."""
    return asyncio.get_running_loop().time


def call_housekeeping_at(
    loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
) -> asyncio.TimerHandle:
    """Like `loop.call_at`, for housekeeping such as bookmarks and rare checks. A loop with its own time may skip
    such timers for a while.
    """
    call_at = getattr(loop, "call_housekeeping_at", loop.call_at)
    timer: asyncio.TimerHandle = call_at(when, callback, *args)
    return timer


async def sleep_for_housekeeping(seconds: float) -> None:
    """Like `asyncio.sleep`, with a housekeeping timer."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    timer = call_housekeeping_at(loop, loop.time() + seconds, _end, over)
    try:
        await over
    finally:
        timer.cancel()


def _end(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)


def hold_time(loop: asyncio.AbstractEventLoop) -> None:
    """Stop a loop's virtual time while a thread works for the loop, until `release_time`."""
    hold = getattr(loop, "hold_time", None)
    if hold is not None:
        hold()


def release_time(loop: asyncio.AbstractEventLoop) -> None:
    """Resume a loop's virtual time after the thread has finished."""
    release = getattr(loop, "release_time", None)
    if release is not None:
        release()


@contextmanager
def process_running() -> Iterator[None]:
    """Stop the running loop's virtual time while a child process works for it, unless the process hangs."""
    with getattr(asyncio.get_running_loop(), "process_running", nullcontext)():
        yield


def wall_clock() -> Callable[[], float]:
    """Return the function behind `wall_seconds` for the running loop, for frequent callers."""
    loop = loop_served()
    return getattr(loop, "wall_time", None) or time.time


def precise_clock() -> Callable[[], float]:
    """Return a clock in seconds that also advances during a callback (the clocks of some loops do not).

    A loop with its own wall time provides its `precise_time`, or its `time` if it has none.
    """
    loop = loop_served()
    own = loop.time if loop is not None and hasattr(loop, "wall_time") else time.monotonic
    return getattr(loop, "precise_time", own)


def elapsed_nanoseconds() -> int:
    """Return the real monotonic time. The clock of a loop may not advance within a callback."""
    return time.monotonic_ns()


def thread_nanoseconds(ident: int) -> int:
    """Return the CPU time of a live thread; `ident` is a key of `sys._current_frames()`."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
