"""Frames of HTTP/2 and blocks of headers, as bytes (RFC 9113, section 6; RFC 7541)."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple

from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hpack.exceptions import HPACKError

DATA, HEADERS, _, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
LARGEST_FRAME = 16_384
"""Bytes of a frame, without its head, unless its receiver takes more."""
LARGEST_BLOCK = 64 << 10
"""Bytes of headers."""
LAST_STREAM = (1 << 31) - 1
_HEAD = Struct(">IBI")  # length and type, flags, number of the stream
_KNOWN_BLOCKS = 64  # of headers that were read


class ErrorCode(IntEnum):
    """Why a stream or a connection was ended (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


_ERROR_CODES = frozenset(ErrorCode)


def name_of(code: int) -> str:
    """Return what people call a code."""
    return ErrorCode(code).name if code in _ERROR_CODES else str(code)


class ForbiddenError(Exception):
    """A server does not keep to the protocol: `code` says what it is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Frame(NamedTuple):
    """A frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def unpadded(self) -> bytes:
        """Its payload without padding. Raises `ForbiddenError`."""
        if not self.flags & PADDED:
            return self.payload
        end = len(self.payload) - self.payload[0] if self.payload else 0
        if end < 1:
            raise ForbiddenError(ErrorCode.PROTOCOL_ERROR, "more padding than there is room for")
        return self.payload[1:end]

    def numbers(self, form: Struct) -> tuple[int, ...]:
        """Return the numbers that its payload begins with. Raises `ForbiddenError`."""
        try:
            return form.unpack_from(self.payload)
        except error:
            raise ForbiddenError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {self.kind} is too short") from None


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """Return the bytes of a frame."""
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


class FrameReader:
    """Takes frames out of what comes in pieces. Headers in several frames become one."""

    def __init__(self) -> None:
        self._buffer = b""
        self._headers: Frame | None = None  # that go on

    def read(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole with these bytes. Raises `ForbiddenError`."""
        data = self._buffer + data if self._buffer else data
        at, size = 0, len(data)
        self._buffer = b""
        while size - at >= _HEAD.size:
            head, flags, number = _HEAD.unpack_from(data, at)
            length = head >> 8
            if length > LARGEST_FRAME:
                raise ForbiddenError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            end = at + _HEAD.size + length
            if end > size:
                break
            found = Frame(head & 0xFF, flags, number & LAST_STREAM, data[at + _HEAD.size : end])
            at = end
            if found.kind in (HEADERS, CONTINUATION) or self._headers is not None:
                joined = self._joined(found)
                if joined is None:
                    continue
                found = joined
            yield found
        self._buffer = data[at:]

    def _joined(self, found: Frame) -> Frame | None:
        """Return headers once they are whole, with those of the frames before."""
        first, self._headers = self._headers, None
        if found.kind == HEADERS and first is None:
            block = found.unpadded
            found = found._replace(payload=block[5:] if found.flags & PRIORITY else block)
        elif first is not None and found.kind == CONTINUATION and found.stream == first.stream:
            flags = first.flags | found.flags & END_HEADERS
            found = first._replace(flags=flags, payload=first.payload + found.payload)
        else:
            raise ForbiddenError(ErrorCode.PROTOCOL_ERROR, "headers are interrupted, or go on that did not begin")
        if len(found.payload) > LARGEST_BLOCK:
            raise ForbiddenError(ErrorCode.ENHANCE_YOUR_CALM, f"headers of more than {LARGEST_BLOCK} bytes")
        if found.flags & END_HEADERS:
            return found
        self._headers = found
        return None


class HeaderReader:
    """Reads blocks of headers that refer to no others."""

    def __init__(self) -> None:
        self._decoder = Decoder(LARGEST_BLOCK)
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self._known: dict[bytes, Mapping[str, str]] = {}

    def read(self, block: bytes) -> Mapping[str, str]:
        """Return the headers of a block. Raises `ForbiddenError`."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        except (HPACKError, UnicodeDecodeError) as problem:
            why = f"headers that cannot be read: {problem}"
            raise ForbiddenError(ErrorCode.COMPRESSION_ERROR, why) from problem
        if len(self._known) >= _KNOWN_BLOCKS:
            self._known.clear()
        self._known[block] = headers
        return headers


@lru_cache(maxsize=1024)
def header_block(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return headers as they are sent, which refer to no others."""
    return Encoder().encode([NeverIndexedHeaderTuple(*one) for one in headers], huffman=False)
