"""One connection of a server as aiohttp's server keeps it, and the writing of answers on it."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from aiohttp import EMPTY_PAYLOAD, HttpVersion11, StreamReader, web

from controller_manager.api import errors
from controller_manager.api.wire import Certificate
from controller_manager.base.clock import wall_seconds
from controller_manager.base.log import get_logger
from controller_manager.serving import http
from controller_manager.serving.limits import Backlog, ConnectionLimiter
from controller_manager.serving.trust import Roots, digest
from controller_manager.transport.duplex import LIMIT, SocketStream

_PIECE = 256 * 1024  # TLS moves a big body several times faster in pieces, and less of it waits in its buffers
_HEAD_TIMEOUT = 32.0  # seconds it may take to arrive
_WRITE_TIMEOUT = 30.0  # seconds a client may take for a piece of its answer
_FAREWELL = 0.5  # seconds a client has to read its answer before a connection is reset
_FRAMING = 512 * 1024  # bytes on the wire that a body may have beyond twice its size
_BLANK = b"\r\n\r\n"  # ends the head of a request
_SPACE = 32
_SEAM = 16  # bytes of a head that what follows is read together with


class _Written:
    """Stands in for a response that is on the wire already: aiohttp has nothing left to send."""

    __slots__ = ("keep_alive",)

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing is left to prepare."""

    async def write_eof(self) -> None:
        """Nothing is left to write."""


KEEP = cast("web.StreamResponse", _Written(keep_alive=True))
CLOSE = cast("web.StreamResponse", _Written(keep_alive=False))


