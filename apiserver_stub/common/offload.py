"""Work on large objects, done by a thread so that the event loop keeps its turn; small ones are not worth the change.

The thread shares the interpreter lock with the loop: it makes a request slower and holds nobody up, as long as no
single call into C takes long. So what is handed over takes a tree apart in Python, or is bounded in size.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from controller_manager.common.api.errors import Details, TooManyRequests
from controller_manager.common.base.worker_thread import WorkerThread

T = TypeVar("T")

MOST_WAITING = 200
"""The most pieces of work that may wait for the thread."""
MANY = 1000
"""Values that are worth the change: what is done with an object takes up to 20 microseconds for each of them."""
_SMALL = 8 * 1024  # bytes that are never many values
_LONG = 128 * 1024  # bytes, however few values they are
_RETRY_AFTER = 1  # seconds


class StepRunner(Protocol):
    """Performs one step of a request and returns its result, or raises what it raises."""

    def __call__(self, step: Callable[[], T], /) -> Awaitable[T]: ...


async def at_once(step: Callable[[], T]) -> T:
    """Perform a step of something small at once: nothing else happens meanwhile."""
    return step()


def is_large(data: bytes) -> bool:
    """Return whether JSON has so many values, or bytes, that work on it belongs into the thread; by a rough count."""
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
        """Begin no more work."""
        self._thread.close()
