"""A server connection, which handles one request after the other.

A connection has one task, and a request needs one iteration of the loop. Requests are parsed by `incoming`, responses
are written by `response_writer`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.api.wire import Certificate
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.fair_loop import Slices
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving import http
from controller_manager.common.serving.client_stream import ClientStream
from controller_manager.common.serving.incoming import IncomingRequest, RequestParser
from controller_manager.common.serving.limits import Backlog, ConnectionLimiter
from controller_manager.common.serving.response_writer import ResponseWriter
from controller_manager.common.serving.trust import Roots, digest

_IDLE_TIMEOUT = 300.0  # seconds to wait for the next request
_HEAD_TIMEOUT = 32.0  # seconds to receive a request head
_FAREWELL = 0.5  # seconds for the client to read its response before the connection is reset


Serve = Callable[["ServerConnection", IncomingRequest], Awaitable[bool]]
"""Handles a request; returns whether the connection may handle another one."""


class ConnectionContext(msgspec.Struct, frozen=True):
    """Objects that all connections of a server share; `head_limit` is the maximum size of a request head."""

    roots: Roots
    limiter: ConnectionLimiter
    backlog: Backlog  # responses not read by clients
    heads: Backlog  # incomplete request heads
    head_limit: int
    slices: Slices


class ServerConnection(asyncio.Protocol):
    """A connection. It stores the client certificate and handles each request with `serve`.

    When it is opened, it calls `arrived`, registers with the limiter of the `context`, and `start` runs it in a task.
    It is closed if a request head is too large or too slow (this includes the wait for the first request), or if the
    client does not read a response in time.
    """

    __slots__ = (
        *("_arrived", "_clock", "_context", "_create_waiter", "_head_timer", "_idle_since", "_idle_timer"),
        *("_is_closing", "_is_paused", "_parser", "_requests", "_serve", "_slices", "_start", "_stopped", "_task"),
        *("_waiter", "answering", "certificate", "is_serving", "remote", "transport", "writer"),
    )
    transport: asyncio.Transport | None
    is_serving: bool  # a request is being handled
    answering: bool  # a response is being written
    certificate: Certificate | None
    remote: str  # address of the client

    def __init__(
        self,
        serve: Serve,
        start: Callable[["ServerConnection"], asyncio.Task[None]],
        context: ConnectionContext,
        arrived: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.transport = None
        self._parser = RequestParser(self._proceed)
        self._requests = self._parser.requests
        self._clock = loop.time
        self._create_waiter = loop.create_future
        self._serve = serve
        self._start = start
        self._arrived = arrived
        self._context = context
        self._slices = context.slices
        self.writer = ResponseWriter(context.backlog, context.slices)
        self._waiter: asyncio.Future[None] | None = None  # for the next request
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False  # whether reading is paused because the parser is full
        self._is_closing = False
        self._idle_since = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self.answering = False
        self.certificate = None
        self.remote = ""
        self._head_timer: asyncio.TimerHandle | None = None
        self.is_serving = False
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start after the TLS handshake."""
        transport = cast("asyncio.Transport", transport)
        self._arrived()
        self._context.limiter.enter(self, transport.abort)
        if peer := transport.get_extra_info("peercert"):
            connection = transport.get_extra_info("ssl_object")
            shown = digest(connection.getpeercert(binary_form=True) or b"")
            self.certificate = http.certificate_of(peer, self._context.roots.of(connection), shown)
        if address := transport.get_extra_info("peername"):
            self.remote = str(address[0])
        self.transport = transport
        self.writer.open(transport)
        self._await_head()
        self._idle_timer = asyncio.get_running_loop().call_later(_IDLE_TIMEOUT, self._end_if_idle)
        self._task = self._start(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Clean up; the running request is cancelled."""
        self._context.limiter.leave(self)
        self._count_head(0)
        self.writer.close()
        self.writer.resume()  # writers that wait for the client get an error
        task, self._task = self._task, None
        if task is None:
            return
        self._is_closing = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.transport, self._stopped, self._is_paused = None, True, False
        self._parser.close()
        if task is not asyncio.current_task():
            task.cancel()

    def pause_writing(self) -> None:
        """Called by the loop."""
        self.writer.pause()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self.writer.resume()

    async def run(self) -> None:
        """Handle requests one after the other until the connection ends."""
        self.writer.enter()
        try:
            while (incoming := await self._next()) is not None:
                try:
                    keep = await self._serve(self, incoming)
                except Exception:  # noqa: BLE001  # error of a handler: respond with 500 and close the connection
                    get_logger("site").exception("a request failed", path=incoming.target)
                    if not self.answering:
                        self._refuse(errors.InternalError("an internal error occurred"))
                    break
                if not keep or self._is_closing:
                    break
                self._idle_since = self._clock()
                if self._requests:
                    await asyncio.sleep(0)  # let other connections run between pipelined requests
        finally:
            self.force_close()

    def finish(self) -> None:
        """Accept no more requests; close the connection after the current response."""
        self.close()
        if not self.is_serving and not self._requests:
            self.force_close()

    def close(self) -> None:
        """Close the connection after the current response."""
        self._is_closing = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def force_close(self) -> None:
        """Close the connection after the client has read the written data."""
        self.close()
        transport, self.transport = self.transport, None
        self.writer.close()
        if transport is not None:
            transport.close()

    async def _next(self) -> IncomingRequest | None:
        """Return the next request; None if there is none."""
        while not self._requests:
            if self._is_closing:
                return None
            self._waiter = self._create_waiter()
            try:
                await self._waiter
            finally:
                self._waiter = None
        found = self._requests.popleft()
        if not self._requests:
            self._proceed()
        if isinstance(found, str):
            self._refuse(errors.BadRequest(f"the request is not valid HTTP: {found}"))
            return None
        return found

    def _refuse(self, error: errors.ApiError) -> None:
        """Respond with an error to a request without or with a failed handler, as the last response."""
        if self.transport is None:
            return
        refusal = http.refusal(error)
        body = cast("bytes", refusal.body)
        framing = http.content_length(refusal.status, len(body))
        head = http.head(refusal.status, refusal.headers, http.date_line(wall_seconds()), framing, keep=False)
        self.transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if not self._stopped:
            self._slices.arrived += 1
            self._parser.feed(data)
            self._parsed()

    def _proceed(self) -> None:
        """Parse input that was put off, now that there is room for it."""
        if self._is_paused and not self._stopped:
            self._parser.proceed()
            self._parsed()

    def _parsed(self) -> None:
        """Start the next request, count an incomplete head, and pause or resume the client."""
        parser = self._parser
        if self._requests and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if parser.head_size or self._head_timer is not None:
            self._count_head(parser.head_size)
        if parser.is_full is not self._is_paused:
            self._pause(is_full=not self._is_paused)

    def _count_head(self, size: int) -> None:
        self._context.heads.remove(self)
        if size > self._context.head_limit:
            self.force_close()
        elif size:
            self._context.heads.add(self, size, self.cut)
            if self._head_timer is None:
                self._await_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @property
    def holds_more(self) -> bool:
        """Return whether the client has sent data after an upgrade offer."""
        return bool(self._parser.held)

    def switch(self, head: bytes) -> ClientStream:
        """Write `head` and leave HTTP: the stream gets the held bytes and all further data.

        Raises ConnectionError if the client has disconnected.
        """
        transport, held = self.transport, bytes(self._parser.held or b"")
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        transport.write(head)
        return ClientStream(transport, held, self._context.backlog, partial(self.connection_lost, None))

    async def part(self) -> None:
        """Close without reading further input, after a short time for the client to read its response."""
        self._stopped = True
        self.close()
        self._pause(is_full=True)
        await asyncio.sleep(_FAREWELL)
        self.cut()

    def cut(self) -> None:
        """Close the connection at once."""
        self.writer.cut()

    def _pause(self, *, is_full: bool) -> None:
        self._is_paused = is_full
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading() if is_full else self.transport.resume_reading()

    def _await_head(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(_HEAD_TIMEOUT, self._head_overdue)

    def _head_overdue(self) -> None:
        if self.is_serving:  # pipelined; the previous response is not complete
            self._await_head()
        else:
            self.force_close()

    def _end_if_idle(self) -> None:
        now = self._clock()
        since = now if self.is_serving else self._idle_since
        if now < since + _IDLE_TIMEOUT:
            self._idle_timer = asyncio.get_running_loop().call_at(since + _IDLE_TIMEOUT, self._end_if_idle)
        else:
            self.force_close()
