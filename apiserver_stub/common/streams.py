"""Long-running responses: streams that report their end, and streams that another task can end."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Protocol, Self, runtime_checkable

from controller_manager.common.api.wire import DuplexStream, Pushing, Sink, Upgrade, push_bookmarks


@runtime_checkable
class Initializing(Protocol):
    """A stream that begins with initial events."""

    def when_initialized(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, after the initial events have been handed out."""


class ObservedStream:
    """A stream with a callback on close; chunks are passed through directly."""

    def __init__(self, body: AsyncIterator[bytes], closed: Callable[[], None]) -> None:
        self._body = body
        self.ends_at = getattr(body, "ends_at", math.inf)
        self._closed: Callable[[], None] | None = closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body.__aiter__()

    async def __anext__(self) -> bytes:
        return await self._body.__anext__()

    def push_to(self, sink: Sink) -> None:
        """See `Pushing`."""
        if isinstance(self._body, Pushing):
            self._body.push_to(sink)

    def push_bookmarks_to(self, sink: Sink) -> None:
        """See `PushingBookmarks`."""
        push_bookmarks(self._body, sink)

    async def aclose(self) -> None:
        """Close the stream. The first call invokes the callback."""
        callback, self._closed = self._closed, None
        if callback is not None:
            callback()
        aclose = getattr(self._body, "aclose", None)
        if aclose is not None:
            await aclose()


class EndingStream(AsyncIterator[bytes]):
    """The chunks of a response until `end` is called, even while it waits.

    `ends_at` is the loop time at which it ends, read completely or not.
    """

    def __init__(self, body: AsyncIterator[bytes], ends_at: float) -> None:
        self._body = body
        self.ends_at = min(ends_at, getattr(body, "ends_at", math.inf))
        self._reader: asyncio.Task[object] | None = None
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        self._reader = reader = asyncio.current_task()
        try:
            return await anext(self._body)
        except asyncio.CancelledError:
            if self._ended and reader is not None and reader.uncancel() == 0:
                raise StopAsyncIteration from None
            raise
        finally:
            self._reader = None

    def push_to(self, sink: Sink) -> None:
        """See `Pushing`."""
        if isinstance(self._body, Pushing):
            self._body.push_to(lambda chunk: self._ended or sink(chunk))

    def end(self) -> None:
        """End the stream."""
        self._ended = True
        if self._reader is not None:
            self._reader.cancel()

    async def aclose(self) -> None:
        """Close the underlying stream."""
        if aclose := getattr(self._body, "aclose", None):
            await aclose()


class EndingUpgrade:
    """An upgraded connection until `end` is called, even while it waits."""

    def __init__(self, upgrade: Upgrade) -> None:
        self._upgrade = upgrade
        self._talk: asyncio.Task[object] | None = None
        self._ended = False

    async def serve(self, stream: DuplexStream) -> None:
        """Serve until either side closes the connection, or until `end` is called."""
        if self._ended:
            return
        self._talk = talk = asyncio.current_task()
        try:
            await self._upgrade.serve(stream)
        except asyncio.CancelledError:
            if not self._ended or talk is None or talk.uncancel() != 0:
                raise
        finally:
            self._talk = None

    def end(self) -> None:
        """End the connection."""
        self._ended = True
        if self._talk is not None:
            self._talk.cancel()
