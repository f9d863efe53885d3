"""Duplex streams: over a connection that left HTTP, and between two parties of one process."""

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
"""Bytes that may wait for a reader before the other side is held up; a socket may bring as much as it reads at once."""
_PIECE = 256 * 1024  # bytes that are handed to a transport at a time
_CLOSE_TIMEOUT = 30.0  # seconds the other side may take for what was written before a close
_NOTICE = 30.0  # seconds a handler may go on when the other side is gone
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time
_CLOSED = "the stream is closed"
_ENDED = "the other side has closed the stream"
_BROKEN = "the connection broke"


class Inbox:
    """Bytes that were received and wait for their reader; the end of the stream, or its failure, comes behind them."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray(data)
        self._reader: asyncio.Future[None] | None = None
        self._failed = False
        self.has_ended = False

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes | memoryview) -> None:
        """Take in what was received."""
        self._data += data
        self._wake()

    def end(self, *, failed: bool = False) -> None:
        """Nothing more will come; only the first call counts."""
        if not self.has_ended:
            self.has_ended, self._failed = True, failed
            self._wake()

    def discard(self, *, failed: bool) -> None:
        """Forget what is there: this side has ended the stream, in order or not."""
        self._data.clear()
        self.has_ended, self._failed = True, failed
        self._wake()

    async def read(self, n: int) -> bytes:
        """At most `n` bytes, empty at the end. Raises ConnectionResetError behind the last byte of a failed stream."""
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
    """Tasks that wait for room to write."""

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
    """The common part of both streams: an inbox, writers that wait for room, and a callback for the end."""

    def __init__(self, early: bytes = b"") -> None:
        self._inbox = Inbox(early)
        self._writers = Waiters()
        self._closed = False
        self._on_end: Callable[[], None] | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the other side has closed the stream or is gone."""
        return self._inbox.has_ended

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Call `tell` once the other side has closed the stream or is gone, at once if that was before."""
        self._on_end = tell
        if self._inbox.has_ended:
            tell()

    def _end(self, *, failed: bool) -> None:
        """The other side will send nothing more, and takes nothing more."""
        self._inbox.end(failed=failed)
        self._writers.wake()
        if self._on_end is not None:
            self._on_end()

    def _leave(self, *, failed: bool) -> None:
        """This side reads and writes no more."""
        self._closed = True
        self._inbox.discard(failed=failed)
        self._writers.wake()


class SocketStream(_Stream, asyncio.Protocol):
    """A `DuplexStream` over a transport of asyncio, whose protocol it becomes; `early` bytes came before that."""

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
        """Begin to close, as `aclose` does."""
        self._leave(failed=False)
        self._transport.close()

    async def aclose(self) -> None:
        """See `DuplexStream`; a side that takes nothing for 30 seconds is cut off."""
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
        """Break the connection: what was written and not taken is lost, and the other side sees a failure."""
        self._leave(failed=True)
        peer = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            if peer is not None and peer.fileno() >= 0:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is gone."""
        return self._lost.done()

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Call `tell` soon after the connection is gone."""
        self._lost.add_done_callback(lambda _: tell())

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if not self._closed:
            self._inbox.feed(data)
            self._flow()

    def eof_received(self) -> None:
        """Called by the loop, which then sends what was written and closes the connection."""
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
        """Return once the other side has taken most of what was written, of which `held` bytes were the last.

        Raises ConnectionError.
        """
        while self._writing_paused:
            self._check_open()
            await self._writers.wait()

    def _flow(self) -> None:
        """Receive while there is room for it, and again when half of it was read."""
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
    """The protocol to connect or to accept with: the connection is a `stream` before it brings anything, of which
    `opened` is told.
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
    """One end of a pair in memory, see `pipe`: a `DuplexStream` that behaves as one over a socket does."""

    def __init__(self) -> None:
        super().__init__()
        self._peer = self

    def join(self, peer: "PipeStream") -> None:
        """Make both the ends of one pair."""
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
        """Begin to close, as `aclose` does."""
        if not self._closed:
            self._leave(failed=False)
            self._peer._end(failed=False)

    async def aclose(self) -> None:
        """See `DuplexStream`."""
        self.close()

    def abort(self) -> None:
        """Break the stream: the other side sees a failure."""
        if not self._closed:
            self._leave(failed=True)
            self._peer._end(failed=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(_CLOSED)
        if self._inbox.has_ended:
            raise ConnectionResetError(_ENDED)


async def serve_upgrade(upgrade: Upgrade, stream: SocketStream | PipeStream) -> None:
    """Let an upgrade talk, and close the stream with it; a failure breaks the stream and is raised.

    When the other side is gone, reads and writes tell so; who goes on without them is cancelled after 30 seconds.
    """
    clock, patience = asyncio.get_running_loop().time, asyncio.timeout(None)
    try:
        async with patience:
            stream.when_ended(lambda: patience.reschedule(clock() + _NOTICE))
            try:
                await upgrade.serve(stream)
            finally:
                stream.when_ended(_nobody)
    except asyncio.CancelledError:
        stream.close()
        raise
    except BaseException as failure:
        stream.abort()
        if not (patience.expired() or (stream.has_ended and isinstance(failure, ConnectionError))):
            raise
    else:
        await stream.aclose()


def _nobody() -> None:
    """Nobody is to be told."""


async def relay(one: DuplexStream, other: DuplexStream) -> None:
    """Carry bytes between two streams, both ways, until one of them has ended; all that came before has been carried
    then. Raises ConnectionError.
    """
    await first_of(_carry(one, other), _carry(other, one))


async def _carry(source: DuplexStream, target: DuplexStream) -> None:
    while piece := await source.read(LIMIT):
        await target.write(piece)


def pipe() -> tuple[PipeStream, PipeStream]:
    """The two ends of a stream within one process; 64 KiB wait in each direction at most."""
    one, other = PipeStream(), PipeStream()
    one.join(other)
    return one, other
