"""Deadlines that cost less than `asyncio.timeout`: many deadlines share one timer. They have a fixed length or are
postponed often.
"""

import asyncio
from types import TracebackType
from typing import Self

from controller_manager.common.base.clock import call_housekeeping_at


async def wait_or_set(event: asyncio.Event, at: float, *, housekeeping: bool = False) -> None:
    """Wait until an event is set; set it at loop time `at`. No task is cancelled."""
    loop = asyncio.get_running_loop()
    timer = call_housekeeping_at(loop, at, event.set) if housekeeping else loop.call_at(at, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


class Deadline:
    """An async context manager that cancels its block at `due` (loop time) and then raises `TimeoutError`.

    It can be entered once. Like `asyncio.timeout`, it does not hide a cancellation that has another reason.
    """

    __slots__ = ("_cancelled", "_every", "_expired", "_seconds", "_task", "due", "loop")

    def __init__(self, every: "Deadlines | MovingDeadlines", seconds: float) -> None:
        self._every = every
        self._seconds = seconds
        self._expired = False

    async def __aenter__(self) -> Self:
        """Start the deadline. Raises `RuntimeError` outside of a task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is that of a task")
        self._task = task
        self._cancelled = task.cancelling()
        self.loop = task.get_loop()
        self.due = self.loop.time() + self._seconds
        self._every.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Stop the deadline. Raises `TimeoutError` if it cancelled the block."""
        if not self._expired:
            self._every.remove(self)
        elif self._task.uncancel() <= self._cancelled and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the task."""
        self._expired = True
        self._task.cancel()


class Deadlines:
    """Creates deadlines of `seconds` each, with one shared timer that exists only while a block is running."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._open: dict[Deadline, None] = {}  # in order of expiry
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of blocks that are running."""
        return len(self._open)

    def deadline(self) -> Deadline:
        """Return a deadline for one block."""
        return Deadline(self, self.seconds)

    def add(self, one: Deadline) -> None:
        """Register a deadline, which expires after all others."""
        self._open[one] = None
        if self._timer is None:
            self._timer = one.loop.call_at(one.due, self._expire, one.due)

    def remove(self, one: Deadline) -> None:
        """Unregister a deadline."""
        self._open.pop(one, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self, due: float) -> None:
        self._timer = None
        while self._open:
            first = next(iter(self._open))
            if first.due > due:
                self._timer = first.loop.call_at(first.due, self._expire, first.due)
                return
            del self._open[first]
            first.expire()


class MovingDeadlines:
    """Creates deadlines that are postponed often. To postpone one (assign `due`) costs nothing.

    They share one timer, which is set for the earliest deadline known at that time. It checks for
    changes when it fires.
    """

    def __init__(self) -> None:
        self._open: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        """When the timer fires; timer handles of uvloop do not report it."""

    def __len__(self) -> int:
        """Return the number of blocks that are running."""
        return len(self._open)

    def deadline(self, seconds: float) -> Deadline:
        """Return a deadline for one block, `seconds` after the block is entered."""
        return Deadline(self, seconds)

    def add(self, one: Deadline) -> None:
        """Register a deadline."""
        self._open[one] = None
        if self._timer is None or one.due < self._looks_at:
            self._look_at(one.due, one.loop)

    def remove(self, one: Deadline) -> None:
        """Unregister a deadline."""
        self._open.pop(one, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = due
        self._timer = call_housekeeping_at(loop, due, self._look, due, loop)

    def _look(self, now: float, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for one in [one for one in self._open if one.due <= now]:
            del self._open[one]
            one.expire()
        if self._open:
            self._look_at(min(one.due for one in self._open), loop)
