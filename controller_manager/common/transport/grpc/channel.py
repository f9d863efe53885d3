"""Connections to a gRPC server, and calls over them.

Messages are dictionaries, encoded and decoded by our own tables.
"""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import unquote

import msgspec

from controller_manager.common.api.protobuf.services import Service
from controller_manager.common.api.tree import Tree
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.grpc.call import UnaryCall, framed, read_answer
from controller_manager.common.transport.grpc.failures import GrpcError
from controller_manager.common.transport.grpc.stream import GrpcStream
from controller_manager.common.transport.http2 import Http2Connection, Http2Error, header_block
from controller_manager.common.transport.transport import ConfigError, Endpoint, client_context

LARGEST = 4 << 20
"""Maximum bytes of a received message, unless a channel sets another limit."""
Metadata = tuple[tuple[str, str], ...]
"""Names and values sent with a call."""
LOOKAHEAD = 64 * 1024
"""Bytes of a stream buffered for their reader, unless a channel sets another limit."""
_CONNECTED_IN = 10.0  # seconds
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds without connection attempts after a failure; doubled each time


@dataclass(frozen=True, slots=True)
class GrpcTls:
    """TLS settings of a connection (PEM). An empty `ca` means the CA certificates of the system. The server's
    certificate must be valid for `server_name`, or else for the host of the target.
    """

    ca: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    server_name: str = ""


class GrpcChannel:
    """Connections to one server: `unix:///path`, `unix-abstract:name` or `host:port`. They are plaintext without `tls`.

    It connects on first use, through `dialer` if given, and reconnects when a connection is lost. After a failed
    attempt, calls fail at once for at most two seconds. Received messages are limited to `largest` bytes (-1:
    unlimited). While calls are running, a connection without data for `keepalive` seconds is pinged and gets as many
    seconds to respond (0: no keepalive).
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
        self._refused: tuple[float, GrpcError] | None = None  # end of the pause, and the error
        self._closed = False

    async def unary(
        self, service: Service, method: str, message: Tree, timeout: float, metadata: Metadata = ()
    ) -> Tree:
        """Return the response to a message within `timeout` seconds. Raises `GrpcError`."""
        called = service[method]
        body = called.request.write(message)
        headers = self._headers(called.path, (("grpc-timeout", f"{max(1, int(timeout * 1000))}m"), *metadata))
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        connection = self._connection
        if connection is None or not connection.has_room:
            connection = await self._connected_within(timeout)
        call = UnaryCall(self.largest)
        timer = loop.call_at(end, call.expire)
        try:
            call.stream = connection.request(headers, call, framed(body), end=True)
            answer = await call.answer
        finally:
            timer.cancel()
            call.close()
        return read_answer(called, answer)

    def stream(self, service: Service, method: str, metadata: Metadata = ()) -> GrpcStream:
        """Start a call with messages in both directions; it runs until it is closed."""
        called = service[method]
        return GrpcStream(called, self._headers(called.path, metadata), self._connected, self.largest)

    async def close(self, grace: float = 0.0) -> None:
        """Close the connections; calls still running after `grace` seconds fail."""
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
                return await self._connected()
        except TimeoutError:
            why = f"failed to connect to {self.target} within {seconds:g} s"
            raise GrpcError("UNAVAILABLE", why, unsent=True) from None

    async def _connected(self) -> Http2Connection:
        """Return a connection that accepts a call. Raises `GrpcError`."""
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
        """Return the connection that another task has opened meanwhile, or open one. Raises `GrpcError`."""
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


class _Address(msgspec.Struct, frozen=True):
    """A Unix socket, or host and port, and the `authority` of requests."""

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