class ServerConnection(web.RequestHandler):
    """One connection: remembers the client's certificate, and answers what never reaches the handler.

    `arrived` is called when it begins; from then on the `limiter` counts it. It ends when the head of a request has
    more than `head_limit` bytes or takes too long, the wait for the first one included; and when its client does not
    take an answer in time. Unfinished `heads`, and answers that are not taken (`backlog`), share a budget each.

    Behind the head of a request that may offer another protocol, bytes are held until it is known whose they are.
    """

    __slots__ = (
        *("_arrived", "_backlog", "_body", "_body_bytes", "_limiter", "_head_bytes", "_head_limit", "_head_timer"),
        *("_drain", "_heads", "_held", "_is_plain", "_may_offer", "_roots", "_seam", "_stopped"),
        *("answering", "certificate", "is_serving", "may_switch", "remote"),
    )
    is_serving: bool  # a request, whose answer is being made
    answering: bool  # from the first byte of an answer to its last
    may_switch: bool  # to another protocol, behind the request that is being served
    certificate: Certificate | None
    remote: str  # the address of the client

    def __init__(
        self,
        manager: web.Server,
        roots: Roots,
        limiter: ConnectionLimiter,
        backlog: Backlog,
        heads: Backlog,
        head_limit: int,
        arrived: Callable[[], None],
        **more: Any,
    ) -> None:
        super().__init__(manager, **more)
        self._arrived = arrived
        self._limiter = limiter
        self._backlog = backlog
        self._heads = heads
        self._head_limit = head_limit
        self.answering = False
        self.certificate = None
        self.remote = ""
        self._roots = roots
        self._body: StreamReader = EMPTY_PAYLOAD  # of the request that is being served
        self._body_bytes = 0  # as they came, with their framing
        self._head_bytes = 0  # of a head that has not come whole
        self._head_timer: asyncio.TimerHandle | None = None
        self._seam = b""  # the last bytes of such a head
        self._is_plain = True  # whether nothing is held, and no head has come in part
        self._may_offer = False  # whether such a head may offer another protocol
        self._held: bytearray | None = None  # what came behind an offer
        self._drain: asyncio.Future[None] | None = None
        self.may_switch = False
        self.is_serving = False
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the handshake is over."""
        self._arrived()
        self._limiter.enter(self, cast("asyncio.Transport", transport).abort)
        if peer := transport.get_extra_info("peercert"):
            connection = transport.get_extra_info("ssl_object")
            shown = digest(connection.getpeercert(binary_form=True) or b"")
            self.certificate = http.certificate_of(peer, self._roots.of(connection), shown)
        if address := transport.get_extra_info("peername"):
            self.remote = str(address[0])
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, whoever wanted it."""
        self._limiter.leave(self)
        self._head_complete()
        self._wake()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Go on writing: the client has taken most of it."""
        super().resume_writing()
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Read on; what belongs to no body is the head of a request."""
        if (
            self._is_plain
            and self._body is EMPTY_PAYLOAD
            and data.endswith(_BLANK)
            and data[0] > _SPACE
            and b"pgrade" not in data
            and b"PGRADE" not in data
        ):  # one whole head, as nearly always: nothing to count or to hold
            super().data_received(data)
        elif not self._stopped:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        if self._held is not None:
            self._hold(data)
        elif not self._body.is_eof():
            super().data_received(data)
            self._seam, self._is_plain = b"", True
            self._count_body(len(data))
        elif data:
            self._read_head(data)
        else:
            super().data_received(data)

    def _read_head(self, data: bytes) -> None:
        """Count what comes until it is a whole head, and stop behind one that may offer another protocol."""
        seen = self._seam + data
        end = seen.find(_BLANK)
        self._may_offer = self._may_offer or b"pgrade" in seen or b"PGRADE" in seen
        self._is_plain = False
        if end < 0 or (not self._seam and data[0] <= _SPACE):
            self._seam = seen[-_SEAM:]
            super().data_received(data)
            self._count_head(len(data))
            return
        end += len(_BLANK) - len(self._seam)
        self._seam = b"" if seen.endswith(_BLANK) else seen[-_SEAM:]
        if not self._may_offer:
            self._is_plain = not self._seam
            super().data_received(data)
            return
        self._may_offer = False
        self._seam = b""
        self._held = bytearray()
        super().data_received(data[:end])
        self._hold(data[end:])

    def _hold(self, data: bytes) -> None:
        assert self._held is not None
        self._held += data
        if len(self._held) >= LIMIT:
            self._pause()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        self._heads.remove(self)
        self._heads.add(self, self._head_bytes, self.cut)
        if self._head_bytes > self._head_limit:
            self.force_close()
        elif self._head_timer is None:
            self._await_head()

    def _count_body(self, size: int) -> None:
        self._body_bytes += size
        if self._body_bytes > _FRAMING + 2 * self._body.total_bytes and self._body.exception() is None:
            self._body.set_exception(web.RequestPayloadError("there is more framing than content"))
            self.stop_reading()

    def begin(self, incoming: web.BaseRequest) -> None:
        """Serve a request, whose head is complete, from now on."""
        self.is_serving = True
        if self._head_timer is not None or self._head_bytes:
            self._head_complete()
        self._body, self._body_bytes = incoming.content, 0
        if self._held is not None:
            self._settle(incoming)

    def _settle(self, incoming: web.BaseRequest) -> None:
        """Keep what is held if it follows an offer, and look at it otherwise."""
        assert self._held is not None
        self.may_switch = _is_offer(incoming)
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

    def switch(self, head: bytes) -> "ClientStream":
        """Answer with `head` and leave HTTP: what is held, and what else comes, is the stream's until it gives back.

        Raises ConnectionError when the client is gone already.
        """
        transport, held = self.transport, bytes(self._held or b"")
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._held = None
        transport.write(head)
        return ClientStream(self, transport, held, self._backlog)

    def stop_reading(self) -> None:
        """Look at nothing more that comes; the connection ends with the answer that is being made."""
        self._stopped, self._is_plain = True, False
        self._held = None
        self.close()
        self._pause()

    async def drained(self, held: int, until: float = math.inf) -> None:
        """Return once the client has taken most of what was written; `held` bytes wait for that in memory.

        A client that needs too long, or longer than `until` (loop time), is cut off. Raises ConnectionError.
        """
        if not self.writing_paused:
            return
        self._backlog.add(self, held, self.cut)
        try:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout_at(min(loop.time() + _WRITE_TIMEOUT, until)):
                while self.transport is not None and self.writing_paused:
                    self._drain = loop.create_future()
                    await self._drain
        except TimeoutError:
            self.cut()
            raise ConnectionAbortedError("the client does not take its answer") from None
        finally:
            self._backlog.remove(self)
        if self.transport is None:
            raise ConnectionResetError("the client is gone")

    async def part(self) -> None:
        """End without reading what the client still sends, but not before it has had time to read its answer."""
        self.stop_reading()
        await asyncio.sleep(_FAREWELL)
        self.cut()

    def cut(self) -> None:
        """End at once."""
        if self.transport is not None:
            self.transport.abort()

    def _wake(self) -> None:
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

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
            self._heads.remove(self)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_overdue(self) -> None:
        if self.is_serving:  # it came too early; the answer before it is still being made
            self._await_head()
        else:
            self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> Any:
        """Answer a request that is no HTTP (400) or whose handler failed (500), and close the connection."""
        if status < 500:
            error: errors.ApiError = errors.BadRequest(f"the request is not valid HTTP: {message or exc}")
        else:
            get_logger("site").error("a request failed", path=request.path, exc_info=exc)
            error = errors.InternalError("an internal error occurred")
        if self.answering or self.transport is None:
            self.force_close()
            raise ConnectionResetError("the answer broke off")
        refusal = http.refusal(error)
        framing = http.content_length(refusal.status, len(cast("bytes", refusal.body)))
        head = http.head(refusal.status, refusal.headers, http.date_line(wall_seconds()), framing, keep=False)
        self.transport.write(head + cast("bytes", refusal.body))
        return CLOSE


