"""One HTTP/1.1 client connection: one request at a time; the response is returned whole, or its body streams."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Self, cast

from msgspec.structs import replace

from controller_manager.common.api.wire import Response
from controller_manager.common.base.tasks import spawn
from controller_manager.common.transport.duplex import LIMIT, Inbox, SocketStream, Waiters
from controller_manager.common.transport.response_parser import WITHOUT_BODY, ResponseParser, ServerDisconnected
from controller_manager.common.transport.transport import TransportError

_SWITCHING = 101
_HANGING_UP = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_LONGEST_REASON = 500  # characters of an error text


class StreamedRequest(NamedTuple):
    """A request whose response is streamed; `named` describes it in errors.

    `data` is the request in wire format, only the head if the body is streamed too.
    """

    data: bytes
    named: str
    idempotent: bool = False
    is_head: bool = False
    body: AsyncIterator[bytes] | None = None
    is_chunked: bool = False


class ClientConnection(asyncio.Protocol):
    """One connection; `open` is True while it can carry a request."""

    def __init__(self, largest_body: int | None = None) -> None:
        self.open = False
        self.idle_since = 0.0
        self._answer = ResponseParser(largest_body)
        self.upgraded: SocketStream | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._watched_until = 0.0
        self._patience = 0.0
        self._deadline: float | None = None
        self._heard = 0.0
        self.failure: Exception | None = None
        # The unread part of a streamed response until that is complete, and the request body.
        self._streamed: StreamedRequest | None = None
        self._inbox: Inbox | None = None
        self._reading = True
        self._on_done: list[Callable[[], None]] = []
        self._upload: asyncio.Task[None] | None = None
        self._writing_paused = False
        self._writers = Waiters()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        waiting = self._waiting
        if self._inbox is None and (waiting is None or waiting.done()):
            self.drop()  # data without a request
            return
        self._heard = asyncio.get_running_loop().time()
        try:
            found = self._answer.feed(data)
        except TransportError as error:
            self._fail(error)
            return
        if self._streamed is not None:
            self._pass_on(self._streamed.named)
        elif found is not None and waiting is not None:
            self.open = self.open and self._answer.reusable
            if found.status == _SWITCHING:
                self.upgraded = SocketStream(self._transport, self._answer.rest)
            waiting.set_result(found)

    def eof_received(self) -> None:
        """Called by the loop, which then closes the connection."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._end(error)

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._writing_paused = False
        self._writers.wake()

    async def send(
        self, request: bytes, read_timeout: float, deadline: float | None = None, *, may_switch: bool = False
    ) -> Response:
        """Return the response to a request, which may switch protocols if `may_switch`.

        Raises TimeoutError if no data arrives for `read_timeout` seconds, or if the response is not complete at
        `deadline` (loop time). After any exception, the connection cannot be used again.
        """
        waiting = self._begin()
        self._answer.start(may_switch=may_switch)
        self._heard = asyncio.get_running_loop().time()
        self._patience, self._deadline = read_timeout, deadline
        self._watch()
        self._transport.write(request)
        try:
            return await waiting
        except BaseException:
            self.open = False
            raise

    async def stream(self, request: StreamedRequest) -> Response:
        """Return the response to a request when its body begins; the body is streamed, of any size.

        `when_done` reports when the connection is free.
        """
        waiting = self._begin()
        self._answer.start(is_head=request.is_head, is_limited=False)
        self._streamed = request
        self._transport.write(request.data)
        if request.body is not None:
            self._upload = spawn(self._send_body(request.body, request.is_chunked), name="upload")
            self._upload.add_done_callback(self._sent_body)
        try:
            return await waiting
        except BaseException:
            self._finish(reusable=False)
            raise
        finally:
            self._waiting = None  # it refers to the body, which closes the connection when nothing refers to it

    @property
    def streams(self) -> bool:
        """Return whether the body of a response is still arriving."""
        return self._inbox is not None

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the streamed response is complete or broken; at once without one."""
        if self._inbox is None:
            callback()
        else:
            self._on_done.append(callback)

    def drop(self) -> None:
        """Close the connection at once; a running request fails."""
        self._end(TransportError("the connection was closed"))
        self._transport.abort()

    def taken(self, inbox: Inbox) -> None:
        """Continue to read once the reader of a body has taken half of what was held."""
        if inbox is self._inbox and not self._reading and len(inbox) <= LIMIT // 2:
            self._set_reading(True)

    def abandon(self, inbox: Inbox) -> None:
        """Close the connection unless the response is complete."""
        if inbox is self._inbox:
            self.drop()

    def _begin(self) -> asyncio.Future[Response]:
        if not self.open:  # it was closed right after it was opened
            raise self.failure or ServerDisconnected("the server hung up")
        self._streamed = None
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def _pass_on(self, named: str) -> None:
        """Pass on the received part of a streamed response."""
        answer, waiting = self._answer, self._waiting
        if answer.head is None:
            return
        if self._inbox is None and waiting is not None:
            if answer.head.status in WITHOUT_BODY:
                waiting.set_result(answer.head)
                self._finish(reusable=answer.reusable)
                return
            self._inbox = Inbox()
            waiting.set_result(replace(answer.head, body=ResponseBody(self, self._inbox, named)))
        inbox = self._inbox
        assert inbox is not None
        if data := answer.take():
            inbox.feed(data)
        if answer.is_complete:
            self._finish(reusable=answer.reusable)
        elif self._reading and len(inbox) >= LIMIT:
            self._set_reading(False)

    def _set_reading(self, reading: bool) -> None:
        self._reading = reading
        if self._transport.is_closing():
            return
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    async def _send_body(self, body: AsyncIterator[bytes], is_chunked: bool) -> None:
        async for piece in body:
            if piece:
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            if self._writing_paused:
                await self._writers.wait()
        if is_chunked:
            self._transport.write(b"0\r\n\r\n")

    def _sent_body(self, upload: asyncio.Task[None]) -> None:
        error = None if upload.cancelled() else upload.exception()
        if error is not None and upload is self._upload:
            self._fail(TransportError(f"failed to send the request body: {error}"))

    def _end(self, error: Exception | None) -> None:
        """Handle the end of the input, which the server closed or an error broke."""
        self.open = False
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        self.failure = self.failure or error
        waiting = self._waiting
        if self._inbox is None and (waiting is None or waiting.done()):
            return
        try:
            found = self._answer.end()
        except ServerDisconnected as disconnected:
            self._fail(disconnected if error is None or isinstance(error, _HANGING_UP) else error)
        except TransportError as early:
            self._fail(error or early)
        else:
            if error is not None:
                self._fail(error)
            elif self._inbox is not None:
                self._finish(reusable=False)
            elif waiting is not None:
                waiting.set_result(found)

    def _fail(self, error: Exception) -> None:
        """Fail the running request."""
        self.failure = self.failure or error
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        elif self._inbox is not None:
            self._inbox.end(failed=True)
            self._finish(reusable=False)

    def _finish(self, *, reusable: bool) -> None:
        """End a streamed response. A request body that was not sent by then makes the connection unusable."""
        inbox, self._inbox = self._inbox, None
        upload, self._upload = self._upload, None
        self.open = self.open and reusable
        if upload is not None and not upload.done():
            upload.cancel()
            self.open = False
        if inbox is not None:
            inbox.end()
        if not self._reading:
            self._set_reading(True)
        calls, self._on_done = self._on_done, []
        for callback in calls:
            callback()

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


class ResponseBody:
    """The body of a response while it arrives. The connection is not read while 64 KiB wait for the reader.

    Raises `TransportError` if the connection breaks. `aclose()` closes the connection unless the whole body has
    arrived.
    """

    def __init__(self, connection: ClientConnection, inbox: Inbox, named: str) -> None:
        self._connection = connection
        self._inbox = inbox
        self._named = named

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._inbox.read(sys.maxsize)
        except ConnectionResetError as error:
            failure = self._connection.failure or error
            raise TransportError(f"{self._named}: {reason(failure)}") from failure
        self._connection.taken(self._inbox)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Stop reading."""
        self._inbox.discard(failed=True)
        self._connection.abandon(self._inbox)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the whole body has arrived or the connection is closed. Call this before any `await`."""
        self._connection.when_done(callback)

    def __del__(self) -> None:
        self._connection.abandon(self._inbox)


def reason(error: BaseException) -> str:
    """Return an error as text."""
    if isinstance(error, TimeoutError):
        return "timed out"
    return (str(error) or type(error).__name__)[:_LONGEST_REASON]
