"""A request over HTTP/2 and its answer, of one connection."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from controller_manager.common.transport.http2.frames import ErrorCode


class Http2Error(Exception):
    """A request failed. `code` is what the server gave as reason, None where the connection was lost; `unsent` tells
    that the server has certainly done nothing of it.
    """

    def __init__(self, message: str, code: int | None = None, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.unsent = unsent


class Receiver(Protocol):
    """Is told of the answer to a request."""

    def headers_received(self, headers: Mapping[str, str]) -> None:
        """Headers came, or trailers."""

    def data_received(self, data: bytes) -> None:
        """Some of the body came. For as many bytes as `Http2Stream.allow` is told, others may come."""

    def ended(self, error: Http2Error | None) -> None:
        """Nothing more comes: the answer is whole, or failed."""


class Carrier(Protocol):
    """The connection, as its streams know it."""

    stream_window: int

    def send(self, stream: "Http2Stream", data: bytes, *, end: bool) -> None:
        """Send a part of a body, as soon as windows allow."""

    async def drained(self, stream: "Http2Stream") -> None:
        """Return once all of a stream has gone that was written."""

    def allow(self, stream: "Http2Stream") -> None:
        """Tell the server how many bytes of a stream were taken."""

    def reset(self, stream: "Http2Stream", code: ErrorCode) -> None:
        """End a stream."""


class Http2Stream:
    """A request under way. What is written goes as the windows allow; `drained` waits until all has gone."""

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
        self.window = window  # bytes that the server takes
        self.allowance = allowance  # bytes that may come
        self.to_allow = 0  # bytes that were taken, of which the server does not know yet
        self.outgoing: deque[memoryview] = deque()
        self.sent_all = False
        self.closed = False

    def write(self, data: bytes, *, end: bool = False) -> None:
        """Send a part of the body; with `end` it is the last one. Nothing happens once the stream is closed."""
        if not self.closed and not self.sent_all:
            self._connection.send(self, data, end=end)

    async def drained(self) -> None:
        """Return once the server, or the network, has taken what was written."""
        await self._connection.drained(self)

    def next_piece(self, room: int) -> tuple[memoryview, bool] | None:
        """Take out what can be sent where there is room for so many bytes, and whether it is the last; None if that is
        nothing.
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
        """So many bytes that came were taken: as many others may come."""
        self.to_allow += count
        if not self.closed and self.to_allow * 2 >= self._connection.stream_window:
            self._connection.allow(self)

    def reset(self, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """End it at once; its receiver is told nothing more."""
        if not self.closed:
            self._connection.reset(self, code)
