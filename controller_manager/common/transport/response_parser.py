"""An incremental parser for one HTTP/1.1 response (RFC 9112). It is pure.

It is strict, since a response with unclear framing may be misread: anything unusual raises
`TransportError`, and the connection is not used again.
"""

import re

from controller_manager.common.api.wire import Response
from controller_manager.common.transport.transport import LARGEST_BODY, TransportError, UnaskedUpgrade

_LONGEST_HEAD = 64 << 10
_LONGEST_SIZE_LINE = 4 << 10
_SWITCHING = 101
_WITHOUT_BODY = (204, 304)
_BLANK = b"\r\n\r\n"
_START = b"HTTP/1."
_STATUS_LINE = re.compile(r"HTTP/(1\.[01]) ([1-5][0-9]{2})(?: |$)")
_LENGTH = re.compile(r"[0-9]{1,18}")


class ServerDisconnected(TransportError):
    """The server closed a connection without a response; it may not have received the request."""


class ResponseParser:
    """Parses data until the response is complete; `reusable` is then True if the connection can carry another request.

    The server may switch protocols only if `may_switch`; a 101 response is complete after its head. The body is limited
    to `largest_body` bytes, by default 1 GiB.
    """

    def __init__(self, may_switch: bool = False, largest_body: int | None = None) -> None:
        self._may_switch = may_switch
        self._largest_body = largest_body or LARGEST_BODY
        self._data = bytearray()
        # The size of all heads; informational responses may precede the final one.
        self._heads = 0
        # Status, headers and framing of the response once its head is complete.
        self._status = 0
        self._headers: dict[str, str] = {}
        self._length: int | None = None
        self._chunked = False
        # The body so far, of a chunked response.
        self._body = bytearray()
        self.reusable = False

    def feed(self, data: bytes) -> Response | None:
        """Add received data; return the response once it is complete."""
        self._data += data
        while not self._status:
            end = self._data.find(_BLANK)
            stop = end + len(_BLANK) if end >= 0 else len(self._data)
            _bound(self._heads + stop, _LONGEST_HEAD, "the head of the answer")
            if not self._data.startswith(_START[:stop]):
                raise TransportError(f"the server does not speak HTTP: {bytes(self._data[:80])!r}")
            if end < 0:
                return None
            self._heads += stop
            self._read_head(self._data[:end].decode("latin-1"))
            del self._data[:stop]
        return self._read_chunks() if self._chunked else self._read_plain()

    @property
    def rest(self) -> bytes:
        """Return the bytes after a response that switched protocols."""
        return bytes(self._data)

    def end(self) -> Response:
        """Return the response at the end of the connection, which ends a body without a length."""
        if not self._heads and not self._data:
            raise ServerDisconnected("the server hung up")
        if not self._status or self._chunked or self._length is not None:
            raise TransportError("the server hung up in the middle of its answer")
        return Response(self._status, self._headers, bytes(self._data))

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        status_line = _STATUS_LINE.match(first)
        if status_line is None or not head.count("\r") == head.count("\n") == len(lines):
            raise TransportError(f"the server does not speak HTTP: {first[:80]!r}")
        version, status = status_line[1], int(status_line[2])
        if status == _SWITCHING and not self._may_switch:
            raise UnaskedUpgrade
        if status < 200 and status != _SWITCHING:
            return  # an informational response; another one follows (RFC 9110, section 15.2)
        self._status, self._headers = status, _headers(lines)
        if status != _SWITCHING:
            self._frame(version)

    def _frame(self, version: str) -> None:
        """Find the end of the body (RFC 9112, section 6.3). Raises `TransportError` for a coding except chunked."""
        length, coding = self._headers.get("content-length"), self._headers.get("transfer-encoding")
        self._chunked = coding is not None
        if self._chunked and (coding or "").lower() != "chunked":
            raise TransportError(f"unsupported transfer-encoding from server: {coding!r}")
        if self._status in _WITHOUT_BODY:
            self._length, self._chunked = 0, False
        elif length is not None and not self._chunked:
            if not _LENGTH.fullmatch(length):
                raise TransportError(f"the server sent an answer of length {length[:80]!r}")
            self._length = int(length)
            _bound(self._length, self._largest_body, "the answer")
        stays = version == "1.1" and "close" not in self._headers.get("connection", "").lower()
        is_doubtful = self._chunked and length is not None
        self.reusable = stays and not is_doubtful and (self._chunked or self._length is not None)

    def _read_plain(self) -> Response | None:
        if self._length is None:
            if self._status == _SWITCHING:
                return Response(_SWITCHING, self._headers)
            _bound(len(self._data), self._largest_body, "the answer")
            return None
        if len(self._data) < self._length:
            return None
        self.reusable = self.reusable and len(self._data) == self._length
        del self._data[self._length :]
        return Response(self._status, self._headers, bytes(self._data))

    def _read_chunks(self) -> Response | None:
        data = self._data
        while True:
            end = data.find(b"\r\n")
            begin = end + 2 if end >= 0 else len(data)
            _bound(begin, _LONGEST_SIZE_LINE, "the size of a chunk")
            if end < 0:
                return None
            size = _size(data[:end])
            if not size:
                return self._read_trailer(end)
            _bound(len(self._body) + size, self._largest_body, "the answer")
            stop = begin + size
            if len(data) < stop + 2:
                return None
            if data[stop : stop + 2] != b"\r\n":
                raise TransportError("the server sent a chunk that is longer than it said")
            with memoryview(data) as view:
                self._body += view[begin:stop]
            del data[: stop + 2]

    def _read_trailer(self, at: int) -> Response | None:
        """Skip the trailer after the last chunk and return the response, None if it is incomplete."""
        end = self._data.find(_BLANK, at)
        stop = end + len(_BLANK) if end >= 0 else len(self._data)
        _bound(stop - at, _LONGEST_HEAD, "what follows the answer")
        if end < 0:
            return None
        self.reusable = self.reusable and len(self._data) == stop
        return Response(self._status, self._headers, bytes(self._body))


def _headers(lines: list[str]) -> dict[str, str]:
    """Return headers by lower-case name; the values of a repeated header are joined (RFC 9110, section 5.3)."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise TransportError(f"malformed header line from server: {line[:80]!r}")
        name, value = name.lower(), value.strip(" \t")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _size(line: bytearray) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise TransportError(f"the server sent a chunk of size {bytes(line[:80])!r}")
    return int(digits, 16)


def _bound(size: int, most: int, what: str) -> None:
    if size > most:
        raise TransportError(f"{what} is larger than {most} bytes")
