"""Wall time and loop time; the only module that asks the operating system what time it is.

A loop that offers `wall_time()` (the virtual-time loop does) is asked instead of the system, so that
wall time and the loop's timers always move together.
"""

import asyncio
import time
from datetime import UTC, datetime


def wall_seconds() -> float:
    """Seconds since the Unix epoch, as the running loop sees them."""
    loop = asyncio._get_running_loop()
    wall_time = getattr(loop, "wall_time", None)
    return wall_time() if wall_time is not None else time.time()


def utc_now() -> datetime:
    """The current wall time, aware, in UTC, with microseconds."""
    return datetime.fromtimestamp(wall_seconds(), UTC)


def monotonic() -> float:
    """Seconds of the running loop's clock; of the system's monotonic clock outside a loop."""
    loop = asyncio._get_running_loop()
    return loop.time() if loop is not None else time.monotonic()
