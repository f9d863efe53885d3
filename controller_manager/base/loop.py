"""The event loop that runs here, or that a thread works for."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_THREAD = threading.local()


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
