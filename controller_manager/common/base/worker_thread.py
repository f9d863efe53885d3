"""Runs long computations in one thread, so that the event loop stays responsive.

The thread shares the GIL with the loop: the loop waits for a millisecond at most, or for as long as one call into C
takes. A computation must not use objects that the loop changes.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from controller_manager.common.base.clock import working_for

T = TypeVar("T")

LARGE = 64 * 1024
"""Bytes of an object, as JSON, above which work on the whole object belongs in the thread."""
_TURN = 0.001  # seconds after which the loop gets the GIL while the thread works


class WorkerThread:
    """A thread that runs one computation at a time; it starts with the first one."""

    def __init__(self, name: str = "worker") -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._begun = False

    async def run(self, step: Callable[[], T]) -> T:
        """Return the result of a computation. It has the context of its caller, and the clock and randomness of the
        caller's loop. If the caller is cancelled, a computation that has not started is dropped; a running one
        continues to its end.
        """
        loop = asyncio.get_running_loop()
        if not self._begun:  # starting a thread blocks the loop, and the thread would begin with the computation
            self._begun = True
            await loop.run_in_executor(self._executor, int)
        return await loop.run_in_executor(self._executor, _in_turns, loop, partial(copy_context().run, step))

    async def run_if_large(self, size: int, step: Callable[[], T]) -> T:
        """Return the result of a computation; run it in the loop if it works on at most `LARGE` bytes of JSON."""
        return step() if size <= LARGE else await self.run(step)

    def close(self) -> None:
        """Drop pending computations and accept no more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _in_turns(loop: asyncio.AbstractEventLoop, step: Callable[[], T]) -> T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _TURN))
    try:
        with working_for(loop):
            return step()
    finally:
        sys.setswitchinterval(usual)
