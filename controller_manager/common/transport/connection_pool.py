"""A pool of HTTP/1.1 client connections. Each carries one request at a time and returns the whole response.

The other features of an HTTP library (sessions, cookies, redirects, streams) took most of a request's CPU time.
"""

import asyncio
import socket
import ssl
from functools import partial
from typing import NamedTuple, cast

from controller_manager.common.api.wire import Response
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.response_parser import ResponseParser, ServerDisconnected
from controller_manager.common.transport.transport import TransportError

# Idle timeout in seconds; shorter than that of servers.
_IDLE = 15.0
# A request is retried only if the server disconnected within this many seconds; later the caller may not want it.
_SOON = 2.0
_SWITCHING = 101
_HANGING_UP = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


class ConnectionTarget(NamedTuple):
    """The address of a server. With `tls`, its certificate must be valid for `name` (default: `host`)."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str | None = None


class ClientConnection(asyncio.Protocol):
    """One connection; `open` is True while it can carry a request."""

    def __init__(self, largest_body: int | None = None) -> None:
        self.open = False
        self.idle_since = 0.0
        self._largest_body = largest_body
        self._answer = ResponseParser()
        self._stream: SocketStream | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._watched_until = 0.0
        self._patience = 0.0
        self._deadline: float | None = None
        self._heard = 0.0
        self._failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        waiting = self._waiting
        if waiting is None or waiting.done():
            self.drop()  # data without a request
            return
        self._heard = asyncio.get_running_loop().time()
        try:
            found = self._answer.feed(data)
        except TransportError as error:
            waiting.set_exception(error)
            return
        if found is not None:
            self.open = self.open and self._answer.reusable
            if found.status == _SWITCHING:
                self._stream = SocketStream(self._transport, self._answer.rest)
            waiting.set_result(found)

    def eof_received(self) -> None:
        """Called by the loop, which then closes the connection."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._end(error)

    async def send(
        self, request: bytes, read_timeout: float, deadline: float | None = None, *, may_switch: bool = False
    ) -> Response:
        """Return the response to a request, which may switch protocols if `may_switch`.

        Raises TimeoutError if no data arrives for `read_timeout` seconds, or if the response is not complete at
        `deadline` (loop time). After any exception, the connection cannot be used again.
        """
        if not self.open:  # it was closed right after it was opened
            raise self._failure or ServerDisconnected("the server hung up")
        loop = asyncio.get_running_loop()
        self._answer, self._waiting, self._heard = (
            ResponseParser(may_switch, self._largest_body),
            loop.create_future(),
            loop.time(),
        )
        self._patience, self._deadline = read_timeout, deadline
        self._watch()
        self._transport.write(request)
        try:
            return await self._waiting
        except BaseException:
            self.open = False
            raise

    async def upgrade(self, request: bytes, read_timeout: float) -> tuple[Response, SocketStream | None]:
        """Return the response to an upgrade request, and the stream if the status is 101."""
        return await self.send(request, read_timeout, may_switch=True), self._stream

    def drop(self) -> None:
        """Close the connection at once; a running request fails."""
        self._end(TransportError("the connection was closed"))
        self._transport.abort()

    def _end(self, error: Exception | None) -> None:
        """Handle the end of the input, which the server closed or an error broke."""
        self.open = False
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        self._failure = self._failure or error
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        try:
            found = self._answer.end()
        except ServerDisconnected as disconnected:
            waiting.set_exception(disconnected if error is None or isinstance(error, _HANGING_UP) else error)
        except TransportError as early:
            waiting.set_exception(error or early)
        else:
            if error is None:
                waiting.set_result(found)
            else:
                waiting.set_exception(error)

    def _watch(self) -> None:
        """Start the timer. An earlier timer of a previous request is reused, since timers are the most expensive part
        of a request.
        """
        due = self._due()
        if self._watchdog is not None:
            if self._watched_until <= due:
                return
            self._watchdog.cancel()
        self._watched_until = due
        self._watchdog = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        """Fail the request if its time is up."""
        self._watchdog = None
        if self._waiting is None or self._waiting.done():
            return
        if self._due() > asyncio.get_running_loop().time():
            self._watch()
        else:
            self._waiting.set_exception(TimeoutError())

    def _due(self) -> float:
        """Return when the request fails unless more data arrives."""
        silent = self._heard + self._patience
        return silent if self._deadline is None else min(silent, self._deadline)


