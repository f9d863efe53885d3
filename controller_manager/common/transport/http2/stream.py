"""An HTTP/2 request and its response on a connection."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from controller_manager.common.transport.http2.frames import ErrorCode


class Http2Error(Exception):
    """A failed request. `code` is the error code from the server, None if the connection was lost. If `unsent`, the
    server has certainly not processed the request.
    """

    def __init__(self, message: str, code: int | None = None, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.unsent = unsent


class Receiver(Protocol):
    """Receives the response to a request."""

    def headers_received(self, headers: Mapping[str, str]) -> None:
        """Called with headers or trailers."""

    def data_received(self, data: bytes) -> None:
        """Called with a part of the body. Call `Http2Stream.allow` when it was read, so that more can come."""

    def ended(self, error: Http2Error | None) -> None:
        """Called when the response is complete (`error` is None) or has failed."""


class Carrier(Protocol):
    """The part of the connection that its streams use."""

    stream_window: int

    def send(self, stream: "Http2Stream", data: bytes, *, end: bool) -> None:
        """Send a part of a body when flow control allows it."""

    async def drained(self, stream: "Http2Stream") -> None:
        """Return when all written data of a stream has been sent."""

    def allow(self, stream: "Http2Stream") -> None:
        """Send a window update for the bytes of a stream that were read."""

    def reset(self, stream: "Http2Stream", code: ErrorCode) -> None:
        """Reset a stream."""


class Http2Stream:
    """A running request. Written data is sent as flow control allows; `drained` waits until all of it is sent."""

    __slots__ = (
        "_connection",
        "allowance",
        "closed",
        "number",
        "outgoing",
        "receiver",
        "sent_all",
        "to_allow",
        "window",
    )

    def __init__(self, connection: Carrier, number: int, receiver: Receiver, window: int, allowance: int) -> None:
        self._connection = connection
        self.number = number
        self.receiver = receiver
        self.window = window  # bytes that the server accepts
        self.allowance = allowance  # bytes that may arrive
        self.to_allow = 0  # bytes that were read, but not yet reported to the server
        self.outgoing: deque[memoryview] = deque()
        self.sent_all = False
        self.closed = False

    def write(self, data: bytes, *, end: bool = False) -> None:
        """Send a part of the body; `end` marks the last one. Does nothing once the stream is closed."""
        if not self.closed and not self.sent_all:
            self._connection.send(self, data, end=end)

    async def drained(self) -> None:
        """Return when the written data has been sent."""
        await self._connection.drained(self)

    def next_piece(self, room: int) -> tuple[memoryview, bool] | None:
        """Remove and return up to `room` bytes that flow control allows, and whether they are the last; None if nothing
        can be sent.
        """
        room = min(room, self.window)
        data = self.outgoing[0]
        if room <= 0 and data:
            return None
        piece = data[:room] if len(data) > room else data
        if len(piece) == len(data):
            self.outgoing.popleft()
        else:
            self.outgoing[0] = data[room:]
        self.window -= len(piece)
        return piece, self.sent_all and not self.outgoing

    def allow(self, count: int) -> None:
        """Report that `count` received bytes were read, so that as many may follow."""
        self.to_allow += count
        if not self.closed and self.to_allow * 2 >= self._connection.stream_window:
            self._connection.allow(self)

    def reset(self, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Reset the stream; its receiver is not called again."""
        if not self.closed:
            self._connection.reset(self, code)
