"""The response to a call, and the framing of messages: a byte for compression, which we never request, and the
length (gRPC over HTTP/2).
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from struct import Struct

from controller_manager.common.api.protobuf.services import Method
from controller_manager.common.api.tree import Tree
from controller_manager.common.transport.grpc.failures import GrpcError, failure_of
from controller_manager.common.transport.http2 import Http2Error, Http2Stream

_PREFIX = Struct(">BI")


def framed(message: bytes) -> bytes:
    """Return a message with its prefix."""
    return _PREFIX.pack(0, len(message)) + message


class Call:
    """Receives the response to a call and extracts its messages."""

    def __init__(self, largest: int) -> None:
        self.stream: Http2Stream | None = None
        self._largest = largest
        self._headers: dict[str, str] = {}
        self._buffer = bytearray()

    def headers_received(self, headers: Mapping[str, str]) -> None:
        self._headers.update(headers)

    def close(self) -> None:
        """Cancel the call unless it is over, and drop the reference to the stream. They refer to each other; responses
        are large and should not wait for the garbage collector.
        """
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.reset()

    def _take(self, data: bytes) -> None:
        """Buffer message data; the body of an error from a proxy is ignored."""
        if self._headers.get(":status") == "200":
            self._buffer += data

    def _size(self) -> int:
        """Return the size of the first message in the buffer, -1 while it is unknown. Raises
        `GrpcError`.
        """
        if len(self._buffer) < _PREFIX.size:
            return -1
        compressed, size = _PREFIX.unpack_from(self._buffer)
        if compressed:
            raise GrpcError("INTERNAL", "the message is compressed, but compression was not requested")
        if 0 <= self._largest < size:
            why = f"received message larger than max ({size} vs. {self._largest})"
            raise GrpcError("RESOURCE_EXHAUSTED", why)
        return _PREFIX.size + int(size)


class UnaryCall(Call):
    """A call whose response is one message, `answer`."""

    def __init__(self, largest: int) -> None:
        super().__init__(largest)
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._take(data)
        try:
            self._size()
        except GrpcError as failure:
            self._fail(failure)
            return
        assert self.stream is not None
        self.stream.allow(len(data))

    def ended(self, error: Http2Error | None) -> None:
        failure = failure_of(self._headers, error)
        if failure is None and self._size() != len(self._buffer):
            failure = GrpcError("INTERNAL", "the answer is not one message")
        if self.answer.done():
            return
        if failure is None:
            self.answer.set_result(bytes(memoryview(self._buffer)[_PREFIX.size :]))
        else:
            self.answer.set_exception(failure)

    def expire(self) -> None:
        """Fail the call with DEADLINE_EXCEEDED."""
        self._fail(GrpcError("DEADLINE_EXCEEDED", "there was no answer in time"))

    def _fail(self, failure: GrpcError) -> None:
        self.close()
        if not self.answer.done():
            self.answer.set_exception(failure)


class StreamCall(Call):
    """A call whose response is a stream of messages; some may wait for their reader."""

    def __init__(self, largest: int) -> None:
        super().__init__(largest)
        self._messages: deque[bytes] = deque()
        self._allowed = 0  # bytes of the incomplete message that already count as read for flow control
        self._over = False
        self._failed: GrpcError | None = None
        self._reader: asyncio.Future[None] | None = None

    async def next(self) -> bytes | None:
        """Return the next message, None at the end. Raises `GrpcError`."""
        while not self._messages:
            if self._failed is not None:
                raise self._failed
            if self._over:
                return None
            self._allow_part()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._messages.popleft()
        if self.stream is not None:
            self.stream.allow(_PREFIX.size + len(message))
        return message

    def check(self) -> None:
        """Raise `GrpcError` if the call is over."""
        if self._failed is not None:
            raise self._failed
        if self._over:
            raise GrpcError("CANCELLED", "the call is over")

    def close(self) -> None:
        super().close()
        if not self._over:
            self._finish(GrpcError("CANCELLED", "the call was ended"))

    def data_received(self, data: bytes) -> None:
        self._take(data)
        try:
            while 0 <= (end := self._size()) <= len(self._buffer):
                self._messages.append(bytes(memoryview(self._buffer)[_PREFIX.size : end]))
                del self._buffer[:end]
                if self._allowed and self.stream is not None:
                    self.stream.allow(-self._allowed)
                    self._allowed = 0
        except GrpcError as failure:
            super().close()
            self._finish(failure)
            return
        if self._messages:
            self._wake()
        else:
            self._allow_part()

    def ended(self, error: Http2Error | None) -> None:
        self._finish(failure_of(self._headers, error))

    def _allow_part(self) -> None:
        """Let the rest of an awaited message arrive."""
        if self.stream is not None and len(self._buffer) > self._allowed:
            self.stream.allow(len(self._buffer) - self._allowed)
            self._allowed = len(self._buffer)

    def _finish(self, failure: GrpcError | None) -> None:
        self._over = True
        self._failed = self._failed or failure
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def read_answer(method: Method, data: bytes) -> Tree:
    """Decode a response message. Raises `GrpcError`."""
    try:
        return method.answer.read(data)
    except ValueError as error:
        raise GrpcError("INTERNAL", f"malformed response message: {error}") from None
