"""A pool of HTTP/1.1 client connections (`client_connection.py`).

It takes less than half of the CPU time of aiohttp's client.
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from controller_manager.common.api.wire import Response
from controller_manager.common.transport.client_connection import ClientConnection, ResponseBody, StreamedRequest
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.response_parser import ServerDisconnected
from controller_manager.common.transport.transport import TransportError, UnaskedUpgrade

# Idle timeout in seconds; shorter than that of servers.
_IDLE = 15.0
# A request is retried only if the server disconnected within this many seconds; later the caller may not want it.
_SOON = 2.0


class ConnectionTarget(NamedTuple):
    """The address of a server. With `tls`, its certificate must be valid for `name` (default: `host`)."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str | None = None


Send = Callable[[ClientConnection], Awaitable[Response]]


class ConnectionPool:
    """Sends requests over pooled connections. At most `connections` requests run at once; further ones wait.

    A request fails after `connect` seconds without a connection, after `read_timeout` seconds without data, or if its
    response has more than `largest_body` bytes. Without a `dialer` connections are direct. Streamed responses have none
    of these limits but the first; at most `to_one` run at once for one origin.
    """

    def __init__(
        self,
        connections: int,
        connect: float,
        read_timeout: float,
        largest_body: int | None = None,
        dialer: Dialer | None = None,
        to_one: int = sys.maxsize,
    ) -> None:
        self._dialer = dialer
        self._connection = partial(ClientConnection, largest_body)
        self._slots = asyncio.Semaphore(connections)
        self._to_one = to_one
        self._slots_to: WeakValueDictionary[ConnectionTarget, asyncio.Semaphore] = WeakValueDictionary()
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
        closings = self._closings
        if self._slots.locked():
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        else:
            await self._slots.acquire()  # at once
        try:
            send = partial(ClientConnection.send, request=request, read_timeout=self._read_timeout, deadline=deadline)
            return await self._attempt(origin, send, idempotent, closings, deadline)
        finally:
            self._slots.release()

    async def stream(self, origin: ConnectionTarget, request: StreamedRequest) -> Response:
        """Return the response when its body begins, which is then a stream; b"" if the status allows none. Retries like
        `send`.

        Raises OSError, and TimeoutError after `connect` seconds without a connection.
        """
        closings, deadline = self._closings, asyncio.get_running_loop().time() + self._connect
        with ExitStack() as slots:
            async with asyncio.timeout_at(deadline):
                for slot in (self._slots_to.setdefault(origin, asyncio.Semaphore(self._to_one)), self._slots):
                    await slot.acquire()
                    slots.callback(slot.release)
            send = partial(ClientConnection.stream, request=request)
            response = await self._attempt(origin, send, request.idempotent, closings, deadline)
            if isinstance(response.body, ResponseBody):
                response.body.when_done(slots.pop_all().close)
            return response

    async def upgrade(
        self, origin: ConnectionTarget, request: bytes, protocols: Sequence[str]
    ) -> tuple[Response, SocketStream | None]:
        """Return the response to a request that offers `protocols`, and the stream if the status is 101.

        It has its own connection, which does not count against `connections`. Raises like `send`.
        """
        connection = await self._open(origin, self._closings)
        send = partial(ClientConnection.send, request=request, read_timeout=self._read_timeout, may_switch=True)
        response, stream = await self._exchange(origin, connection, send), connection.upgraded
        if stream is not None and response.headers.get("upgrade", "").lower() not in protocols:
            stream.abort()
            raise UnaskedUpgrade
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
                dialed = await self._dialer.dial(origin.host, origin.port)
                _, connection = await loop.create_connection(  # which closes the socket if it fails
                    self._connection, sock=dialed, ssl=origin.tls, server_hostname=name
                )
                return connection
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

    async def _attempt(
        self, origin: ConnectionTarget, send: Send, idempotent: bool, closings: int, deadline: float | None
    ) -> Response:
        """Send over an idle connection, else a new one; an idempotent request over a new one if the idle one turns out
        to be closed.
        """
        clock = asyncio.get_running_loop().time
        kept, begun = self._kept(origin), clock()
        if kept is not None:
            try:
                return await self._exchange(origin, kept, send)
            except ServerDisconnected:
                if not idempotent or clock() - begun > _SOON:
                    raise
        return await self._exchange(origin, await self._open(origin, closings, deadline), send)

    async def _exchange(self, origin: ConnectionTarget, connection: ClientConnection, send: Send) -> Response:
        self._busy.add(connection)
        try:
            return await send(connection)
        finally:
            if connection.streams:
                connection.when_done(partial(self._free, origin, connection))
            else:
                self._free(origin, connection)

    def _free(self, origin: ConnectionTarget, connection: ClientConnection) -> None:
        self._busy.discard(connection)
        if connection.open:
            self._keep(origin, connection)
        elif connection.upgraded is None:
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
