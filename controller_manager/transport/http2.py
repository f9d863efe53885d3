"""The client's side of an HTTP/2 connection (RFC 9113): requests whose bodies go both ways, as windows allow.

No header refers to an earlier one: the server is told to keep no table of them (RFC 7541, section 4.2), so that blocks
of headers that are equal mean the same, and most are known already. `hpack` reads and writes the others.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Protocol, cast

from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hpack.exceptions import HPACKError

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = range(10)
_END_STREAM = _ACK = 1
_END_HEADERS, _PADDED, _PRIORITY = 4, 8, 32
_TABLE_SIZE, _ENABLE_PUSH, _MOST_STREAMS, _INITIAL_WINDOW, _LARGEST_FRAME, _LARGEST_HEADERS = range(1, 7)
_HEAD = Struct(">IBI")  # length and type, flags, number of the stream
_SETTING, _NUMBER, _TWO_NUMBERS = Struct(">HI"), Struct(">I"), Struct(">II")
_DEFAULT_WINDOW, _DEFAULT_FRAME = 65_535, 16_384
_WINDOW = 16 << 20  # bytes that may come on a connection before more are allowed; each stream has bounds of its own
_LARGEST_BLOCK = 64 << 10  # bytes of headers
_LAST_STREAM = (1 << 31) - 1
_KNOWN_BLOCKS = 64  # of headers that were read


class ErrorCode(IntEnum):
    """Why a stream or a connection was ended (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


_ERROR_CODES = frozenset(ErrorCode)


class Http2Error(Exception):
    """A request failed. `code` is what the server gave as reason, None where the connection was lost; `unsent` tells
    that the server has certainly done nothing of it.
    """

    def __init__(self, message: str, code: int | None = None, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.unsent = unsent


class Receiver(Protocol):
    """Is told of the answer to a request."""

    def headers_received(self, headers: Mapping[str, str]) -> None:
        """Headers came, or trailers."""

    def data_received(self, data: bytes) -> None:
        """Some of the body came. For as many bytes as `Http2Stream.allow` is told, others may come."""

    def ended(self, error: Http2Error | None) -> None:
        """Nothing more comes: the answer is whole, or failed."""


@lru_cache(maxsize=1024)
def header_block(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return headers as they are sent, which refer to no others."""
    return Encoder().encode([NeverIndexedHeaderTuple(*one) for one in headers], huffman=False)


class Http2Stream:
    """A request under way. What is written goes as the windows allow; `drained` waits until all has gone."""

    __slots__ = (
        "_connection",
        "allowance",
        "closed",
        "number",
        "outgoing",
        "receiver",
        "sent_all",
        "to_allow",
        "window",
    )

    def __init__(
        self, connection: "Http2Connection", number: int, receiver: Receiver, window: int, allowance: int
    ) -> None:
        self._connection = connection
        self.number = number
        self.receiver = receiver
        self.window = window  # bytes that the server takes
        self.allowance = allowance  # bytes that may come
        self.to_allow = 0  # bytes that were taken, of which the server does not know yet
        self.outgoing: deque[memoryview] = deque()
        self.sent_all = False
        self.closed = False

    def write(self, data: bytes, *, end: bool = False) -> None:
        """Send a part of the body; with `end` it is the last one. Nothing happens once the stream is closed."""
        if not self.closed and not self.sent_all:
            self._connection.send(self, data, end=end)

    async def drained(self) -> None:
        """Return once the server, or the network, has taken what was written."""
        await self._connection.drained(self)

    def allow(self, count: int) -> None:
        """So many bytes that came were taken: as many others may come."""
        self.to_allow += count
        if not self.closed and self.to_allow * 2 >= self._connection.stream_window:
            self._connection.allow(self)

    def reset(self, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """End it at once; its receiver is told nothing more."""
        if not self.closed:
            self._connection.reset(self, code)


class Http2Connection(asyncio.Protocol):
    """A connection to one server. An answer may run `stream_window` bytes ahead of who takes it.

    One on which nothing comes for `keepalive` seconds (0: it may rest for ever) has as many to show that it lives,
    while requests are under way.
    """

    def __init__(self, stream_window: int = _DEFAULT_WINDOW, keepalive: float = 0.0) -> None:
        self.stream_window = stream_window
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._streams: dict[int, Http2Stream] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()  # requests for which there are too many others
        self._blocked: dict[Http2Stream, None] = {}
        self._onlookers: list[asyncio.Future[None]] = []
        self._paused = False
        self._next = 1
        self._leaving = ""
        self._buffer = b""
        self._block: tuple[int, int, bytearray] | None = None  # stream and flags of headers that go on
        self._decoder = Decoder(_LARGEST_BLOCK)
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self._known: dict[bytes, Mapping[str, str]] = {}
        self._window, self._peer_window = _DEFAULT_WINDOW, _DEFAULT_WINDOW
        self._frame = _DEFAULT_FRAME
        self._most_streams = 100  # until the server tells
        self._taken = 0
        self._heard = self._loop.time()
        self._pinged = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it takes further requests."""
        return self._transport is not None and not self._leaving and self._next <= _LAST_STREAM

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._streams

    async def idle(self) -> None:
        """Return once nothing is under way."""
        while self._streams:
            await self._change()

    async def ready(self) -> None:
        """Return once the server has shown that it speaks HTTP/2. Raises `Http2Error`."""
        await self._ready

    async def room(self) -> None:
        """Return once the server takes another request. Raises `Http2Error` where it takes no more."""
        while self.is_usable and len(self._streams) >= self._most_streams:
            waiting = self._loop.create_future()
            self._waiting.append(waiting)
            await waiting
        if not self.is_usable:
            raise Http2Error(self._leaving or "the connection is used up", unsent=True)

    @property
    def has_room(self) -> bool:
        """Whether the server takes another request at once."""
        return self.is_usable and len(self._streams) < self._most_streams

    def request(self, block: bytes, receiver: Receiver, body: bytes = b"", *, end: bool = False) -> Http2Stream:
        """Begin a request with these headers (`header_block`), for which there must be room."""
        assert self._transport is not None
        stream = Http2Stream(self, self._next, receiver, self._peer_window, self.stream_window)
        self._next += 2
        self._streams[stream.number] = stream
        head = _HEAD.pack(len(block) << 8 | _HEADERS, _END_HEADERS, stream.number) + block
        size = len(body)
        if end and size <= min(stream.window, self._window, self._frame):
            stream.window -= size
            self._window -= size
            stream.sent_all = True
            self._transport.write(head + _HEAD.pack(size << 8 | _DATA, _END_STREAM, stream.number) + body)
            return stream
        self._transport.write(head)
        if body or end:
            self.send(stream, body, end=end)
        return stream

    def send(self, stream: Http2Stream, data: bytes, *, end: bool) -> None:
        """Send a part of a body, as soon as windows allow."""
        stream.sent_all = end
        stream.outgoing.append(memoryview(data))
        self._pump(stream)

    async def drained(self, stream: Http2Stream) -> None:
        """Return once all of a stream has gone that was written."""
        while not stream.closed and (self._paused or stream.outgoing):
            await self._change()

    def allow(self, stream: Http2Stream) -> None:
        """Tell the server how many bytes of a stream were taken."""
        count, stream.to_allow = stream.to_allow, 0
        stream.allowance += count
        self._write(_WINDOW_UPDATE, 0, stream.number, _NUMBER.pack(count))

    def reset(self, stream: Http2Stream, code: ErrorCode) -> None:
        """End a stream."""
        self._write(_RST_STREAM, 0, stream.number, _NUMBER.pack(code))
        self._forget(stream)

    def close(self, why: str = "the connection was closed") -> None:
        """End the connection, and all that is under way."""
        if self._transport is not None:
            self._leaving = self._leaving or why
            self._write(_GOAWAY, 0, 0, _TWO_NUMBERS.pack(0, ErrorCode.NO_ERROR))
            self._transport.close()
            self._lost(why)

    # What the event loop calls

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
            _LARGEST_HEADERS: _LARGEST_BLOCK,
        }
        payload = b"".join(_SETTING.pack(*one) for one in settings.items())
        self._transport.write(_PREFACE)
        self._write(_SETTINGS, 0, 0, payload)
        self._write(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(_WINDOW - _DEFAULT_WINDOW))
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
        self._heard = self._loop.time()
        self._pinged = False
        data = self._buffer + data if self._buffer else data
        at, size = 0, len(data)
        try:
            while size - at >= _HEAD.size and self._transport is not None:
                kind, flags, number = _HEAD.unpack_from(data, at)
                length = kind >> 8
                if length > _DEFAULT_FRAME:
                    raise _Broken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
                end = at + _HEAD.size + length
                if end > size:
                    break
                self._frame_received(kind & 0xFF, flags, number & _LAST_STREAM, data[at + _HEAD.size : end])
                at = end
        except _Broken as broken:
            self._break(broken)
        self._buffer = data[at:]

    # Frames

    def _frame_received(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and (kind != _CONTINUATION or number != self._block[0]):
            raise _Broken(ErrorCode.PROTOCOL_ERROR, "headers were interrupted")
        if not self._ready.done() and kind != _SETTINGS:
            raise _Broken(ErrorCode.PROTOCOL_ERROR, "it does not begin with settings")
        handler = _HANDLERS.get(kind)  # those that nobody knows are ignored
        if handler is not None:
            try:
                handler(self, flags, number, payload)
            except (IndexError, ValueError) as error:
                raise _Broken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {kind} is too short") from error

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._taken += size
        if self._taken * 2 >= _WINDOW:
            self._write(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(self._taken))
            self._taken = 0
        stream = self._streams.get(number)
        if stream is None:  # it was reset
            return
        stream.allowance -= size
        if stream.allowance < 0:
            raise _Broken(ErrorCode.FLOW_CONTROL_ERROR, "more came than was allowed")
        if flags & _PADDED:
            payload = _without_padding(payload)
            stream.allow(size - len(payload))
        if payload:
            stream.receiver.data_received(payload)
        if flags & _END_STREAM:
            self._end(stream)

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if flags & _PADDED:
            payload = _without_padding(payload)
        if flags & _PRIORITY:
            payload = payload[5:]
        if flags & _END_HEADERS:
            self._headers(number, flags, payload)
        else:
            self._block = number, flags, bytearray(payload)

    def _on_continuation(self, flags: int, _: int, payload: bytes) -> None:
        if self._block is None:
            raise _Broken(ErrorCode.PROTOCOL_ERROR, "headers go on that did not begin")
        number, first, block = self._block
        block += payload
        if len(block) > _LARGEST_BLOCK:
            raise _Broken(ErrorCode.ENHANCE_YOUR_CALM, f"headers of more than {_LARGEST_BLOCK} bytes")
        if flags & _END_HEADERS:
            self._block = None
            self._headers(number, first, bytes(block))

    def _headers(self, number: int, flags: int, block: bytes) -> None:
        headers = self._known.get(block)
        if headers is None:
            try:
                headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
            except (HPACKError, UnicodeDecodeError) as error:
                raise _Broken(ErrorCode.COMPRESSION_ERROR, f"headers that cannot be read: {error}") from error
            if len(self._known) >= _KNOWN_BLOCKS:
                self._known.clear()
            self._known[block] = headers
        stream = self._streams.get(number)
        if stream is not None:
            stream.receiver.headers_received(headers)
            if flags & _END_STREAM:
                self._end(stream)

    def _on_reset(self, _: int, number: int, payload: bytes) -> None:
        (code,) = _unpacked(_NUMBER, payload)
        stream = self._streams.get(number)
        if stream is not None:
            self._forget(stream)
            unsent = code == ErrorCode.REFUSED_STREAM
            stream.receiver.ended(Http2Error(f"the server ended the stream: {_name(code)}", code, unsent=unsent))

    def _on_settings(self, flags: int, _: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % _SETTING.size:
            raise _Broken(ErrorCode.FRAME_SIZE_ERROR, "settings that are cut off")
        told: dict[int, int] = dict(_SETTING.iter_unpack(payload))
        self._most_streams = told.get(_MOST_STREAMS, self._most_streams if self._ready.done() else _LAST_STREAM)
        self._frame = min(told.get(_LARGEST_FRAME, self._frame), 1 << 20)
        if _INITIAL_WINDOW in told:
            more = told[_INITIAL_WINDOW] - self._peer_window
            self._peer_window += more
            for stream in self._streams.values():
                stream.window += more
        self._write(_SETTINGS, _ACK, 0, b"")
        if not self._ready.done():
            self._ready.set_result(None)
        self._admit()
        self._pump_all()

    def _on_push(self, _: int, __: int, ___: bytes) -> None:
        raise _Broken(ErrorCode.PROTOCOL_ERROR, "an answer to nothing")

    def _on_ping(self, flags: int, _: int, payload: bytes) -> None:
        if not flags & _ACK:
            self._write(_PING, _ACK, 0, payload)

    def _on_goaway(self, _: int, __: int, payload: bytes) -> None:
        last, code = _TWO_NUMBERS.unpack_from(payload)
        said = payload[8:200].decode("utf-8", "replace")
        self._leaving = f"the server goes away: {said or _name(code)}"
        for stream in [one for number, one in self._streams.items() if number > last]:
            self._forget(stream)
            stream.receiver.ended(Http2Error(self._leaving, code, unsent=True))
        self._admit()
        self._close_if_done()

    def _on_window(self, _: int, number: int, payload: bytes) -> None:
        (count,) = _unpacked(_NUMBER, payload)
        if number == 0:
            self._window += count
            self._pump_all()
        elif (stream := self._streams.get(number)) is not None:
            stream.window += count
            self._pump(stream)

    # What is sent

    def _write(self, kind: int, flags: int, number: int, payload: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(_HEAD.pack(len(payload) << 8 | kind, flags, number) + payload)

    def _pump_all(self) -> None:
        for stream in list(self._blocked):
            self._pump(stream)

    def _pump(self, stream: Http2Stream) -> None:
        """Send of a stream what the windows allow now."""
        outgoing = stream.outgoing
        while outgoing:
            room = min(stream.window, self._window, self._frame)
            data = outgoing[0]
            if room <= 0 and data:
                self._blocked[stream] = None
                return
            piece = data[:room] if len(data) > room else data
            if len(piece) == len(data):
                outgoing.popleft()
            else:
                outgoing[0] = data[room:]
            stream.window -= len(piece)
            self._window -= len(piece)
            is_last = stream.sent_all and not outgoing
            self._write(_DATA, _END_STREAM if is_last else 0, stream.number, piece)
        if stream in self._blocked:
            del self._blocked[stream]
            self._wake()

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._onlookers.append(waiting)
        await waiting

    def _wake(self) -> None:
        """Have all look again that wait for something to go, or to end."""
        onlookers, self._onlookers = self._onlookers, []
        for waiting in onlookers:
            if not waiting.done():
                waiting.set_result(None)

    def _admit(self) -> None:
        """Let requests that wait look whether there is room for them."""
        room = self._most_streams - len(self._streams) if self.is_usable else len(self._waiting)
        while self._waiting and room > 0:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                room -= 1

    # Ends

    def _end(self, stream: Http2Stream) -> None:
        """The answer is whole."""
        if not stream.sent_all:  # the server wants no more of the request
            self._write(_RST_STREAM, 0, stream.number, _NUMBER.pack(ErrorCode.NO_ERROR))
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

    def _break(self, broken: "_Broken") -> None:
        """The server does not keep to the protocol."""
        self._write(_GOAWAY, 0, 0, _TWO_NUMBERS.pack(0, broken.code) + str(broken).encode())
        if self._transport is not None:
            self._transport.close()
        self._lost(f"the server sent what HTTP/2 forbids: {broken}", broken.code)

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
        """See whether anything came lately."""
        silence = self._loop.time() - self._heard
        pause = self._keepalive - silence
        if pause <= 0 and self._pinged and self._transport is not None:
            self._transport.abort()
            self._lost(f"the server has been silent for {silence:.0f} s")
            return
        if pause <= 0:
            if self._streams:
                self._pinged = True
                self._write(_PING, 0, 0, bytes(8))
            pause = self._keepalive
        self._timer = self._loop.call_later(pause, self._look)


class _Broken(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_HANDLERS: Mapping[int, Callable[[Http2Connection, int, int, bytes], None]] = {
    _DATA: Http2Connection._on_data,
    _HEADERS: Http2Connection._on_headers,
    _RST_STREAM: Http2Connection._on_reset,
    _SETTINGS: Http2Connection._on_settings,
    _PUSH_PROMISE: Http2Connection._on_push,
    _PING: Http2Connection._on_ping,
    _GOAWAY: Http2Connection._on_goaway,
    _WINDOW_UPDATE: Http2Connection._on_window,
    _CONTINUATION: Http2Connection._on_continuation,
}


def _without_padding(payload: bytes) -> bytes:
    end = len(payload) - payload[0]
    if end < 1:
        raise _Broken(ErrorCode.PROTOCOL_ERROR, "more padding than there is room for")
    return payload[1:end]


def _unpacked(form: Struct, payload: bytes) -> Iterable[int]:
    if len(payload) < form.size:
        raise ValueError
    return form.unpack_from(payload)


def _name(code: int) -> str:
    return ErrorCode(code).name if code in _ERROR_CODES else str(code)
