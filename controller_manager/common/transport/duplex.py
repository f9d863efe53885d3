"""Duplex streams: over an upgraded connection, and between two parties in one process."""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

from controller_manager.common.api.wire import DuplexStream, Upgrade
from controller_manager.common.base.tasks import first_of

LIMIT = 64 * 1024
"""Bytes buffered for a reader before the sender is paused; a socket may exceed it by one read."""
_PIECE = 256 * 1024  # bytes passed to a transport at a time
_CLOSE_TIMEOUT = 30.0  # seconds for the peer to read pending data on close
_NOTICE = 30.0  # seconds a handler may run after the peer has closed
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds
_CLOSED = "the stream is closed"
_ENDED = "the other side has closed the stream"
_BROKEN = "the connection broke"


class Inbox:
    """Received bytes that wait for their reader, followed by the end of the stream or its failure."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray(data)
        self._reader: asyncio.Future[None] | None = None
        self._failed = False
        self.has_ended = False

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes | memoryview) -> None:
        """Add received bytes."""
        self._data += data
        self._wake()

    def end(self, *, failed: bool = False) -> None:
        """Mark the end of the input; only the first call has an effect."""
        if not self.has_ended:
            self.has_ended, self._failed = True, failed
            self._wake()

    def discard(self, *, failed: bool) -> None:
        """Drop all bytes: this side has closed the stream, or broken it if `failed`."""
        self._data.clear()
        self.has_ended, self._failed = True, failed
        self._wake()

    async def read(self, n: int) -> bytes:
        """Return up to `n` bytes, empty at the end. Raises ConnectionResetError at the end of a failed stream."""
        if n < 1:
            raise ValueError("a read is for one byte at least")
        if not self._data and not self.has_ended:
            if self._reader is not None:
                raise RuntimeError("another task is reading from the stream")
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if not self._data and self._failed:
            raise ConnectionResetError(_BROKEN)
        found = bytes(self._data[:n])
        del self._data[:n]
        return found

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Waiters:
    """Tasks that wait until they can write."""

    def __init__(self) -> None:
        self._futures: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._futures.append(waiter)
        try:
            await waiter
        finally:
            self._futures.remove(waiter)

    def wake(self) -> None:
        for waiter in self._futures:
            if not waiter.done():
                waiter.set_result(None)


class _Stream:
    """The common part of both streams: an inbox, waiting writers, and a callback for the end."""

    def __init__(self, early: bytes = b"") -> None:
        self._inbox = Inbox(early)
        self._writers = Waiters()
        self._closed = False
        self._on_end: Callable[[], None] | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the peer has closed the stream or is disconnected."""
        return self._inbox.has_ended

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the peer has closed the stream or disconnected; at once if it has already."""
        self._on_end = callback
        if self._inbox.has_ended:
            callback()

    def _end(self, *, failed: bool) -> None:
        """Handle the end: the peer neither sends nor receives any more."""
        self._inbox.end(failed=failed)
        self._writers.wake()
        if self._on_end is not None:
            self._on_end()

    def _leave(self, *, failed: bool) -> None:
        """Close this side: it neither reads nor writes any more."""
        self._closed = True
        self._inbox.discard(failed=failed)
        self._writers.wake()


class SocketStream(_Stream, asyncio.Protocol):
    """A `DuplexStream` over an asyncio transport, whose protocol it becomes; `early` bytes were received before."""

    def __init__(self, transport: asyncio.Transport, early: bytes = b"") -> None:
        super().__init__(early)
        self._transport = transport
        self._reading = True
        self._writing_paused = False
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transport.set_protocol(self)
        self._flow()

    async def read(self, n: int) -> bytes:
        """See `DuplexStream`."""
        found = await self._inbox.read(n)
        self._flow()
        return found

    async def write(self, data: bytes) -> None:
        """See `DuplexStream`."""
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            self._check_open()
            self._transport.write(view[start : start + _PIECE])
            if self._writing_paused:
                await self.drained(min(len(data) - start, _PIECE))
        self._check_open()

    def close(self) -> None:
        """Start to close like `aclose`, without waiting."""
        self._leave(failed=False)
        self._transport.close()

    async def aclose(self) -> None:
        """See `DuplexStream`; a peer that does not read for 30 seconds is disconnected."""
        self.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await asyncio.shield(self._lost)
        except TimeoutError:
            self.abort()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Reset the connection: unread data is lost, and the peer sees a failure."""
        self._leave(failed=True)
        peer = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            if peer is not None and peer.fileno() >= 0:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is closed."""
        return self._lost.done()

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` soon after the connection is closed."""
        self._lost.add_done_callback(lambda _: callback())

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if not self._closed:
            self._inbox.feed(data)
            self._flow()

    def eof_received(self) -> None:
        """Called by the loop, which then sends pending data and closes the connection."""
        self._end(failed=False)

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._writing_paused = False
        self._writers.wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        if not self._lost.done():
            self._lost.set_result(None)
        self._end(failed=error is not None)

    async def drained(self, held: int) -> None:
        """Return when the peer has read most of the written data; `held` is the number of bytes in memory.

        Raises ConnectionError.
        """
        while self._writing_paused:
            self._check_open()
            await self._writers.wait()

    def _flow(self) -> None:
        """Pause reading when the inbox is full, and resume it when the inbox is half empty."""
        size = len(self._inbox)
        if self._transport.is_closing():
            return
        if self._reading and size >= LIMIT:
            self._reading = False
            self._transport.pause_reading()
        elif not self._reading and size <= LIMIT // 2:
            self._reading = True
            self._transport.resume_reading()

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(_CLOSED)
        if self._inbox.has_ended or self._transport.is_closing():
            raise ConnectionResetError(_ENDED)


