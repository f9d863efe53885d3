"""An HTTP/2 client connection."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import cast

from controller_manager.common.transport.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LARGEST_BLOCK,
    LARGEST_FRAME,
    LAST_STREAM,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    ForbiddenError,
    Frame,
    FrameReader,
    HeaderReader,
    frame,
    name_of,
)
from controller_manager.common.transport.http2.stream import Http2Error, Http2Stream, Receiver

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_TABLE_SIZE, _ENABLE_PUSH, _MOST_STREAMS, _INITIAL_WINDOW, _LARGEST_FRAME, _LARGEST_HEADERS = range(1, 7)
_SETTING, _NUMBER, _TWO_NUMBERS = Struct(">HI"), Struct(">I"), Struct(">II")
_DEFAULT_WINDOW = 65_535
_WINDOW = 16 << 20  # bytes that may arrive on a connection before a window update; streams have their own windows


class Http2Connection(asyncio.Protocol):
    """A connection to one server. A response may be `stream_window` bytes ahead of its reader.

    While requests are running, a connection without data for `keepalive` seconds is pinged and gets as many seconds to
    respond (0: no keepalive).
    """

    def __init__(self, stream_window: int = _DEFAULT_WINDOW, keepalive: float = 0.0) -> None:
        self.stream_window = stream_window
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._streams: dict[int, Http2Stream] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()  # requests that wait for a free stream
        self._blocked: dict[Http2Stream, None] = {}
        self._onlookers: list[asyncio.Future[None]] = []
        self._paused = False
        self._next = 1
        self._leaving = ""
        self._frames, self._headers = FrameReader(), HeaderReader()
        self._window, self._peer_window = _DEFAULT_WINDOW, _DEFAULT_WINDOW
        self._frame = LARGEST_FRAME
        self._most_streams = 100  # until the server's settings arrive
        self._taken = 0
        self._last_received = self._loop.time()
        self._pinged = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Return whether it accepts further requests."""
        return self._transport is not None and not self._leaving and self._next <= LAST_STREAM

    @property
    def is_idle(self) -> bool:
        """Return whether no request is running."""
        return not self._streams

    async def idle(self) -> None:
        """Return when no request is running."""
        while self._streams:
            await self._change()

    async def ready(self) -> None:
        """Return when the server has sent its HTTP/2 settings. Raises `Http2Error`."""
        await self._ready

    async def room(self) -> None:
        """Return when another request can be sent. Raises `Http2Error` if the connection accepts no more."""
        while self.is_usable and len(self._streams) >= self._most_streams:
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if not waiting.cancelled():
                    self._admit()  # pass the free stream to another request
                raise
        if not self.is_usable:
            raise Http2Error(self._leaving or "the connection is used up", unsent=True)

    @property
    def has_room(self) -> bool:
        """Return whether a request can be sent at once."""
        return self.is_usable and len(self._streams) < self._most_streams

    def request(self, block: bytes, receiver: Receiver, body: bytes = b"", *, end: bool = False) -> Http2Stream:
        """Send a request with a `header_block`; there must be a free stream."""
        assert self._transport is not None
        stream = Http2Stream(self, self._next, receiver, self._peer_window, self.stream_window)
        self._next += 2
        self._streams[stream.number] = stream
        head = frame(HEADERS, END_HEADERS, stream.number, block)
        size = len(body)
        if end and size <= min(stream.window, self._window, self._frame):
            stream.window -= size
            self._window -= size
            stream.sent_all = True
            self._transport.write(head + frame(DATA, END_STREAM, stream.number, body))
            return stream
        self._transport.write(head)
        if body or end:
            self.send(stream, body, end=end)
        return stream

    def send(self, stream: Http2Stream, data: bytes, *, end: bool) -> None:
        """Send a part of a body when flow control allows it."""
        stream.sent_all = end
        stream.outgoing.append(memoryview(data))
        self._pump(stream)

    async def drained(self, stream: Http2Stream) -> None:
        """Return when all written data of a stream has been sent."""
        while not stream.closed and (self._paused or stream.outgoing):
            await self._change()

    def allow(self, stream: Http2Stream) -> None:
        """Send a window update for the bytes of a stream that were read."""
        count, stream.to_allow = stream.to_allow, 0
        stream.allowance += count
        self._write(WINDOW_UPDATE, 0, stream.number, _NUMBER.pack(count))

    def reset(self, stream: Http2Stream, code: ErrorCode) -> None:
        """Reset a stream."""
        self._write(RST_STREAM, 0, stream.number, _NUMBER.pack(code))
        self._forget(stream)

    def close(self, why: str = "the connection was closed") -> None:
        """Close the connection and end all requests."""
        if self._transport is not None:
            self._leaving = self._leaving or why
            self._write(GOAWAY, 0, 0, _TWO_NUMBERS.pack(0, ErrorCode.NO_ERROR))
            self._transport.close()
            self._lost(why)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._transport.abort()
            self._lost("the server speaks no HTTP/2")
            return
        settings = {
            _TABLE_SIZE: 0,
            _ENABLE_PUSH: 0,
            _INITIAL_WINDOW: self.stream_window,
            _LARGEST_HEADERS: LARGEST_BLOCK,
        }
        payload = b"".join(_SETTING.pack(*one) for one in settings.items())
        self._transport.write(_PREFACE)
        self._write(SETTINGS, 0, 0, payload)
        self._write(WINDOW_UPDATE, 0, 0, _NUMBER.pack(_WINDOW - _DEFAULT_WINDOW))
        if self._keepalive:
            self._timer = self._loop.call_later(self._keepalive, self._look)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(f"the connection was lost: {error}" if error else "the server closed the connection")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._last_received = self._loop.time()
        self._pinged = False
        try:
            for found in self._frames.read(data):
                self._frame_received(found)
                if self._transport is None:
                    return
        except ForbiddenError as problem:
            self._break(problem)

    # Frames

    def _frame_received(self, found: Frame) -> None:
        if not self._ready.done() and found.kind != SETTINGS:
            raise ForbiddenError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        handler = _HANDLERS.get(found.kind)  # unknown types are ignored
        if handler is not None:
            handler(self, found)

    def _on_data(self, found: Frame) -> None:
        size = len(found.payload)
        self._taken += size
        if self._taken * 2 >= _WINDOW:
            self._write(WINDOW_UPDATE, 0, 0, _NUMBER.pack(self._taken))
            self._taken = 0
        stream = self._streams.get(found.stream)
        if stream is None:  # it was reset
            return
        stream.allowance -= size
        if stream.allowance < 0:
            raise ForbiddenError(ErrorCode.FLOW_CONTROL_ERROR, "the server exceeded the flow control window")
        data = found.unpadded
        if len(data) < size:
            stream.allow(size - len(data))
        if data:
            stream.receiver.data_received(data)
        if found.flags & END_STREAM:
            self._end(stream)

    def _on_headers(self, found: Frame) -> None:
        headers = self._headers.read(found.payload)
        stream = self._streams.get(found.stream)
        if stream is not None:
            stream.receiver.headers_received(headers)
            if found.flags & END_STREAM:
                self._end(stream)

    def _on_reset(self, found: Frame) -> None:
        (code,) = found.numbers(_NUMBER)
        stream = self._streams.get(found.stream)
        if stream is not None:
            self._forget(stream)
            unsent = code == ErrorCode.REFUSED_STREAM
            stream.receiver.ended(Http2Error(f"the server ended the stream: {name_of(code)}", code, unsent=unsent))

    def _on_settings(self, found: Frame) -> None:
        if found.flags & ACK:
            return
        if len(found.payload) % _SETTING.size:
            raise ForbiddenError(ErrorCode.FRAME_SIZE_ERROR, "settings that are cut off")
        settings: dict[int, int] = dict(_SETTING.iter_unpack(found.payload))
        self._most_streams = settings.get(_MOST_STREAMS, self._most_streams if self._ready.done() else LAST_STREAM)
        self._frame = min(settings.get(_LARGEST_FRAME, self._frame), 1 << 20)
        if _INITIAL_WINDOW in settings:
            more = settings[_INITIAL_WINDOW] - self._peer_window
            self._peer_window += more
            for stream in self._streams.values():
                stream.window += more
        self._write(SETTINGS, ACK, 0)
        if not self._ready.done():
            self._ready.set_result(None)
        self._admit()
        self._pump_all()

    def _on_push(self, _: Frame) -> None:
        raise ForbiddenError(ErrorCode.PROTOCOL_ERROR, "server push is disabled")

    def _on_ping(self, found: Frame) -> None:
        if not found.flags & ACK:
            self._write(PING, ACK, 0, found.payload)

    def _on_goaway(self, found: Frame) -> None:
        last, code = found.numbers(_TWO_NUMBERS)
        reason = found.payload[8:200].decode("utf-8", "replace")
        self._leaving = f"the server sent GOAWAY: {reason or name_of(code)}"
        for stream in [one for number, one in self._streams.items() if number > last]:
            self._forget(stream)
            stream.receiver.ended(Http2Error(self._leaving, code, unsent=True))
        self._admit()
        self._close_if_done()

    def _on_window(self, found: Frame) -> None:
        (count,) = found.numbers(_NUMBER)
        if found.stream == 0:
            self._window += count
            self._pump_all()
        elif (stream := self._streams.get(found.stream)) is not None:
            stream.window += count
            self._pump(stream)

    # Sending

    def _write(self, kind: int, flags: int, number: int, payload: bytes | memoryview = b"") -> None:
        if self._transport is not None:
            self._transport.write(frame(kind, flags, number, payload))

    def _pump_all(self) -> None:
        for stream in list(self._blocked):
            self._pump(stream)

    def _pump(self, stream: Http2Stream) -> None:
        """Send as much of a stream as flow control allows."""
        while stream.outgoing:
            found = stream.next_piece(min(self._window, self._frame))
            if found is None:
                self._blocked[stream] = None
                return
            piece, is_last = found
            self._window -= len(piece)
            self._write(DATA, END_STREAM if is_last else 0, stream.number, piece)
        if stream in self._blocked:
            del self._blocked[stream]
            self._wake()

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._onlookers.append(waiting)
        await waiting

    def _wake(self) -> None:
        """Wake all tasks that wait for data to be sent or for a request to end."""
        onlookers, self._onlookers = self._onlookers, []
        for waiting in onlookers:
            if not waiting.done():
                waiting.set_result(None)

    def _admit(self) -> None:
        """Wake as many waiting requests as there are free streams."""
        room = self._most_streams - len(self._streams) if self.is_usable else len(self._waiting)
        while self._waiting and room > 0:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                room -= 1

    # End of streams and of the connection

    def _end(self, stream: Http2Stream) -> None:
        """Handle the end of a response."""
        if not stream.sent_all or stream.outgoing:  # the server does not need the rest of the request
            self._write(RST_STREAM, 0, stream.number, _NUMBER.pack(ErrorCode.NO_ERROR))
        self._forget(stream)
        stream.receiver.ended(None)

    def _forget(self, stream: Http2Stream) -> None:
        stream.closed = True
        self._streams.pop(stream.number, None)
        stream.outgoing.clear()
        self._blocked.pop(stream, None)
        if self._onlookers:
            self._wake()
        if self._waiting:
            self._admit()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._streams and self._transport is not None and not self.is_usable:
            self._transport.close()

    def _break(self, problem: ForbiddenError) -> None:
        """Close the connection after a protocol error of the server."""
        self._write(GOAWAY, 0, 0, _TWO_NUMBERS.pack(0, problem.code) + str(problem).encode())
        if self._transport is not None:
            self._transport.close()
        self._lost(f"the server violated HTTP/2: {problem}", problem.code)

    def _lost(self, why: str, code: int | None = None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._leaving = self._leaving or why
        if self._timer is not None:
            self._timer.cancel()
        if not self._ready.done():
            self._ready.set_exception(Http2Error(why, code, unsent=True))
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            self._forget(stream)
            stream.receiver.ended(Http2Error(why, code))
        self._admit()
        self._wake()

    def _look(self) -> None:
        """Check when data last arrived; send a ping or close the connection."""
        silence = self._loop.time() - self._last_received
        pause = self._keepalive - silence
        if pause <= 0 and self._pinged and self._transport is not None:
            self._transport.abort()
            self._lost(f"the server has been silent for {silence:.0f} s")
            return
        if pause <= 0:
            if self._streams:
                self._pinged = True
                self._write(PING, 0, 0, bytes(8))
            pause = self._keepalive
        self._timer = self._loop.call_later(pause, self._look)


_HANDLERS: Mapping[int, Callable[[Http2Connection, Frame], None]] = {
    DATA: Http2Connection._on_data,
    HEADERS: Http2Connection._on_headers,
    RST_STREAM: Http2Connection._on_reset,
    SETTINGS: Http2Connection._on_settings,
    PUSH_PROMISE: Http2Connection._on_push,
    PING: Http2Connection._on_ping,
    GOAWAY: Http2Connection._on_goaway,
    WINDOW_UPDATE: Http2Connection._on_window,
}
