"""An HTTP server on one address that calls `handle(Request) -> Response`.

Requests are parsed by `incoming`; responses are written as bytes.
"""

import asyncio
import math
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.wire import Request, Response, Upgrade, check_offered
from controller_manager.common.base.clock import wall_clock
from controller_manager.common.base.fair_loop import Slices
from controller_manager.common.base.tasks import spawn
from controller_manager.common.serving import http
from controller_manager.common.serving.body import Body, Budget
from controller_manager.common.serving.connection import ConnectionContext, ServerConnection
from controller_manager.common.serving.incoming import IncomingRequest
from controller_manager.common.serving.limits import Backlog, ConnectionLimiter
from controller_manager.common.serving.listening import Acceptor, CannotListen, ContextChoice, listen
from controller_manager.common.serving.trust import Roots
from controller_manager.common.transport.duplex import serve_upgrade

__all__ = ["CannotListen", "HTTPServer", "ServerLimits"]


class ServerLimits(msgspec.Struct, frozen=True):
    """The limits of a server: bytes of a request head and of a body, number of connections, and for all clients
    together bytes of incomplete heads and of unread responses.
    """

    head: int = 1024 * 1024
    body: int = 3 * 1024 * 1024
    connections: int = 10_000
    heads: int = 64 * 1024 * 1024
    backlog: int = 128 * 1024 * 1024


_LIMITS = ServerLimits()


