"""Watches as streams of chunks. They wait at a hub for changes that may concern them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol, Self

from apiserver_stub.common.offload import Offload
from apiserver_stub.watch_cache.converting_watcher import ConvertingWatcher, RowConverter
from apiserver_stub.watch_cache.watcher import Watcher, WatchTarget
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.wire import Sink
from controller_manager.common.base.clock import call_housekeeping_at, monotonic
from controller_manager.common.base.fair_loop import give_way

_TOO_MANY = 4000  # changes behind which a stream no longer yields to requests
_NEVER = float("inf")
_PUSHED = 256 << 10  # maximum bytes of a chunk for a sink


class StreamHub(Protocol):
    """The hub where streams wait."""

    def join(self, resource: str, stream: WatchStream) -> None:
        """Wake `stream` at the next change of `resource` that may concern it. It must have seen all existing
        changes.
        """

    def leave(self, resource: str, stream: WatchStream) -> None:
        """Remove a waiting stream."""

    def use_slices(self) -> None:
        """Notify streams in time slices like those of the running task."""


class WatchStream(AsyncIterator[bytes]):
    """Chunks of whole event lines. There is one reader; `aclose` may be called from anywhere and ends the iteration.
    `ends_at` is the loop time in seconds at which the stream ends, whether it is read or not.
    """

    def __init__(
        self,
        hub: StreamHub,
        resource: str,
        watcher: Watcher,
        offload: Offload,
        trigger: tuple[str, str] | None = None,
    ) -> None:
        self._offload = offload
        self._hub = hub
        self._resource = resource
        self._watcher = watcher
        self.trigger = trigger
        self.ends_at = watcher.ends_at
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop in which it waits
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._took = False
        self._is_waiting = False  # waits with nothing to send
        self._sink: Sink | None = None
        self._bookmark_sink: Sink | None = None
        self._left: bytes | None = None  # the part of a pushed chunk left for the reader
        self._initialized: Callable[[], None] | None = None

    def when_initialized(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, after the initial state has been sent."""
        self._initialized = callback

    @property
    def target(self) -> WatchTarget:
        """Return the watch target."""
        return self._watcher.target

    @property
    def is_sharded(self) -> bool:
        """Return whether the watch is for a shard."""
        return self._watcher.is_sharded

    @property
    def ended(self) -> bool:
        """Return whether the stream has ended."""
        return self._watcher.ended

    @property
    def is_late(self) -> bool:
        """Return whether the stream is so far behind that it must not yield; otherwise writers could outrun it."""
        return self._watcher.behind >= _TOO_MANY

    def push_to(self, sink: Sink) -> None:
        """See `Pushing`."""
        self._sink = sink
        self._hub.use_slices()

    def push_bookmarks_to(self, sink: Sink) -> None:
        """See `PushingBookmarks`."""
        self._bookmark_sink = sink

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._initialized is not None and self._watcher.is_initialized:
                self._initialized()
                self._initialized = None
            if self._took:
                await self._pause()
                if (left := self._left) is not None:
                    self._left = None
                    return left
            self._took = True
            work = self._watcher.work
            if chunk := self._watcher.take(monotonic()) if work is None else await self._perform(work):
                return chunk
            if self._watcher.ended:
                self._leave()
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop the stream now."""
        self.end()
        self._leave()

    def end(self) -> None:
        """End the stream without further events; a waiting reader is woken."""
        self._watcher.end()
        self.wake()

    def finish(self) -> None:
        """End the stream after the events of the changes so far; a waiting reader is woken."""
        self._watcher.finish()
        self.wake()

    def wake(self) -> None:
        """Wake the reader: there may be events to send."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def speak(self) -> bool:
        """Push pending events and return True; wake the reader if there is no sink, or other work."""
        if self._pushed(self._sink):
            return True
        self.wake()
        return False

    def _pushed(self, sink: Sink | None) -> bool:
        """Push events. Return whether the stream waits again with no work left."""
        watcher = self._watcher
        if sink is None or self._waiter is None or self._waiter.done() or watcher.work is not None:
            return False
        assert self._loop is not None
        chunk = watcher.take(self._loop.time())
        if len(chunk) > _PUSHED:
            self._left = chunk
            return False
        if chunk and not sink(chunk):
            self._left = b""
            return False
        if not watcher.idle:
            return False
        if not self._is_waiting:
            self._hub.join(self._resource, self)
            self._is_waiting = True
        return True

    def called(self, position: int | None = None, revision: int = 0) -> None:
        """Note that there are changes to check, from `position` on, behind `revision`, if given. The stream will be
        woken and no longer waits at the hub.
        """
        self._is_waiting = False
        if position is not None:
            self._watcher.skip(position, revision)

    async def _perform(self, work: Callable[[], bytes]) -> bytes:
        try:
            line = await self._offload.run(work)
        except ApiError as refusal:
            return self._watcher.give_up(refusal)
        return self._watcher.worked(line)

    async def _pause(self) -> None:
        """Wait until a change or the timer wakes the stream; if there is more to check, only yield to other tasks."""
        if not self._watcher.idle:
            await give_way()
            return
        self._loop = loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._set_alarm(loop)
        self._hub.join(self._resource, self)
        self._is_waiting = True
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._hub.leave(self._resource, self)

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._watcher.deadline
        if self._alarm is None and due != _NEVER:
            self._alarm = call_housekeeping_at(loop, due, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        if not self._is_waiting:
            self.wake()
            return
        self._watcher.skip_all()
        if self._pushed(self._sink or self._bookmark_sink):
            self._set_alarm(loop)
        else:
            self.wake()

    def _leave(self) -> None:
        self._sink = self._bookmark_sink = None  # they refer to the stream
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class ConvertingStream(WatchStream):
    """A stream that waits for the conversion of its rows. A slow converter delays this stream only."""

    def __init__(
        self, hub: StreamHub, resource: str, watcher: ConvertingWatcher, offload: Offload, converter: RowConverter
    ) -> None:
        super().__init__(hub, resource, watcher, offload)
        self._converting = watcher
        self._converter = converter

    def finish(self) -> None:
        """End the stream now: its version may have no converter any more."""
        self.end()

    async def _pause(self) -> None:
        unconverted = self._converting.unconverted
        if not unconverted:
            await super()._pause()
            return
        try:
            self._converting.converted(await self._converter.convert(unconverted))
        except ApiError as refusal:
            self._converting.refuse(refusal)
