"""Detects reconciles that block the event loop, which in virtual time would only make tests slow or hang.

`time.sleep` in a reconcile fails at once. A reconcile that blocks the loop for too long in real time is ended by an
exception raised in its code.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, SupportsIndex

LIMIT = 3.0
"""Maximum real seconds of one step of a reconcile. Normal steps take milliseconds, but machines may be busy."""
_LOOKS = 6  # number of checks within that time


class BlockedLoopError(AssertionError):
    """A reconcile blocked the event loop, so that no other task could run."""

    def __str__(self) -> str:
        return super().__str__() or f"it held the event loop for more than {LIMIT:g} s: await what takes long"


class LoopWatch:
    """Raises `BlockedLoopError` in tasks that block the loop for `LIMIT` seconds or call `time.sleep`.

    `is_watched(name)` selects tasks by name. `turns` returns the number of turns of the loop, which must run in the
    current thread. Call `close` at the end.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, turns: Callable[[], int], is_watched: Callable[[str], bool]
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._is_watched = is_watched
        self._loop_thread = threading.get_ident()
        self._closed = threading.Event()
        self._sleep, time.sleep = time.sleep, self._refuse_to_sleep
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()
        if time.sleep == self._refuse_to_sleep:
            time.sleep = self._sleep

    def _refuse_to_sleep(self, seconds: float | SupportsIndex) -> None:
        here = threading.get_ident() == self._loop_thread and not self._closed.is_set()
        if here and self._holder_is_watched():
            raise BlockedLoopError(f"time.sleep({seconds}) holds the event loop: await asyncio.sleep")
        self._sleep(seconds)

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
    """Raise `BlockedLoopError` in a thread at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(BlockedLoopError))