class ClientStream(SocketStream):
    """The stream of a client that changed the protocol; what it does not take is part of the backlog."""

    def __init__(
        self, connection: ServerConnection, transport: asyncio.Transport, early: bytes, backlog: Backlog
    ) -> None:
        super().__init__(transport, early)
        self._connection = connection
        self._backlog = backlog
        self._is_over = False

    async def drained(self, held: int) -> None:
        """See `SocketStream`."""
        self._backlog.add(self, held, self.abort)
        try:
            await super().drained(held)
        finally:
            self._backlog.remove(self)

    def release(self) -> None:
        """Nobody uses the stream any more: the connection ends, now or as soon as the client has taken the rest.

        It is not told before, since it would then cancel whoever still reads what the client has sent.
        """
        self._is_over = True
        if self.is_lost:
            self._connection.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        super().connection_lost(error)
        if self._is_over:
            self._connection.connection_lost(None)


def _is_offer(incoming: web.BaseRequest) -> bool:
    """Return whether a client offers another protocol (RFC 9110, section 7.8) where it may: behind no body."""
    if incoming.version < HttpVersion11 or incoming.method == "HEAD" or incoming.body_exists:
        return False
    return "upgrade" in incoming.headers


def open_transport(incoming: web.BaseRequest) -> asyncio.Transport:
    """The transport of a request; raises ConnectionError when the client is gone."""
    transport = incoming.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client is gone")
    return transport


async def write_whole(incoming: web.BaseRequest, head: bytes, body: bytes) -> None:
    """Write an answer; returns once the client has taken most of it. Raises ConnectionError when it is gone."""
    if len(body) > _PIECE:
        open_transport(incoming).write(head)
        return await _write_pieces(incoming, body, math.inf)
    open_transport(incoming).write(head + body)
    return await cast("ServerConnection", incoming.protocol).drained(len(body))


async def write_chunks(incoming: web.BaseRequest, body: AsyncIterator[bytes], until: float, *, chunked: bool) -> None:
    """Write each chunk as it comes, no faster than the client takes them, and none after `until` (loop time)."""
    connection = cast("ServerConnection", incoming.protocol)
    async for chunk in body:
        if len(chunk) > _PIECE:
            open_transport(incoming).write(b"%x\r\n" % len(chunk) if chunked else b"")
            await _write_pieces(incoming, chunk, until)
            open_transport(incoming).write(b"\r\n" if chunked else b"")
        elif chunk:
            # Not by `writelines`: before Python 3.12.9 and 3.13.2 it never waits for a client (CVE-2024-12254).
            open_transport(incoming).write(http.framed(chunk) if chunked else chunk)
            await connection.drained(len(chunk), until)


async def _write_pieces(incoming: web.BaseRequest, data: bytes, until: float) -> None:
    connection, view = cast("ServerConnection", incoming.protocol), memoryview(data)
    for start in range(0, len(data), _PIECE):
        open_transport(incoming).write(view[start : start + _PIECE])
        await connection.drained(len(data), until)
