"""Writing to a client, no faster than it takes what is written."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from functools import partial

from controller_manager.common.api.wire import Pushing
from controller_manager.common.base.fair_loop import Share, Slices
from controller_manager.common.serving import http
from controller_manager.common.serving.limits import Backlog

_PIECE = 256 * 1024  # TLS moves a big body several times faster in pieces, and less of it waits in its buffers
_PUSHED = 128 * 1024  # bytes of a chunk that a stream gives by itself, about
_WRITE_TIMEOUT = 30.0  # seconds a client may take for a piece of its answer


class ResponseWriter:
    """Writes the answers of one connection, which tells when its `transport` has enough, and that it is gone.

    Answers that are not taken (`backlog`) share a budget with those of other connections. Pieces of large ones are
    written in the `slices` that the requests of all connections leave.
    """

    __slots__ = ("_backlog", "_drain", "_framing", "_is_paused", "_share", "_transport")

    def __init__(self, backlog: Backlog, slices: Slices, framing: http.Framing) -> None:
        self._backlog = backlog
        self._share = Share(slices)
        self._framing = framing
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._drain: asyncio.Future[None] | None = None

    def open(self, transport: asyncio.Transport) -> None:
        """Write to `transport` from now on."""
        self._transport = transport

    def enter(self) -> None:
        """Write in this task from now on."""
        self._share.enter()

    def pause(self) -> None:
        """The client has not taken what was written."""
        self._is_paused = True

    def resume(self) -> None:
        """The client has taken most of it."""
        self._is_paused = False
        self._wake()

    def close(self) -> None:
        """Nothing more can be written."""
        self._transport = None
        self._wake()

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def open_transport(self) -> asyncio.Transport:
        """Return where answers are written to. Raises ConnectionError when the client is gone."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        return transport

    def write_whole(self, head: bytes, body: bytes) -> Awaitable[None] | None:
        """Write an answer; return what to wait for until the client has taken most of it, None if it has. Raises
        ConnectionError when it is gone.
        """
        if len(body) > _PIECE:
            self.open_transport().write(head)
            return self._write_pieces(body, math.inf)
        self.open_transport().write(head + body)
        return self.drained(len(body)) if self._is_paused else None

    async def write_chunks(self, body: AsyncIterator[bytes], until: float, *, chunked: bool) -> None:
        """Write each chunk as it comes, no faster than the client takes them, and none after `until` (loop time)."""
        if isinstance(body, Pushing):
            body.push_to(partial(self._take, chunked=chunked))
        async for chunk in body:
            if len(chunk) > _PIECE:
                self.open_transport().write(b"%x\r\n" % len(chunk) if chunked else b"")
                await self._write_pieces(chunk, until)
                self.open_transport().write(b"\r\n" if chunked else b"")
                continue
            if chunk:
                # Not by `writelines`: before Python 3.12.9 and 3.13.2 it never waits for a client (CVE-2024-12254).
                self.open_transport().write(http.framed(chunk) if chunked else chunk)
            await self.drained(len(chunk) or _PUSHED, until)

    def _take(self, chunk: bytes, *, chunked: bool) -> bool:
        """Write a chunk that a stream gives; return whether the client takes what is written."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(self._framing.framed(chunk) if chunked else chunk)
        return not self._is_paused

    async def _write_pieces(self, data: bytes, until: float) -> None:
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            await self._share.give_way()
            self.open_transport().write(view[start : start + _PIECE])
            await self.drained(len(data), until)

    async def drained(self, held: int, until: float = math.inf) -> None:
        """Return once the client has taken most of what was written; `held` bytes wait for that in memory.

        A client that needs too long, or longer than `until` (loop time), is cut off. Raises ConnectionError.
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