class HTTPServer:
    """Serves `handle` on one address until stopped; bodies larger than `limits` are rejected with 413.

    A given `listener` may be shared with other processes.

    `tls` is one context for all connections, or chooses one per connection; None means plain HTTP.

    `handle` is called before the body is read, and reads it with `Request.received`. If it does not, the connection is
    closed after the response. An ApiError is sent as response; any other exception is logged and sent as 500. HEAD is
    passed as GET. The handler is cancelled when the client disconnects.
    """

    def __init__(
        self,
        handle: Callable[[Request], Awaitable[Response]],
        host: str,
        port: int,
        tls: ssl.SSLContext | ContextChoice | None,
        *,
        limits: ServerLimits = _LIMITS,
        share_port: bool = False,
        listener: socket.socket | None = None,
    ) -> None:
        self.port = port
        self._given = listener
        self._handle = handle
        self._host = host
        self._tls = tls
        self._limits = limits
        self._limiter = ConnectionLimiter(min(limits.connections, _files_for_clients()))
        self._budget = Budget(limits.body)
        self._backlog, self._heads = Backlog(limits.backlog), Backlog(limits.heads)
        self._share_port = share_port
        self._acceptor: Acceptor | None = None
        self._connections: dict[ServerConnection, asyncio.Task[None]] = {}
        self._streams: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._date = (0, "")
        self._wall = wall_clock()

    @property
    def held(self) -> int:
        """Bytes of bodies, incomplete heads and unread responses in memory."""
        return self._budget.held + self._heads.held + self._backlog.held

    @property
    def connections(self) -> int:
        """Return the number of connections, including unfinished handshakes and upgraded streams."""
        return len(self._limiter)

    async def start(self) -> None:
        """Start listening and set `port` to the port in use. Raises CannotListen."""
        listener = self._given or listen(self._host, self.port, share_port=self._share_port)
        self.port = listener.getsockname()[1]
        context = ConnectionContext(
            Roots(),
            self._limiter,
            self._backlog,
            self._heads,
            self._limits.head,
            Slices(asyncio.get_running_loop()),
        )
        connect = partial(ServerConnection, self._serve, self._begin, context)
        self._acceptor = Acceptor(listener, connect, self._choose, self._limiter, is_shared=self._given is not None)
        await self._acceptor.open()

    async def stop(self, grace: float = 10.0) -> None:
        """Accept no more connections, end streams and finish requests; after `grace` seconds close the rest."""
        self._stopping = True
        if self._acceptor is None:
            return
        await self._acceptor.close()
        for connection in tuple(self._connections):
            connection.finish()
        for stream in tuple(self._streams):
            stream.cancel()
        if self._connections:
            await asyncio.wait(self._connections.values(), timeout=grace / 2)
        left = dict(self._connections)
        for task in left.values():
            task.cancel()
        if left:
            await asyncio.wait(left.values(), timeout=grace / 2)
        for connection in left:
            connection.cut()
        self._acceptor = None

    def _begin(self, connection: ServerConnection) -> asyncio.Task[None]:
        """Start to serve a connection until it or the server ends."""
        task = self._connections[connection] = spawn(connection.run(), name="connection")
        task.add_done_callback(lambda _: self._connections.pop(connection))
        return task

    def _choose(self, address: str) -> ssl.SSLContext | None:
        return self._tls(address) if callable(self._tls) else self._tls

    async def _serve(self, connection: ServerConnection, incoming: IncomingRequest) -> bool:
        """Handle a request; return whether its connection may handle another."""
        content, body = incoming.body, None
        if content is not None:
            body = Body(incoming, content, connection.transport, self._limits.body, self._budget)
        connection.is_serving = True
        try:
            keep, request = incoming.may_stay, _request(incoming, connection, body)
            self._limiter.keep(connection)
            try:
                response = await self._handle(request)
            except errors.ApiError as error:
                response = http.refusal(error)
            if not isinstance(response.body, bytes):
                check_offered(request, response)
            if "connection" in response.headers and not isinstance(response.body, Upgrade):
                response, keep = _parted(response, keep=keep)
            # After a 401 the client needs a new connection to send another certificate. A body that the
            # handler did not read is not worth reading.
            unwanted = (content is not None and not content.has_ended) or (incoming.is_offer and connection.holds_more)
            keep = keep and not (unwanted or self._stopping or response.status == 401)
            connection.answering = True
            try:
                if isinstance(response.body, bytes):
                    framing = http.content_length(response.status, len(response.body))
                    head = self._head(response, framing, keep=keep)
                    sent = b"" if incoming.method == "HEAD" else response.body
                    if (waiting := connection.writer.write_whole(head, sent)) is not None:
                        await waiting
                elif isinstance(response.body, Upgrade):
                    await self._switch(connection, response, response.body)
                    return False
                else:
                    await self._send_stream(connection, incoming, response, response.body, keep=keep)
                if unwanted:
                    self._limiter.wait_for(connection)
                    await connection.part()
            except ConnectionError:
                return False
            connection.answering = False
            return keep
        finally:
            if body is not None:
                body.release()
            connection.is_serving = False
            self._limiter.wait_for(connection)

    async def _switch(self, connection: ServerConnection, response: Response, upgrade: Upgrade) -> None:
        """Respond with 101 and run an upgrade until it ends or `stop` ends it."""
        headers = {**response.headers, "upgrade": upgrade.protocol}
        head = http.head(101, headers, self._date_line(), http.SWITCHING, keep=True)
        task = asyncio.current_task()
        assert task is not None
        stream = connection.switch(head)
        self._streams.add(task)
        try:
            await serve_upgrade(upgrade, stream)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            task.uncancel()  # stop() ended the stream: the client gets the written data
            await stream.aclose()
        finally:
            self._streams.discard(task)
            stream.release()

    async def _send_stream(
        self,
        connection: ServerConnection,
        incoming: IncomingRequest,
        response: Response,
        body: AsyncIterator[bytes],
        *,
        keep: bool,
    ) -> None:
        chunked = incoming.version == "1.1"
        until = getattr(body, "ends_at", math.inf)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            framing = http.CHUNKED if chunked else http.UNTIL_CLOSE
            connection.writer.open_transport().write(self._head(response, framing, keep=keep))
            if incoming.method != "HEAD":
                await connection.writer.write_chunks(body, until, chunked=chunked)
        except asyncio.CancelledError:
            if not self._stopping or connection.transport is None:
                raise
            task.uncancel()  # stop() ended the stream: the client gets a regular end
        finally:
            self._streams.discard(task)
            aclose = getattr(body, "aclose", None)
            if aclose is not None:
                await aclose()
        if chunked and incoming.method != "HEAD":
            connection.writer.open_transport().write(http.LAST_CHUNK)
            await connection.writer.drained(0, until)

    def _head(self, response: Response, framing: str, *, keep: bool) -> bytes:
        date, repeated = self._date_line(), response.repeated
        return http.head(response.status, response.headers, date, framing, keep=keep, repeated=repeated)

    def _date_line(self) -> str:
        second = int(self._wall())
        if second != self._date[0]:
            self._date = (second, http.date_line(second))
        return self._date[1]


def _request(incoming: IncomingRequest, connection: ServerConnection, body: Body | None) -> Request:
    path, query = http.parse_target(incoming.target)
    is_head = incoming.method == "HEAD"
    return Request(
        "GET" if is_head else incoming.method, path, query, incoming.headers, b"", connection.certificate,
        incoming.repeated, body, incoming.target, connection.remote, is_head,
    )  # fmt: skip


def _parted(response: Response, *, keep: bool) -> tuple[Response, bool]:
    """Return a response without its Connection header, and whether the connection may handle another request."""
    headers = {name: value for name, value in response.headers.items() if name != "connection"}
    return replace(response, headers=headers), keep and response.headers["connection"] != "close"


def _files_for_clients() -> float:
    """Return a number of connections that leaves enough file descriptors for the rest of the process."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if most == resource.RLIM_INFINITY else most * 3 // 4
