"""A server connection, which handles one request after the other.

It uses aiohttp's parser for heads and bodies, but not aiohttp's server, which needs two tasks and three loop
iterations per request; that costs as much as most responses. Here a connection has one task, and a request needs one
iteration. Responses are written by `response_writer`.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import msgspec
from aiohttp import EMPTY_PAYLOAD, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError
from aiohttp.tcp_helpers import tcp_keepalive

from controller_manager.common.api import errors
from controller_manager.common.api.wire import Certificate
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.fair_loop import Slices
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving import http
from controller_manager.common.serving.client_stream import ClientStream
from controller_manager.common.serving.incoming import HEAD_END, SPACE, HeadScanner, IncomingRequest, UnreadableBody
from controller_manager.common.serving.limits import Backlog, ConnectionLimiter
from controller_manager.common.serving.response_writer import ResponseWriter
from controller_manager.common.serving.trust import Roots, digest
from controller_manager.common.transport.duplex import LIMIT

_IDLE_TIMEOUT = 300.0  # seconds to wait for the next request
_HEAD_TIMEOUT = 32.0  # seconds to receive a request head
_FAREWELL = 0.5  # seconds for the client to read its response before the connection is reset
_FRAMING = 512 * 1024  # bytes of chunk framing allowed beyond twice the size of the body
_UNREAD = 8 * 1024  # buffered bytes of a body before it is read; aiohttp may hold about twice that
_LINE_LIMIT = 64 * 1024  # bytes of a request line or header
_HEADERS = 2000  # the groups of a user come in one header each; the total size has a separate limit
_QUOTED = re.compile(r":?\s*(?:\n|b?['\"])")  # start of the quoted data in an error message of aiohttp
_MOST_WAITING = 32  # pipelined requests


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


class ServerConnection(BaseProtocol):
    """A connection. It stores the client certificate and handles each request with `serve`.

    When it is opened, it calls `arrived`, registers with the limiter of the `context`, and `start` runs it in a task.
    It is closed if a request head is too large or too slow (this includes the wait for the first request), or if the
    client does not read a response in time.

    Bytes after the head of a request that may offer an upgrade are held until it is known whether they belong to HTTP.
    """

    __slots__ = (
        *("_arrived", "_body", "_body_bytes", "_clock", "_context", "_create_waiter", "_head", "_head_bytes"),
        *("_head_timer", "_held", "_idle_since", "_idle_timer", "_is_closing", "_is_full", "_is_plain", "_reader"),
        *("_requests", "_serve", "_slices", "_start", "_stopped", "_task", "_waiter", "answering", "certificate"),
        *("is_serving", "may_switch", "remote", "writer"),
    )
    is_serving: bool  # a request is being handled
    answering: bool  # a response is being written
    may_switch: bool  # the current request may switch protocols
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
        self._reader = HttpRequestParser(
            self,
            loop,
            _UNREAD,
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
            max_headers=_HEADERS,
            payload_exception=UnreadableBody,
            auto_decompress=False,
            max_msg_queue_size=_MOST_WAITING,
        )
        super().__init__(loop, self._reader)
        self._clock = loop.time
        self._create_waiter = loop.create_future
        self._serve = serve
        self._start = start
        self._arrived = arrived
        self._context = context
        self._slices = context.slices
        self.writer = ResponseWriter(context.backlog, context.slices)
        self._requests: deque[tuple[RawRequestMessage, StreamReader] | HttpProcessingError] = deque()
        self._waiter: asyncio.Future[None] | None = None  # for the next request
        self._task: asyncio.Task[None] | None = None
        self._is_full = False  # whether reading is paused because too many requests are queued
        self._is_closing = False
        self._idle_since = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self.answering = False
        self.certificate = None
        self.remote = ""
        self._body: StreamReader = EMPTY_PAYLOAD  # body of the current request
        self._body_bytes = 0  # received, including framing
        self._head_bytes = 0  # bytes of an incomplete head
        self._head_timer: asyncio.TimerHandle | None = None
        self._head = HeadScanner()  # for an incomplete head
        self._is_plain = True  # whether nothing is held and no head is incomplete
        self._held: bytearray | None = None  # bytes after an upgrade offer
        self.may_switch = False
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
        super().connection_made(transport)
        self.writer.open(transport)
        tcp_keepalive(transport)
        self._await_head()
        self._idle_timer = asyncio.get_running_loop().call_later(_IDLE_TIMEOUT, self._end_if_idle)
        self._task = self._start(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Clean up; the running request is cancelled."""
        self._context.limiter.leave(self)
        self._head_complete()
        self.writer.close()
        self.writer.resume()  # writers that wait for the client get an error
        task, self._task = self._task, None
        if task is None:
            return
        self._is_closing = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._body.is_eof():
            self._body.set_exception(ConnectionResetError("the client is gone"))
        if task is not asyncio.current_task():
            task.cancel()
        super().connection_lost(exc)
        super().__init__(asyncio.get_running_loop())  # drop the parser, which refers to this connection

    def pause_writing(self) -> None:
        """Called by the loop."""
        super().pause_writing()
        self.writer.pause()

    def resume_writing(self) -> None:
        """Called by the loop."""
        super().resume_writing()
        self.writer.resume()

    async def run(self) -> None:
        """Handle requests one after the other until the connection ends."""
        self.writer.enter()
        try:
            while (incoming := await self._next()) is not None:
                content = incoming.content
                try:
                    keep = await self._serve(self, incoming)
                except Exception:  # noqa: BLE001  # error of a handler: respond with 500 and close the connection
                    get_logger("site").exception("a request failed", path=incoming.message.path)
                    if not self.answering:
                        self._refuse(errors.InternalError("an internal error occurred"))
                    break
                if not keep or self._is_closing or not content.is_eof():
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
        """Ignore further input and close the connection after the current response."""
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
        if isinstance(found, HttpProcessingError):
            self._refuse(errors.BadRequest(f"the request is not valid HTTP: {_reason(found)}"))
            return None
        self._reader.message_consumed()
        if self._is_full and len(self._requests) <= _MOST_WAITING // 2:
            self._refill()
        return IncomingRequest(self, *found)

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
        """Process input: data that is not part of a body is a request head."""
        if (
            self._is_plain
            and self._body is EMPTY_PAYLOAD
            and data.endswith(HEAD_END)
            and data[0] > SPACE
            and b"pgrade" not in data
            and b"PGRADE" not in data
        ):  # the usual case of one complete head: nothing to count or to hold
            self._parse(data)
        elif not self._stopped:
            self._receive(data)

    def _parse(self, data: bytes) -> None:
        """Parse input: heads become requests, and bodies are passed to their readers."""
        if self._is_closing:
            return
        requests = self._requests
        try:
            messages, has_left_http, _ = self._reader.feed_data(data)
            requests.extend(messages)
            self._slices.arrived += 1
            self._is_closing = has_left_http  # input after an upgrade offer is held, or ignored if the offer is invalid
        except HttpProcessingError as error:
            requests.append(error)
            self._is_closing = True
        if requests and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if len(requests) >= _MOST_WAITING and not self._is_full:
            self._is_full = True
            self._pause()

    def _refill(self) -> None:
        """Resume reading after requests have left the queue."""
        self._is_full = False
        self.data_received(b"")
        if not self._is_full:
            self._resume()

    def _receive(self, data: bytes) -> None:
        if self._held is not None:
            self._hold(data)
        elif not self._body.is_eof():
            self._parse(data)
            self._head.restart()
            self._is_plain = True
            self._count_body(len(data))
        elif data:
            self._read_head(data)
        else:
            self._parse(data)

    def _read_head(self, data: bytes) -> None:
        """Count input until the head is complete, and hold the bytes after a head that may offer an upgrade."""
        head = self._head
        end = head.find_end(data)
        if end is None:
            self._is_plain = False
            self._parse(data)
            self._count_head(len(data))
        elif not head.may_offer:
            self._is_plain = not head.seam
            self._parse(data)
        else:
            self._is_plain = False
            head.restart()
            self._held = bytearray()
            self._parse(data[:end])
            self._hold(data[end:])

    def _hold(self, data: bytes) -> None:
        assert self._held is not None
        self._held += data
        if len(self._held) >= LIMIT:
            self._pause()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        self._context.heads.remove(self)
        self._context.heads.add(self, self._head_bytes, self.cut)
        if self._head_bytes > self._context.head_limit:
            self.force_close()
        elif self._head_timer is None:
            self._await_head()

    def _count_body(self, size: int) -> None:
        self._body_bytes += size
        if self._body_bytes > _FRAMING + 2 * self._body.total_bytes and self._body.exception() is None:
            self._body.set_exception(UnreadableBody("the chunk framing is much larger than the content"))
            self.stop_reading()

    def begin(self, incoming: IncomingRequest) -> None:
        """Start to handle a request whose head is complete."""
        self.is_serving = True
        if self._head_timer is not None or self._head_bytes:
            self._head_complete()
        self._body, self._body_bytes = incoming.content, 0
        if self._held is not None:
            self._settle(incoming)

    def _settle(self, incoming: IncomingRequest) -> None:
        """Keep the held bytes if the request offers an upgrade; parse them otherwise."""
        assert self._held is not None
        self.may_switch = incoming.is_offer
        if not self.may_switch:
            held, self._held, self._is_plain = bytes(self._held), None, True
            if len(held) >= LIMIT:
                self._resume()
            if held:
                self.data_received(held)

    @property
    def holds_more(self) -> bool:
        """Return whether the client has sent data after an upgrade offer."""
        return bool(self._held)

    def switch(self, head: bytes) -> ClientStream:
        """Write `head` and leave HTTP: the stream gets the held bytes and all further data.

        Raises ConnectionError if the client has disconnected.
        """
        transport, held = self.transport, bytes(self._held or b"")
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._held = None
        transport.write(head)
        return ClientStream(transport, held, self._context.backlog, partial(self.connection_lost, None))

    def stop_reading(self) -> None:
        """Ignore further input; the connection ends with the current response."""
        self._stopped, self._is_plain = True, False
        self._held = None
        self.close()
        self._pause()

    async def part(self) -> None:
        """Close without reading further input, after a short time for the client to read its response."""
        self.stop_reading()
        await asyncio.sleep(_FAREWELL)
        self.cut()

    def cut(self) -> None:
        """Close the connection at once."""
        self.writer.cut()

    def _pause(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def _await_head(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(_HEAD_TIMEOUT, self._head_overdue)

    def _head_complete(self) -> None:
        if self._head_bytes:
            self._head_bytes = 0
            self._context.heads.remove(self)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

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


def _reason(error: HttpProcessingError) -> str:
    """Return an error about a request without the data that aiohttp quotes, which may hold credentials."""
    if isinstance(error, InvalidURLError):
        return "the target is not a URL"
    return _QUOTED.split(error.message, 1)[0]
