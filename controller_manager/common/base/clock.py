"""Wall time, loop time and the time that a process really took; the only module that asks the operating system, and
that finds the loop which runs here.

A loop that offers `wall_time()` (the virtual-time loop does) is asked instead of the system, so that wall time and
the loop's timers always move together. What is in nanoseconds is for measuring this process, never for deciding what it
does.
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
    """The running loop of this thread; None outside of one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def loop_served() -> asyncio.AbstractEventLoop | None:
    """The running loop, or the one that this thread works for: whose clock and randomness count."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return getattr(_THREAD, "loop", None)


@contextmanager
def working_for(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make this thread, which runs no loop, work for another thread's."""
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
    """Return the current wall time, aware, in UTC, with microseconds."""
    return datetime.fromtimestamp(wall_seconds(), UTC)


def local_zone() -> tzinfo:
    """Return the time zone of this process, with its rules: that of `TZ`, or of the machine; UTC where it has none."""
    name = os.environ.get("TZ", _LOCAL_TIME).removeprefix(":")
    try:
        if not name.startswith("/"):
            return ZoneInfo(name or "UTC")
        with Path(name).open("rb") as rules:
            return ZoneInfo.from_file(rules)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def monotonic() -> float:
    """Return the seconds of the running loop's clock; of the system's monotonic clock outside a loop."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        loop = getattr(_THREAD, "loop", None)
    return loop.time() if loop is not None else time.monotonic()


def loop_clock() -> Callable[[], float]:
    """Return what `monotonic` asks in the loop that runs now, for whoever asks often."""
    return asyncio.get_running_loop().time


def call_housekeeping_at(
    loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
) -> asyncio.TimerHandle:
    """As `loop.call_at`, for what only keeps things as they are, such as bookmarks, and looks at what seldom changes: a
    loop with its own time may be told to do without for a while.
    """
    call_at = getattr(loop, "call_housekeeping_at", loop.call_at)
    timer: asyncio.TimerHandle = call_at(when, callback, *args)
    return timer


async def sleep_for_housekeeping(seconds: float) -> None:
    """As `asyncio.sleep`, with a timer of housekeeping."""
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
    """Let a thread begin to work for a loop: time that is the loop's own stands still until `release_time`."""
    hold = getattr(loop, "hold_time", None)
    if hold is not None:
        hold()


def release_time(loop: asyncio.AbstractEventLoop) -> None:
    """Let time go on, in the loop: the thread has done its work."""
    release = getattr(loop, "release_time", None)
    if release is not None:
        release()


@contextmanager
def process_running() -> Iterator[None]:
    """Let time that is the running loop's own stand still while a process works for it, unless that hangs."""
    with getattr(asyncio.get_running_loop(), "process_running", nullcontext)():
        yield


def wall_clock() -> Callable[[], float]:
    """Return what `wall_seconds` asks, for whoever asks often: the clock of the loop that runs now."""
    loop = loop_served()
    return getattr(loop, "wall_time", None) or time.time


def precise_clock() -> Callable[[], float]:
    """Return a clock, in seconds, that goes on during a callback, as those of some loops do not; that of the running
    loop where it carries its own wall time, or its `precise_time` if it has one.
    """
    loop = loop_served()
    own = loop.time if loop is not None and hasattr(loop, "wall_time") else time.monotonic
    return getattr(loop, "precise_time", own)


def elapsed_nanoseconds() -> int:
    """Return the real time since some moment before the start; the clock of a loop stands still in a callback."""
    return time.monotonic_ns()


def process_nanoseconds() -> int:
    """Return the CPU time of this process so far, of all its threads, with what the kernel did for them."""
    return time.process_time_ns()


def thread_nanoseconds(ident: int) -> int:
    """Return the CPU time of one thread so far; `ident` is of one that lives, as those of `sys._current_frames()`."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
