"""Long computations in one thread, so that the event loop keeps its turn.

The thread shares the interpreter lock with the loop: the loop waits for a millisecond at most, or for as long as one
call into C takes. What is handed over must not touch objects that the loop changes.
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
"""Bytes of an object, as JSON, above which work on all of it belongs into the thread."""
_TURN = 0.001  # seconds after which the loop gets the interpreter lock while the thread works


class WorkerThread:
    """One thread that performs one computation after the other; it starts with the first."""

    def __init__(self, name: str = "worker") -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._begun = False

    async def run(self, step: Callable[[], T]) -> T:
        """Return the result of a computation. It has the context of its caller, and sees the clock and the randomness
        of the caller's loop. If the caller is cancelled, it is not begun, or runs to its end.
        """
        loop = asyncio.get_running_loop()
        if not self._begun:  # the loop waits for a thread that starts, which would begin with the computation
            self._begun = True
            await loop.run_in_executor(self._executor, int)
        return await loop.run_in_executor(self._executor, _in_turns, loop, partial(copy_context().run, step))

    async def run_if_large(self, size: int, step: Callable[[], T]) -> T:
        """Return the result of a computation, at once if it works on no more than `LARGE` bytes of JSON."""
        return step() if size <= LARGE else await self.run(step)

    def close(self) -> None:
        """Begin no more work."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _in_turns(loop: asyncio.AbstractEventLoop, step: Callable[[], T]) -> T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _TURN))
    try:
        with working_for(loop):
            return step()
    finally:
        sys.setswitchinterval(usual)
