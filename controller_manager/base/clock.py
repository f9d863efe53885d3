"""Wall time, loop time and the time that a process really took; the only module that asks the operating system.

A loop that offers `wall_time()` (the virtual-time loop does) is asked instead of the system, so that wall time and
the loop's timers always move together. What is in nanoseconds is for measuring this process, never for deciding what it
does.
"""

import time
from datetime import UTC, datetime

from controller_manager.base.loop import loop_served


def wall_seconds() -> float:
    """Return the seconds since the Unix epoch, as the running loop sees them."""
    loop = loop_served()
    wall_time = getattr(loop, "wall_time", None)
    return wall_time() if wall_time is not None else time.time()


def utc_now() -> datetime:
    """Return the current wall time, aware, in UTC, with microseconds."""
    return datetime.fromtimestamp(wall_seconds(), UTC)


def monotonic() -> float:
    """Return the seconds of the running loop's clock; of the system's monotonic clock outside a loop."""
    loop = loop_served()
    return loop.time() if loop is not None else time.monotonic()


def elapsed_nanoseconds() -> int:
    """Return the real time since some moment before the start; the clock of a loop stands still in a callback."""
    return time.monotonic_ns()


def process_nanoseconds() -> int:
    """Return the CPU time of this process so far, of all its threads, with what the kernel did for them."""
    return time.process_time_ns()


def thread_nanoseconds(ident: int) -> int:
    """Return the CPU time of one thread so far; `ident` is of one that lives, as those of `sys._current_frames()`."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