class ConnectionPool:
    """Sends requests over pooled connections. At most `connections` requests run at once; further ones wait.

    A request fails after `connect` seconds without a connection, after `read_timeout` seconds without data, or if its
    response has more than `largest_body` bytes. Without a `dialer` connections are direct.
    """

    def __init__(
        self,
        connections: int,
        connect: float,
        read_timeout: float,
        largest_body: int | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        self._dialer = dialer
        self._connection = partial(ClientConnection, largest_body)
        self._slots = asyncio.Semaphore(connections)
        self._connect = connect
        self._read_timeout = read_timeout
        # Every connection is in one of these two.
        self._busy: set[ClientConnection] = set()
        self._idle: dict[ConnectionTarget, list[ClientConnection]] = {}
        # Upgraded connections; they are in neither of the two and do not count against `connections`.
        self._streams: set[SocketStream] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closings = 0

    async def send(
        self, origin: ConnectionTarget, request: bytes, *, idempotent: bool, deadline: float | None = None
    ) -> Response:
        """Return the response to a request. An `idempotent` one is retried if a pooled connection turns out to be
        closed.

        Raises OSError (including `TransportError`), and TimeoutError at `deadline` (loop time) at the latest.
        """
        clock, closings = asyncio.get_running_loop().time, self._closings
        if self._slots.locked():
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        else:
            await self._slots.acquire()  # at once
        try:
            kept, begun = self._kept(origin), clock()
            if kept is not None:
                try:
                    return await self._exchange(origin, kept, request, deadline)
                except ServerDisconnected:
                    if not idempotent or clock() - begun > _SOON:
                        raise
            return await self._exchange(origin, await self._open(origin, closings, deadline), request, deadline)
        finally:
            self._slots.release()

    async def upgrade(self, origin: ConnectionTarget, request: bytes) -> tuple[Response, SocketStream | None]:
        """Return the response to an upgrade request, and the stream if the status is 101.

        It has its own connection, which does not count against `connections`. Raises like `send`.
        """
        connection, stream = await self._open(origin, self._closings), None
        self._busy.add(connection)
        try:
            response, stream = await connection.upgrade(request, self._read_timeout)
        finally:
            self._busy.discard(connection)
            if connection.open:
                self._keep(origin, connection)
            elif stream is None:
                connection.drop()
        if stream is not None:
            self._streams.add(stream)
            stream.when_lost(partial(self._streams.discard, stream))
        return response, stream

    def close(self) -> None:
        """Close every connection. Running and waiting requests fail, and streams break."""
        self._closings += 1
        for stream in tuple(self._streams):
            stream.abort()
        for connection in (*self._busy, *(connection for idle in self._idle.values() for connection in idle)):
            connection.drop()
        self._idle.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    async def _open(self, origin: ConnectionTarget, closings: int, deadline: float | None = None) -> ClientConnection:
        """Open a connection for a request that began when `close` had been called `closings` times."""
        if closings == self._closings:
            connection = await self._reach(origin, deadline)
            if closings == self._closings:
                return connection
            connection.drop()
        raise TransportError("the connection was closed")

    async def _reach(self, origin: ConnectionTarget, deadline: float | None) -> ClientConnection:
        """Connect to the first address of a host that accepts; the addresses share the remaining time."""
        loop, name = asyncio.get_running_loop(), (origin.name or origin.host) if origin.tls else None
        end = loop.time() + self._connect
        end = end if deadline is None else min(end, deadline)
        if self._dialer is not None:
            async with asyncio.timeout_at(end):
                return await self._dial(self._dialer, origin, name)
        async with asyncio.timeout_at(end):
            found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        hosts = list(dict.fromkeys(str(address[0]) for *_, address in found))
        failures: list[OSError] = []
        for tried, host in enumerate(hosts):
            try:
                async with asyncio.timeout((end - loop.time()) / (len(hosts) - tried)):
                    _, connection = await loop.create_connection(
                        self._connection, host, origin.port, ssl=origin.tls, server_hostname=name
                    )
                return connection
            except OSError as failure:
                failures.append(failure)
        raise failures[0]

    async def _dial(self, dialer: Dialer, origin: ConnectionTarget, name: str | None) -> ClientConnection:
        dialed = await dialer.dial(origin.host, origin.port)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                self._connection, sock=dialed, ssl=origin.tls, server_hostname=name
            )
        except BaseException:
            dialed.close()
            raise
        return connection

    async def _exchange(
        self, origin: ConnectionTarget, connection: ClientConnection, request: bytes, deadline: float | None
    ) -> Response:
        self._busy.add(connection)
        try:
            return await connection.send(request, self._read_timeout, deadline)
        finally:
            self._busy.discard(connection)
            if connection.open:
                self._keep(origin, connection)
            else:
                connection.drop()

    def _kept(self, origin: ConnectionTarget) -> ClientConnection | None:
        """Return the idle connection that was used last, since it is most likely to be still open."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.open:
                return connection
        return None

    def _keep(self, origin: ConnectionTarget, connection: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(_IDLE, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were not used for the idle timeout."""
        loop = asyncio.get_running_loop()
        before = loop.time() - _IDLE
        for origin, idle in tuple(self._idle.items()):
            used = [connection for connection in idle if connection.open and connection.idle_since > before]
            for connection in idle:
                if connection not in used:
                    connection.drop()
            self._idle[origin] = used
            if not used:
                del self._idle[origin]
        self._sweeper = loop.call_later(_IDLE, self._sweep) if self._idle else None


def authority(origin: ConnectionTarget) -> str:
    """Return host and port in the form of a URL."""
    return f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