class StreamOpener(asyncio.Protocol):
    """A protocol for connecting or accepting: it creates the `stream` before any data arrives and passes it to
    `opened`.
    """

    stream: SocketStream

    def __init__(self, opened: Callable[[SocketStream], None] | None = None) -> None:
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.stream = SocketStream(cast("asyncio.Transport", transport))
        if self._opened is not None:
            self._opened(self.stream)


class PipeStream(_Stream):
    """One end of an in-memory pair, see `pipe`: a `DuplexStream` that behaves like one over a socket."""

    def __init__(self) -> None:
        super().__init__()
        self._peer = self

    def join(self, peer: "PipeStream") -> None:
        """Connect the two ends of a pair."""
        self._peer, peer._peer = peer, self

    async def read(self, n: int) -> bytes:
        """See `DuplexStream`."""
        found = await self._inbox.read(n)
        self._peer._writers.wake()
        return found

    async def write(self, data: bytes) -> None:
        """See `DuplexStream`."""
        view, inbox = memoryview(data), self._peer._inbox
        while view:
            self._check_open()
            room = LIMIT - len(inbox)
            if room > 0:
                inbox.feed(view[:room])
                view = view[room:]
            else:
                await self._writers.wait()
        self._check_open()

    def close(self) -> None:
        """Start to close like `aclose`."""
        if not self._closed:
            self._leave(failed=False)
            self._peer._end(failed=False)

    async def aclose(self) -> None:
        """See `DuplexStream`."""
        self.close()

    def abort(self) -> None:
        """Break the stream: the peer sees a failure."""
        if not self._closed:
            self._leave(failed=True)
            self._peer._end(failed=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(_CLOSED)
        if self._inbox.has_ended:
            raise ConnectionResetError(_ENDED)


async def serve_upgrade(upgrade: Upgrade, stream: SocketStream | PipeStream) -> None:
    """Run an upgrade, then close the stream; a failure breaks the stream and is raised.

    After the peer has closed, reads and writes fail; a handler that uses neither is cancelled after 30 seconds.
    """
    clock, patience = asyncio.get_running_loop().time, asyncio.timeout(None)
    try:
        async with patience:
            stream.when_ended(lambda: patience.reschedule(clock() + _NOTICE))
            try:
                await upgrade.serve(stream)
            finally:
                stream.when_ended(_ignore)
    except asyncio.CancelledError:
        stream.close()
        raise
    except BaseException as failure:
        stream.abort()
        if not (patience.expired() or (stream.has_ended and isinstance(failure, ConnectionError))):
            raise
    else:
        await stream.aclose()


def _ignore() -> None:
    """Do nothing; removes the callback."""


async def relay(one: DuplexStream, other: DuplexStream) -> None:
    """Copy bytes between two streams in both directions until one of them ends; everything sent before the end of that
    stream has then been copied. Raises ConnectionError.
    """
    await first_of(_carry(one, other), _carry(other, one))


async def _carry(source: DuplexStream, target: DuplexStream) -> None:
    while piece := await source.read(LIMIT):
        await target.write(piece)


def pipe() -> tuple[PipeStream, PipeStream]:
    """Return the two ends of a stream within one process; each direction buffers at most 64 KiB."""
    one, other = PipeStream(), PipeStream()
    one.join(other)
    return one, other
