"""How long something really took, by the clock and of the CPU: for measuring this process, never for deciding what it
does; an event loop's own clock stands still while a callback runs, or jumps.
"""

import time


def elapsed_nanoseconds() -> int:
    """Real time since some moment before the start."""
    return time.monotonic_ns()


def process_nanoseconds() -> int:
    """CPU time of this process so far, of all its threads, with what the kernel did for them."""
    return time.process_time_ns()


def thread_nanoseconds(ident: int) -> int:
    """CPU time of one thread so far; `ident` must be of a thread that lives, as those of `sys._current_frames()` do."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
