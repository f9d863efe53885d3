"""One connection of a server: its requests, one after the other.

aiohttp's parser reads heads and bodies. Its server takes two tasks and three turns of the loop for each request around
that, which is as much as most answers take: here a connection has one task, and a request one turn. Answers are written
by `response_writer`.
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

_IDLE_TIMEOUT = 300.0  # seconds a connection may wait for its next request
_HEAD_TIMEOUT = 32.0  # seconds it may take to arrive
_FAREWELL = 0.5  # seconds a client has to read its answer before a connection is reset
_FRAMING = 512 * 1024  # bytes on the wire that a body may have beyond twice its size
_UNREAD = 8 * 1024  # bytes of a body that are held before anybody wants them, and about twice that
_LINE_LIMIT = 64 * 1024  # bytes of a request line or one header
_HEADERS = 2000  # a user's groups come in one header each; the bytes of all are bounded below
_QUOTED = re.compile(r":?\s*(?:\n|b?['\"])")  # where a message of aiohttp begins to quote
_MOST_WAITING = 32  # requests that came before the answer to an earlier one


Serve = Callable[["ServerConnection", IncomingRequest], Awaitable[bool]]
"""Answers a request; returns whether the connection may have another one."""


class ConnectionContext(msgspec.Struct, frozen=True):
    """What the connections of a server share, and the bytes that the head of a request may have."""

    roots: Roots
    limiter: ConnectionLimiter
    backlog: Backlog  # of answers that are not taken
    heads: Backlog  # unfinished ones
    head_limit: int
    slices: Slices
    framing: http.Framing


class ServerConnection(BaseProtocol):
    """One connection: remembers the client's certificate, and has each request answered by `serve`.

    When it begins, `arrived` is called, the limiter of the `context` counts it, and `start` has it `run`. It ends when
    the head of a request has too many bytes or takes too long, the wait for the first one included; and when its client
    does not take an answer in time.

    Behind the head of a request that may offer another protocol, bytes are held until it is known whose they are.
    """

    __slots__ = (
        *("_arrived", "_body", "_body_bytes", "_clock", "_context", "_create_waiter", "_head", "_head_bytes"),
        *("_head_timer", "_held", "_idle_since", "_idle_timer", "_is_closing", "_is_full", "_is_plain", "_reader"),
        *("_requests", "_serve", "_slices", "_start", "_stopped", "_task", "_waiter", "answering", "certificate"),
        *("is_serving", "may_switch", "remote", "writer"),
    )
    is_serving: bool  # a request, whose answer is being made
    answering: bool  # from the first byte of an answer to its last
    may_switch: bool  # to another protocol, behind the request that is being served
    certificate: Certificate | None
    remote: str  # the address of the client

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
        self.writer = ResponseWriter(context.backlog, context.slices, context.framing)
        self._requests: deque[tuple[RawRequestMessage, StreamReader] | HttpProcessingError] = deque()
        self._waiter: asyncio.Future[None] | None = None  # for the next of them
        self._task: asyncio.Task[None] | None = None
        self._is_full = False  # whether no more of them are read
        self._is_closing = False
        self._idle_since = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self.answering = False
        self.certificate = None
        self.remote = ""
        self._body: StreamReader = EMPTY_PAYLOAD  # of the request that is being served
        self._body_bytes = 0  # as they came, with their framing
        self._head_bytes = 0  # of a head that has not come whole
        self._head_timer: asyncio.TimerHandle | None = None
        self._head = HeadScanner()  # of such a head
        self._is_plain = True  # whether nothing is held, and no head has come in part
        self._held: bytearray | None = None  # what came behind an offer
        self.may_switch = False
        self.is_serving = False
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the handshake is over."""
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
        """End, whoever wanted it; what is being answered is cancelled."""
        self._context.limiter.leave(self)
        self._head_complete()
        self.writer.close()
        self.writer.resume()  # whoever waits for the client learns that it is gone
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
        super().__init__(asyncio.get_running_loop())  # the parser, which knows this connection, is kept no longer

    def pause_writing(self) -> None:
        """Called by the loop."""
        super().pause_writing()
        self.writer.pause()

    def resume_writing(self) -> None:
        """Called by the loop."""
        super().resume_writing()
        self.writer.resume()

    async def run(self) -> None:
        """Have requests answered, one after the other, until the connection ends."""
        self.writer.enter()
        try:
            while (incoming := await self._next()) is not None:
                content = incoming.content
                try:
                    keep = await self._serve(self, incoming)
                except Exception:  # noqa: BLE001  # of a handler: its client is told, and the connection ends
                    get_logger("site").exception("a request failed", path=incoming.message.path)
                    if not self.answering:
                        self._refuse(errors.InternalError("an internal error occurred"))
                    break
                if not keep or self._is_closing or not content.is_eof():
                    break
                self._idle_since = self._clock()
                if self._requests:
                    await asyncio.sleep(0)  # whoever sends many at once is not alone
        finally:
            self.force_close()

    def finish(self) -> None:
        """Take no more requests: the connection ends when what is being answered is."""
        self.close()
        if not self.is_serving and not self._requests:
            self.force_close()

    def close(self) -> None:
        """Look at nothing more that comes, and end behind the answer that is being made."""
        self._is_closing = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def force_close(self) -> None:
        """End once the client has taken what was written."""
        self.close()
        transport, self.transport = self.transport, None
        self.writer.close()
        if transport is not None:
            transport.close()

    async def _next(self) -> IncomingRequest | None:
        """Return the next request; None if none will come."""
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
        """Answer what never reaches a handler, or failed there, as the last thing on this connection."""
        if self.transport is None:
            return
        refusal = http.refusal(error)
        body = cast("bytes", refusal.body)
        framing = http.content_length(refusal.status, len(body))
        head = http.head(refusal.status, refusal.headers, http.date_line(wall_seconds()), framing, keep=False)
        self.transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        """Read on; what belongs to no body is the head of a request."""
        if (
            self._is_plain
            and self._body is EMPTY_PAYLOAD
            and data.endswith(HEAD_END)
            and data[0] > SPACE
            and b"pgrade" not in data
            and b"PGRADE" not in data
        ):  # one whole head, as nearly always: nothing to count or to hold
            self._parse(data)
        elif not self._stopped:
            self._receive(data)

    def _parse(self, data: bytes) -> None:
        """Have the parser read on: heads become requests, and bodies come to those who read them."""
        if self._is_closing:
            return
        requests = self._requests
        try:
            messages, has_left_http, _ = self._reader.feed_data(data)
            requests.extend(messages)
            self._slices.arrived += 1
            self._is_closing = has_left_http  # what follows an offer is held, and if it counts for nothing, ignored
        except HttpProcessingError as error:
            requests.append(error)
            self._is_closing = True
        if requests and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if len(requests) >= _MOST_WAITING and not self._is_full:
            self._is_full = True
            self._pause()

    def _refill(self) -> None:
        """Read on, now that there is room for more requests."""
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
        """Count what comes until it is a whole head, and stop behind one that may offer another protocol."""
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
            self._body.set_exception(UnreadableBody("there is more framing than content"))
            self.stop_reading()

    def begin(self, incoming: IncomingRequest) -> None:
        """Serve a request, whose head is complete, from now on."""
        self.is_serving = True
        if self._head_timer is not None or self._head_bytes:
            self._head_complete()
        self._body, self._body_bytes = incoming.content, 0
        if self._held is not None:
            self._settle(incoming)

    def _settle(self, incoming: IncomingRequest) -> None:
        """Keep what is held if it follows an offer, and look at it otherwise."""
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
        """Return whether the client has sent something behind an offer."""
        return bool(self._held)

    def switch(self, head: bytes) -> ClientStream:
        """Answer with `head` and leave HTTP: what is held, and what else comes, is the stream's until it gives back.

        Raises ConnectionError when the client is gone already.
        """
        transport, held = self.transport, bytes(self._held or b"")
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._held = None
        transport.write(head)
        return ClientStream(transport, held, self._context.backlog, partial(self.connection_lost, None))

    def stop_reading(self) -> None:
        """Look at nothing more that comes; the connection ends with the answer that is being made."""
        self._stopped, self._is_plain = True, False
        self._held = None
        self.close()
        self._pause()

    async def part(self) -> None:
        """End without reading what the client still sends, but not before it has had time to read its answer."""
        self.stop_reading()
        await asyncio.sleep(_FAREWELL)
        self.cut()

    def cut(self) -> None:
        """End at once."""
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
        if self.is_serving:  # it came too early; the answer before it is still being made
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
    """Return what is wrong with a request without the bytes that aiohttp quotes: they may be credentials."""
    if isinstance(error, InvalidURLError):
        return "the target is not a URL"
    return _QUOTED.split(error.message, 1)[0]
