"""Finds code that holds the event loop: in virtual time nothing else would tell, and tests would only be slow, or hang.

Two guards: `time.sleep` on the thread of a running virtual loop fails at once, and a reconcile whose single step takes
long in real time is ended by an exception raised in it.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex

LIMIT = 3.0  # real seconds of one step of a reconcile; one takes milliseconds, and machines may be busy
_LOOKS = 6  # times the watch looks in that time


class BlockedLoopError(AssertionError):
    """Something held the event loop, so that nothing else could run meanwhile."""

    def __str__(self) -> str:
        return super().__str__() or f"it held the event loop for more than {LIMIT:g} s: await what takes long"


@contextmanager
def no_sleep() -> Iterator[None]:
    """Have `time.sleep` raise `BlockedLoopError` on this thread."""
    here, sleep = threading.get_ident(), time.sleep

    def refuse(seconds: float | SupportsIndex) -> None:
        if threading.get_ident() == here:
            raise BlockedLoopError(f"time.sleep({seconds}) holds the event loop: await asyncio.sleep")
        sleep(seconds)

    time.sleep = refuse
    try:
        yield
    finally:
        time.sleep = sleep


class LoopWatch:
    """Raises `BlockedLoopError` in a task that `is_watched` by its name once a step of it has taken `LIMIT` seconds.

    `turns` tells how often the loop, which runs on this thread, has begun anew. Close it in the end.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, turns: Callable[[], int], is_watched: Callable[[str], bool]
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._is_watched = is_watched
        self._loop_thread = threading.get_ident()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no longer."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        seen, held = -1, 0
        while not self._closed.wait(LIMIT / _LOOKS):
            turn = self._turns()
            held = held + 1 if turn == seen else 0
            seen = turn
            if held >= _LOOKS and self._holder_is_watched():
                held = 0
                _raise_in(self._loop_thread)

    def _holder_is_watched(self) -> bool:
        task: asyncio.Task[Any] | None = asyncio.current_task(self._loop)
        return task is not None and self._is_watched(task.get_name())


def _raise_in(thread: int) -> None:
    """Have a thread raise `BlockedLoopError` at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(BlockedLoopError))
