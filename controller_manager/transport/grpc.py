"""A client of gRPC servers, over Unix sockets and TCP: messages are dictionaries, read and written by our own tables.

Each message is preceded by a byte that tells of compression, which is never asked for, and by its length; the status of
a call is in the last headers of its answer (the protocol of gRPC over HTTP/2).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from controller_manager.api.protobuf.services import Method, Service
from controller_manager.api.protobuf.wire import Tree
from controller_manager.transport.dialer import Dialer
from controller_manager.transport.http2 import ErrorCode, Http2Connection, Http2Error, Http2Stream, header_block
from controller_manager.transport.transport import ConfigError, Endpoint, client_context

LARGEST = 4 << 20
"""Bytes of a message that is received, unless a channel is made for more."""
Metadata = tuple[tuple[str, str], ...]
"""Names and values that go with a call."""
LOOKAHEAD = 64 * 1024
"""Bytes of a stream that may wait for their reader, unless a channel is made for more."""
_PREFIX = Struct(">BI")
_CONNECTED_IN = 10.0  # seconds
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds in which nobody connects, after this has failed; doubled each time
_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
# What an end of the stream, or the answer of a proxy, means where nobody tells a status of gRPC.
_OF_RESETS: Mapping[int | None, str] = {
    None: "UNAVAILABLE",
    ErrorCode.REFUSED_STREAM: "UNAVAILABLE",
    ErrorCode.CANCEL: "CANCELLED",
    ErrorCode.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    ErrorCode.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}
_OF_HTTP = {
    "400": "INTERNAL",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "UNIMPLEMENTED",
    **dict.fromkeys(("429", "502", "503", "504"), "UNAVAILABLE"),
}


class GrpcError(Exception):
    """A call failed; `code` is the canonical name of its status: `UNAVAILABLE`, `DEADLINE_EXCEEDED`. Of one that is
    `unsent` the server has certainly done nothing.
    """

    def __init__(self, code: str, message: str, *, unsent: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.unsent = unsent


@dataclass(frozen=True, slots=True)
class GrpcTls:
    """The proofs of a connection over TLS (PEM). An empty `ca` means the authorities of the system; the server's
    certificate is for `server_name`, or else for the host of the target.
    """

    ca: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    server_name: str = ""


class GrpcChannel:
    """Connections to one server: `unix:///path`, `unix-abstract:name` or `host:port`, without TLS unless that is given.

    It connects when first used, through `dialer` if there is one, and again when a connection is lost. Where that
    fails, calls fail at once for a while of at most two seconds. Messages of at most `largest` bytes are received
    (-1: of any size). A connection on which nothing comes for `keepalive` seconds (0: it may rest for ever) has as
    many to show that it lives, while there are calls.
    """

    def __init__(
        self,
        target: str,
        tls: GrpcTls | None = None,
        *,
        largest: int = LARGEST,
        lookahead: int = LOOKAHEAD,
        keepalive: float = 0.0,
        dialer: Dialer | None = None,
    ) -> None:
        self.target = target
        self.largest = largest
        self.lookahead = lookahead
        self._keepalive = keepalive
        self._dialer = dialer
        self._address = _Address.of(target)
        self._tls = tls
        self._server_name = (tls.server_name if tls else "") or self._address.host or "localhost"
        self._context: ssl.SSLContext | None = None
        self._connection: Http2Connection | None = None
        self._old: list[Http2Connection] = []
        self._connecting = asyncio.Lock()
        self._pause = 0.0
        self._refused: tuple[float, GrpcError] | None = None  # until when, and why
        self._closed = False

    async def unary(
        self, service: Service, method: str, message: Tree, timeout: float, metadata: Metadata = ()
    ) -> Tree:
        """Return the answer to a message, at most `timeout` seconds later. Raises `GrpcError`."""
        called = service[method]
        body = called.request.write(message)
        headers = self._headers(called.path, (("grpc-timeout", f"{max(1, int(timeout * 1000))}m"), *metadata))
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        connection = self._connection
        if connection is None or not connection.has_room:
            connection = await self._connected_within(timeout)
        call = _UnaryCall(self.largest)
        timer = loop.call_at(end, call.expire)
        try:
            call.stream = connection.request(headers, call, _PREFIX.pack(0, len(body)) + body, end=True)
            answer = await call.answer
        finally:
            timer.cancel()
            call.close()
        return _read(called, answer)

    def stream(self, service: Service, method: str, metadata: Metadata = ()) -> "GrpcStream":
        """Begin a call whose messages go both ways until it is closed."""
        called = service[method]
        return GrpcStream(called, self._headers(called.path, metadata), self)

    async def close(self, grace: float = 0.0) -> None:
        """Close the connections; calls that are still under way `grace` seconds later fail."""
        self._closed = True
        if self._connection is not None:
            self._old.append(self._connection)
            self._connection = None
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for connection in self._old:
                    await connection.idle()
        for connection in self._old:
            connection.close("the channel was closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _headers(self, path: str, more: Metadata) -> bytes:
        return header_block(
            (
                (":method", "POST"),
                (":scheme", "https" if self._tls else "http"),
                (":path", path),
                (":authority", self._address.authority),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "cluster-controller-manager"),
                *more,
            )
        )

    async def _connected_within(self, seconds: float) -> Http2Connection:
        try:
            async with asyncio.timeout(seconds):
                return await self.connected()
        except TimeoutError:
            why = f"failed to connect to {self.target} within {seconds:g} s"
            raise GrpcError("UNAVAILABLE", why, unsent=True) from None

    async def connected(self) -> Http2Connection:
        """Return a connection that takes a call. Raises `GrpcError`."""
        while True:
            connection = self._connection
            if connection is None or not connection.is_usable:
                async with self._connecting:
                    connection = await self._connect()
            try:
                await connection.room()
            except Http2Error:
                continue
            return connection

    async def _connect(self) -> Http2Connection:
        """Return the connection that somebody else has made meanwhile, or another one. Raises `GrpcError`."""
        if self._closed:
            raise GrpcError("CANCELLED", "the channel was closed", unsent=True)
        if self._connection is not None:
            if self._connection.is_usable:
                return self._connection
            self._old = [one for one in (*self._old, self._connection) if not one.is_idle]
            self._connection = None
        loop = asyncio.get_running_loop()
        if self._refused is not None and loop.time() < self._refused[0]:
            raise self._refused[1]
        try:
            async with asyncio.timeout(_CONNECTED_IN):
                connection = await self._open(loop)
        except (OSError, Http2Error, ConfigError) as error:
            why = f"no connection within {_CONNECTED_IN:g} s" if isinstance(error, TimeoutError) else error
            failure = GrpcError("UNAVAILABLE", f"failed to connect to {self.target}: {why}", unsent=True)
            self._pause = min(2 * self._pause or _PAUSE, _LONGEST_PAUSE)
            self._refused = loop.time() + self._pause, failure
            raise failure from None
        self._pause, self._refused = 0.0, None
        if self._closed:
            connection.close()
            raise GrpcError("CANCELLED", "the channel was closed", unsent=True)
        self._connection = connection
        return connection

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Http2Connection:
        made = Http2Connection(self.lookahead, self._keepalive)
        if self._tls is not None and self._context is None:
            self._context = _context(self._tls)
        context, name = self._context, self._server_name if self._context else None
        if self._address.path:
            await loop.create_unix_connection(lambda: made, self._address.path, ssl=context, server_hostname=name)
        elif self._dialer is None:
            host, port = self._address.host, self._address.port
            await loop.create_connection(lambda: made, host, port, ssl=context, server_hostname=name)
        else:
            found = await self._dialer.dial(self._address.host, self._address.port)
            await loop.create_connection(lambda: made, sock=found, ssl=context, server_hostname=name)
        try:
            await made.ready()
        except BaseException:
            made.close()
            raise
        return made


class GrpcStream:
    """A call whose messages go both ways. A task that is cancelled while it reads or writes ends the call."""

    def __init__(self, method: Method, headers: bytes, channel: GrpcChannel) -> None:
        self._method = method
        self._headers = headers
        self._channel = channel
        self._call = _StreamCall(channel.largest)
        self._opening = asyncio.Lock()

    async def connected(self) -> None:
        """Return once the call has reached the server. Raises `GrpcError`."""
        if self._call.stream is None:
            async with self._opening:
                await self._open()

    async def read(self) -> Tree | None:
        """Return the next message, None when the server has ended the call. Raises `GrpcError`."""
        try:
            await self.connected()
            data = await self._call.next()
        except asyncio.CancelledError:
            self.close()
            raise
        return None if data is None else _read(self._method, data)

    async def write(self, message: Tree) -> None:
        """Send a message, as soon as the server takes more. Raises `GrpcError`."""
        body = self._method.request.write(message)
        try:
            await self.connected()
            self._call.check()
            assert self._call.stream is not None
            self._call.stream.write(_PREFIX.pack(0, len(body)) + body)
            await self._call.stream.drained()
            self._call.check()
        except asyncio.CancelledError:
            self.close()
            raise

    async def end(self) -> None:
        """Say that no message follows; the server may send others."""
        await self.connected()
        if self._call.stream is not None:
            self._call.stream.write(b"", end=True)

    def close(self) -> None:
        """End the call at once; nothing happens to one that is over."""
        self._call.close()

    async def _open(self) -> None:
        if self._call.stream is None:
            self._call.check()
            connection = await self._channel.connected()
            self._call.check()
            self._call.stream = connection.request(self._headers, self._call)


class _Call:
    """Receives the answer to a call, and takes messages out of it."""

    def __init__(self, largest: int) -> None:
        self.stream: Http2Stream | None = None
        self._largest = largest
        self._headers: dict[str, str] = {}
        self._buffer = bytearray()

    def headers_received(self, headers: Mapping[str, str]) -> None:
        self._headers.update(headers)

    def close(self) -> None:
        """End the call unless it is over."""
        if self.stream is not None:
            self.stream.reset()

    def _take(self, data: bytes) -> None:
        """Keep what is of a message; the words of others than gRPC servers are not."""
        if self._headers.get(":status") == "200":
            self._buffer += data

    def _size(self) -> int:
        """Return how many bytes the message has that begins in the buffer, -1 while that is unknown. Raises
        `GrpcError`.
        """
        if len(self._buffer) < _PREFIX.size:
            return -1
        compressed, size = _PREFIX.unpack_from(self._buffer)
        if compressed:
            raise GrpcError("INTERNAL", "the message is compressed, which nobody has asked for")
        if 0 <= self._largest < size:
            why = f"received a message of {size} bytes, and {self._largest} are the most"
            raise GrpcError("RESOURCE_EXHAUSTED", why)
        return _PREFIX.size + int(size)

    def _failure(self, error: Http2Error | None) -> GrpcError | None:
        """Return how the call failed, by the status that the server told, if it did."""
        headers = self._headers
        status = headers.get("grpc-status")
        if status is not None:
            code = _CODES[int(status)] if status.isdecimal() and int(status) < len(_CODES) else "UNKNOWN"
            message = unquote(headers.get("grpc-message", "")) or "the server gave no reason"
            return None if code == "OK" else GrpcError(code, message)
        if error is not None:
            return GrpcError(_OF_RESETS.get(error.code, "INTERNAL"), str(error), unsent=error.unsent)
        http = headers.get(":status", "")
        return GrpcError(_OF_HTTP.get(http, "UNKNOWN"), f"the server speaks no gRPC: it answered {http or 'nothing'}")


class _UnaryCall(_Call):
    """A call whose `answer` is one message."""

    def __init__(self, largest: int) -> None:
        super().__init__(largest)
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._take(data)
        try:
            self._size()
        except GrpcError as failure:
            self._fail(failure)
            return
        assert self.stream is not None
        self.stream.allow(len(data))

    def ended(self, error: Http2Error | None) -> None:
        failure = self._failure(error)
        if failure is None and self._size() != len(self._buffer):
            failure = GrpcError("INTERNAL", "the answer is not one message")
        if self.answer.done():
            return
        if failure is None:
            self.answer.set_result(bytes(memoryview(self._buffer)[_PREFIX.size :]))
        else:
            self.answer.set_exception(failure)

    def expire(self) -> None:
        """The time is over."""
        self._fail(GrpcError("DEADLINE_EXCEEDED", "there was no answer in time"))

    def _fail(self, failure: GrpcError) -> None:
        self.close()
        if not self.answer.done():
            self.answer.set_exception(failure)


class _StreamCall(_Call):
    """A call whose answer is messages, of which some may wait for their reader."""

    def __init__(self, largest: int) -> None:
        super().__init__(largest)
        self._messages: deque[bytes] = deque()
        self._allowed = 0  # bytes of the message that is not whole yet, for which others may come already
        self._over = False
        self._failed: GrpcError | None = None
        self._reader: asyncio.Future[None] | None = None

    async def next(self) -> bytes | None:
        """Return the next message, None behind the last one. Raises `GrpcError`."""
        while not self._messages:
            if self._failed is not None:
                raise self._failed
            if self._over:
                return None
            self._allow_part()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._messages.popleft()
        if self.stream is not None:
            self.stream.allow(_PREFIX.size + len(message))
        return message

    def check(self) -> None:
        """Raise `GrpcError` where the call is over."""
        if self._failed is not None:
            raise self._failed
        if self._over:
            raise GrpcError("CANCELLED", "the call is over")

    def close(self) -> None:
        super().close()
        if not self._over:
            self._finish(GrpcError("CANCELLED", "the call was ended"))

    def data_received(self, data: bytes) -> None:
        self._take(data)
        try:
            while 0 <= (end := self._size()) <= len(self._buffer):
                self._messages.append(bytes(memoryview(self._buffer)[_PREFIX.size : end]))
                del self._buffer[:end]
                if self._allowed and self.stream is not None:
                    self.stream.allow(-self._allowed)
                    self._allowed = 0
        except GrpcError as failure:
            super().close()
            self._finish(failure)
            return
        if self._messages:
            self._wake()
        else:
            self._allow_part()

    def ended(self, error: Http2Error | None) -> None:
        self._finish(self._failure(error))

    def _allow_part(self) -> None:
        """Let the rest of a message come that is waited for."""
        if self.stream is not None and len(self._buffer) > self._allowed:
            self.stream.allow(len(self._buffer) - self._allowed)
            self._allowed = len(self._buffer)

    def _finish(self, failure: GrpcError | None) -> None:
        self._over = True
        self._failed = self._failed or failure
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


@dataclass(frozen=True, slots=True)
class _Address:
    """A Unix socket, or a host and port, and what requests call it."""

    path: str
    host: str
    port: int
    authority: str

    @classmethod
    def of(cls, target: str) -> "_Address":
        if target.startswith("unix-abstract:"):
            return cls("\0" + target.removeprefix("unix-abstract:"), "", 0, "localhost")
        if target.startswith("unix:"):
            return cls(unquote(target.removeprefix("unix:").removeprefix("//")), "", 0, "localhost")
        host, _, port = target.rpartition(":")
        return cls("", host.strip("[]"), int(port), target)


def _context(tls: GrpcTls) -> ssl.SSLContext:
    context = client_context(Endpoint(server="", ca=tls.ca), tls.certificate, tls.key)
    context.set_alpn_protocols(["h2"])
    return context


def _read(method: Method, data: bytes) -> Tree:
    try:
        return method.answer.read(data)
    except ValueError as error:
        raise GrpcError("INTERNAL", f"the answer is not what it should be: {error}") from None
