"""Watches as streams of chunks, and the hub where they wait: publishing wakes those concerned and copies nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import Self
from weakref import WeakValueDictionary

from apiserver_stub.offload import Offload
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.converting_watcher import ConvertingWatcher, RowConverter
from apiserver_stub.watch_cache.event_encoder import PLAIN, EventCache, EventEncoder
from apiserver_stub.watch_cache.row import Change
from apiserver_stub.watch_cache.watcher import Target, Watcher, WatchOptions
from controller_manager.api.errors import ApiError
from controller_manager.base.clock import monotonic


class Stream(AsyncIterator[bytes]):
    """Chunks of whole event lines. One reader; `aclose` may be called from anywhere and ends the iteration.

    `ends_at` is the time in seconds of the loop when it is over, taken by its reader or not.
    """

    def __init__(self, hub: "Hub", resource: str, watcher: Watcher, offload: Offload) -> None:
        self._offload = offload
        self._hub = hub
        self._resource = resource
        self._watcher = watcher
        self.ends_at = watcher.ends_at
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._took = False
        self._initialized: Callable[[], None] | None = None

    def when_initialized(self, tell: Callable[[], None]) -> None:
        """Call `tell` once, as soon as the initial state has been handed out."""
        self._initialized = tell

    @property
    def target(self) -> Target:
        """Return what is watched."""
        return self._watcher.target

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._initialized is not None and self._watcher.is_initialized:
                self._initialized()
                self._initialized = None
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
        self._hub.join(self._resource, self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._hub.leave(self._resource, self)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()

    def _leave(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class ConvertingStream(Stream):
    """A stream whose rows are converted before it goes on: what hangs there holds up this stream alone."""

    def __init__(
        self, hub: "Hub", resource: str, watcher: ConvertingWatcher, offload: Offload, converter: RowConverter
    ) -> None:
        super().__init__(hub, resource, watcher, offload)
        self._converting = watcher
        self._converter = converter

    async def _pause(self) -> None:
        unconverted = self._converting.unconverted
        if not unconverted:
            await super()._pause()
            return
        try:
            self._converting.converted(await self._converter.convert(unconverted))
        except ApiError as refusal:
            self._converting.refuse(refusal)


class Hub:
    """All watches of one server. There are no queues: a stream that is read slowly holds nothing but its position."""

    def __init__(self, cache: WatchCache, events: EventCache, offload: Offload | None = None) -> None:
        self._offload = offload or Offload()
        self._cache = cache
        self._events = events
        self._waiting: dict[str, dict[Stream, None]] = {}
        self._streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self._numbers = count()
        self._closed = False
        cache.subscribe(self._publish)

    def open(
        self,
        resource: str,
        api_version: str,
        kind: str,
        options: WatchOptions,
        represent: EventEncoder = PLAIN,
        converter: RowConverter | None = None,
    ) -> Stream:
        """Watch `resource` from now on; `api_version` and `kind` are those of the objects of bookmarks, `converter`
        makes rows be of that version.

        A start that lies too far back, or ahead, is told by an ERROR event, as is falling behind later on.
        """
        target, now = Target(resource, api_version, kind, represent), monotonic()
        if converter is None:
            stream = Stream(self, resource, Watcher(self._cache, self._events, target, options, now), self._offload)
        else:
            converting = ConvertingWatcher(self._cache, self._events, target, options, now, converter.is_served)
            stream = ConvertingStream(self, resource, converting, self._offload, converter)
        self._streams[next(self._numbers)] = stream
        if self._closed:
            stream.end()
        return stream

    def close(self) -> None:
        """End every stream at once, and those still to be opened."""
        self._closed = True
        for stream in tuple(self._streams.values()):
            stream.end()

    def end(self, resource: str, api_version: str) -> None:
        """End the streams of a resource in one version: it is served no longer, or in another form. Their clients may
        go on from where they were.
        """
        for stream in tuple(self._streams.values()):
            if (stream.target.resource, stream.target.api_version) == (resource, api_version):
                stream.end()

    def join(self, resource: str, stream: Stream) -> None:
        """Wake `stream` at the next change of `resource`."""
        self._waiting.setdefault(resource, {})[stream] = None

    def leave(self, resource: str, stream: Stream) -> None:
        """The stream waits no more."""
        self._waiting.get(resource, {}).pop(stream, None)

    def _publish(self, changes: Sequence[Change]) -> None:
        for resource in {change.row.resource: None for change in changes}:
            for stream in self._waiting.pop(resource, ()):
                stream.wake()
