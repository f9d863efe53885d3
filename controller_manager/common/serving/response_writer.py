"""Writes responses to a client, with flow control."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from functools import partial

from controller_manager.common.api.wire import Pushing
from controller_manager.common.base.fair_loop import Share, Slices
from controller_manager.common.serving import http
from controller_manager.common.serving.limits import Backlog

_PIECE = 256 * 1024  # TLS sends a large body several times faster in pieces, and buffers less of it
_PUSHED = 128 * 1024  # approximate bytes of a pushed chunk
_WRITE_TIMEOUT = 30.0  # seconds for a client to read a piece of its response


class ResponseWriter:
    """Writes the responses of one connection. The connection calls `pause`, `resume` and `close`.

    Unread responses (`backlog`) share a memory budget with other connections. Pieces of large responses are written in
    `slices` of time between the requests of all connections.
    """

    __slots__ = ("_backlog", "_drain", "_is_paused", "_share", "_transport")

    def __init__(self, backlog: Backlog, slices: Slices) -> None:
        self._backlog = backlog
        self._share = Share(slices)
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._drain: asyncio.Future[None] | None = None

    def open(self, transport: asyncio.Transport) -> None:
        """Set the transport to write to."""
        self._transport = transport

    def enter(self) -> None:
        """Charge the time slices of this task to the connection."""
        self._share.enter()

    def pause(self) -> None:
        """Called when the client does not read fast enough."""
        self._is_paused = True

    def resume(self) -> None:
        """Called when the client has read most of the data."""
        self._is_paused = False
        self._wake()

    def close(self) -> None:
        """Called when the connection is closed."""
        self._transport = None
        self._wake()

    def cut(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def open_transport(self) -> asyncio.Transport:
        """Return the transport. Raises ConnectionError if the client has disconnected."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        return transport

    def write_whole(self, head: bytes, body: bytes) -> Awaitable[None] | None:
        """Write a response; return an awaitable that waits for the client to read most of it, None if it already has.
        Raises ConnectionError if the client has disconnected.
        """
        if len(body) > _PIECE:
            self.open_transport().write(head)
            return self._write_pieces(body, math.inf)
        self.open_transport().write(head + body)
        return self.drained(len(body)) if self._is_paused else None

    async def write_chunks(self, body: AsyncIterator[bytes], until: float, *, chunked: bool) -> None:
        """Write chunks as they come, with flow control, and none after `until` (loop time)."""
        if isinstance(body, Pushing):
            body.push_to(partial(self._take, chunked=chunked))
        async for chunk in body:
            if len(chunk) > _PIECE:
                self.open_transport().write(b"%x\r\n" % len(chunk) if chunked else b"")
                await self._write_pieces(chunk, until)
                self.open_transport().write(b"\r\n" if chunked else b"")
                continue
            if chunk:
                # Not with `writelines`: before Python 3.12.9 and 3.13.2 it ignores flow control (CVE-2024-12254).
                self.open_transport().write(http.framed(chunk) if chunked else chunk)
            await self.drained(len(chunk) or _PUSHED, until)

    def _take(self, chunk: bytes, *, chunked: bool) -> bool:
        """Write a pushed chunk; return whether the client can receive more."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(http.framed(chunk) if chunked else chunk)
        return not self._is_paused

    async def _write_pieces(self, data: bytes, until: float) -> None:
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            await self._share.give_way()
            self.open_transport().write(view[start : start + _PIECE])
            await self.drained(len(data), until)

    async def drained(self, held: int, until: float = math.inf) -> None:
        """Return when the client has read most of the written data; `held` bytes are in memory until then.

        A client that takes too long, or longer than `until` (loop time), is disconnected. Raises ConnectionError.
        """
        if not self._is_paused:
            return
        self._backlog.add(self, held, self.cut)
        try:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout_at(min(loop.time() + _WRITE_TIMEOUT, until)):
                while self._transport is not None and self._is_paused:
                    self._drain = loop.create_future()
                    await self._drain
        except TimeoutError:
            self.cut()
            raise ConnectionAbortedError("the client does not take its answer") from None
        finally:
            self._backlog.remove(self)
        if self._transport is None:
            raise ConnectionResetError("the client is gone")

    def _wake(self) -> None:
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
