"""A watch as an asynchronous iterator of chunks: waits for what a watcher has to say, and says when to stop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol, Self

from apiserver_stub.offload import Offload
from apiserver_stub.watch_cache.watcher import Target, Watcher
from controller_manager.api.errors import ApiError
from controller_manager.base.clock import monotonic


class Publisher(Protocol):
    """Wakes the streams that joined, once, at the next change of their resource."""

    def join(self, resource: str, stream: "Stream") -> None:
        """Wake `stream` at the next change."""

    def leave(self, resource: str, stream: "Stream") -> None:
        """The stream waits no more."""


class Stream(AsyncIterator[bytes]):
    """Chunks of whole event lines. One reader; `aclose` may be called from anywhere and ends the iteration.

    `ends_at` is the time in seconds of the loop when it is over, taken by its reader or not.
    """

    def __init__(self, publisher: Publisher, resource: str, watcher: Watcher, offload: Offload) -> None:
        self._offload = offload
        self._publisher = publisher
        self._resource = resource
        self._watcher = watcher
        self.ends_at = watcher.ends_at
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._took = False

    @property
    def target(self) -> Target:
        """Return what is watched."""
        return self._watcher.target

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._took:
                await self._pause()
            self._took = True
            work = self._watcher.work
            if chunk := self._watcher.take(monotonic()) if work is None else await self._perform(work):
                return chunk
            if self._watcher.ended:
                self._leave()
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop at once."""
        self.end()
        self._leave()

    def end(self) -> None:
        """Say nothing more; a waiting reader learns that the stream is over."""
        self._watcher.end()
        self.wake()

    def wake(self) -> None:
        """There may be something to say."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _perform(self, work: Callable[[], bytes]) -> bytes:
        try:
            line = await self._offload.run(work)
        except ApiError as refusal:
            return self._watcher.give_up(refusal)
        return self._watcher.worked(line)

    async def _pause(self) -> None:
        """Wait until woken, by a change or by the alarm; or only let others run if there is more to look at."""
        if not self._watcher.idle:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if self._alarm is None and self._watcher.deadline != float("inf"):
            self._alarm = loop.call_at(self._watcher.deadline, self._ring)
        self._publisher.join(self._resource, self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._publisher.leave(self._resource, self)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()

    def _leave(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
