"""Deadlines for less than `asyncio.timeout` takes: many of one length with one timer, and one that is often put off."""

import asyncio
from types import TracebackType
from typing import Self


class Deadlines:
    """Hands out deadlines, each `seconds` from when its block is entered. There is a timer only while a block is."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._open: dict[Deadline, None] = {}  # in the order in which they are due
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many blocks are entered and not over."""
        return len(self._open)

    def deadline(self) -> "Deadline":
        """Return a deadline for one block."""
        return Deadline(self)

    def add(self, one: "Deadline") -> None:
        """Have one expire that is due last."""
        self._open[one] = None
        if self._timer is None:
            self._timer = one.loop.call_at(one.due, self._expire, one.due)

    def remove(self, one: "Deadline") -> None:
        """Have one expire no more."""
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


class _Block:
    """A block of a task, entered once, that is cancelled at its deadline and then raises `TimeoutError`, as that of
    `asyncio.timeout` is: who cancels the task for another reason is told apart.
    """

    __slots__ = ("_cancelled", "_expired", "_task", "due", "loop")

    def __init__(self) -> None:
        self._expired = False

    def _enter(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is that of a task")
        self._task = task
        self._cancelled = task.cancelling()
        self.loop = loop = task.get_loop()
        self.due = loop.time() + seconds

    def _leave(self, error: BaseException | None) -> None:
        if self._expired and self._task.uncancel() <= self._cancelled and type(error) is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the task."""
        self._expired = True
        self._task.cancel()


class Deadline(_Block):
    """One of `Deadlines`."""

    __slots__ = ("_all",)

    def __init__(self, every: Deadlines) -> None:
        super().__init__()
        self._all = every

    async def __aenter__(self) -> None:
        """Begin. Raises `RuntimeError` outside of a task."""
        self._enter(self._all.seconds)
        self._all.add(self)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """End. Raises `TimeoutError` if it was the deadline that cancelled the block."""
        self._all.remove(self)
        self._leave(error)


class IdleTimeout(_Block):
    """Cancels a block of a task once it has gone on for `seconds` without a sign of life, each of which puts the end
    off: that costs an assignment, since the timer is set anew only when it rings.
    """

    __slots__ = ("_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def __aenter__(self) -> Self:
        """Begin. Raises `RuntimeError` outside of a task."""
        self._enter(self._seconds)
        self._timer = self.loop.call_at(self.due, self._ring)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """End. Raises `TimeoutError` if it was cancelled for want of a sign of life."""
        self._timer.cancel()
        self._leave(error)

    def put_off(self, due: float) -> None:
        """There was a sign of life: the block ends at `due`, a later time of the loop, unless there is another."""
        self.due = due

    def _ring(self) -> None:
        if self.due > self.loop.time():
            self._timer = self.loop.call_at(self.due, self._ring)
        else:
            self.expire()
