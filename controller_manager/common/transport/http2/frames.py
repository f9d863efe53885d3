"""HTTP/2 frames and header blocks as bytes (RFC 9113, section 6; RFC 7541)."""

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
"""Maximum payload bytes of a frame, unless the receiver allows more."""
LARGEST_BLOCK = 64 << 10
"""Maximum bytes of a header block."""
LAST_STREAM = (1 << 31) - 1
_HEAD = Struct(">IBI")  # length and type, flags, stream number
_KNOWN_BLOCKS = 64  # decoded header blocks in the cache


class ErrorCode(IntEnum):
    """Error codes of streams and connections (RFC 9113, section 7)."""

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
    """Return the name of an error code."""
    return ErrorCode(code).name if code in _ERROR_CODES else str(code)


class ForbiddenError(Exception):
    """The server violated the protocol; `code` is the error code to send."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Frame(NamedTuple):
    """A received frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def unpadded(self) -> bytes:
        """Return the payload without padding. Raises `ForbiddenError`."""
        if not self.flags & PADDED:
            return self.payload
        end = len(self.payload) - self.payload[0] if self.payload else 0
        if end < 1:
            raise ForbiddenError(ErrorCode.PROTOCOL_ERROR, "padding is larger than the frame")
        return self.payload[1:end]

    def numbers(self, form: Struct) -> tuple[int, ...]:
        """Return the numbers at the start of the payload. Raises `ForbiddenError`."""
        try:
            return form.unpack_from(self.payload)
        except error:
            raise ForbiddenError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {self.kind} is too short") from None


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """Return the bytes of a frame."""
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


class FrameReader:
    """Splits received data into frames. Headers in several frames are joined."""

    def __init__(self) -> None:
        self._buffer = b""
        self._headers: Frame | None = None  # headers that continue in the next frame

    def read(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete with this data. Raises `ForbiddenError`."""
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
        """Return headers when they are complete, joined with the previous frames."""
        first, self._headers = self._headers, None
        if found.kind == HEADERS and first is None:
            block = found.unpadded
            found = found._replace(payload=block[5:] if found.flags & PRIORITY else block)
        elif first is not None and found.kind == CONTINUATION and found.stream == first.stream:
            flags = first.flags | found.flags & END_HEADERS
            found = first._replace(flags=flags, payload=first.payload + found.payload)
        else:
            raise ForbiddenError(ErrorCode.PROTOCOL_ERROR, "unexpected frame in or before a header block")
        if len(found.payload) > LARGEST_BLOCK:
            raise ForbiddenError(ErrorCode.ENHANCE_YOUR_CALM, f"headers of more than {LARGEST_BLOCK} bytes")
        if found.flags & END_HEADERS:
            return found
        self._headers = found
        return None


class HeaderReader:
    """Decodes header blocks that do not refer to other blocks."""

    def __init__(self) -> None:
        self._decoder = Decoder(LARGEST_BLOCK)
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self._known: dict[bytes, Mapping[str, str]] = {}

    def read(self, block: bytes) -> Mapping[str, str]:
        """Decode a header block. Raises `ForbiddenError`."""
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
    """Encode headers without references to other blocks."""
    return Encoder().encode([NeverIndexedHeaderTuple(*one) for one in headers], huffman=False)
