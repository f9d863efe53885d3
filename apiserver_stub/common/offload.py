"""Runs work on large objects in a thread, so that the event loop stays responsive. For small objects the switch costs
more than it gains.

The thread shares the interpreter lock with the loop, so one request gets slower but others are not delayed, as long as
no single C call is long. Work must therefore process a tree in Python, or be bounded in size.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from controller_manager.common.api.errors import Details, TooManyRequests
from controller_manager.common.base.worker_thread import WorkerThread

T = TypeVar("T")

MOST_WAITING = 200
"""The most pieces of work that may wait for the thread."""
MANY = 1000
"""The number of values that justify the switch: work on an object takes up to 20 microseconds per value."""
_SMALL = 8 * 1024  # bytes that are never many values
_LONG = 128 * 1024  # bytes that are large with any number of values
_RETRY_AFTER = 1  # seconds


class StepRunner(Protocol):
    """Runs one step of a request and returns its result or raises its error."""

    def __call__(self, step: Callable[[], T], /) -> Awaitable[T]: ...


async def at_once(step: Callable[[], T]) -> T:
    """Run a step in the event loop, for small objects."""
    return step()


def is_large(data: bytes) -> bool:
    """Return whether JSON has enough values or bytes to be processed in the thread; a rough count."""
    if len(data) <= _SMALL:
        return False
    return len(data) > _LONG or count_values(data) > MANY


def count_values(data: bytes) -> int:
    """Return how many values JSON has, roughly."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


class Offload:
    """One thread, and a bounded queue of work for it."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._thread = WorkerThread("offload")
        self._most = most_waiting
        self._waiting = 0

    async def run(self, step: Callable[[], T]) -> T:
        """Perform a step in the thread, as `WorkerThread.run` does. Raises `TooManyRequests`."""
        if self._waiting >= self._most:
            details = Details(retry_after_seconds=_RETRY_AFTER)
            raise TooManyRequests("too many large objects are being worked on; please try again later", details)
        self._waiting += 1
        try:
            return await self._thread.run(step)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Accept no more work."""
        self._thread.close()
