"""Reads one HTTP/1.1 answer from the bytes of a connection as they come (RFC 9112); pure.

Strict, since whoever frames answers differently can't be followed: what is odd raises `TransportError`, and the
connection is not used again.
"""

from controller_manager.api.wire import Response
from controller_manager.client.transport import LARGEST_BODY, TransportError

_LONGEST_HEAD = 64 << 10
_LONGEST_SIZE_LINE = 4 << 10
_WITHOUT_BODY = (204, 304)
_BLANK = b"\r\n\r\n"


class HungUp(TransportError):
    """The server closed a connection before it said anything: maybe it never saw the request."""


class Answer:
    """Fed until it gives the whole answer; `reusable` says then whether the connection can carry another one."""

    def __init__(self) -> None:
        self._data = bytearray()
        # Of the answer whose head was read: its status and headers, and how its body ends.
        self._status = 0
        self._headers: dict[str, str] = {}
        self._length: int | None = None
        self._chunked = False
        # Where the next chunk begins, and where those before it are.
        self._at = 0
        self._chunks: list[tuple[int, int]] = []
        self.reusable = False

    def feed(self, data: bytes) -> Response | None:
        """Take in what was received; the answer once it is whole."""
        self._data += data
        while not self._status:
            end = self._data.find(_BLANK)
            if end < 0:
                _bound(len(self._data), _LONGEST_HEAD, "the head of the answer")
                return None
            self._read_head(self._data[:end].decode("latin-1"))
            del self._data[: end + len(_BLANK)]
        _bound(max(len(self._data), self._length or 0), LARGEST_BODY, "the answer")
        return self._read_chunks() if self._chunked else self._read_plain()

    def end(self) -> Response:
        """The connection ended, as one does where nothing else says how long the body is."""
        if not self._status and not self._data:
            raise HungUp("the server hung up")
        if not self._status or self._chunked or self._length is not None:
            raise TransportError("the server hung up in the middle of its answer")
        return Response(self._status, self._headers, bytes(self._data))

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (status.isdecimal() and rest[3:4] in ("", " ")):
            raise TransportError(f"the server does not speak HTTP: {first[:80]!r}")
        if status[0] == "1" and status != "101":
            return  # another answer follows (RFC 9110, section 15.2)
        self._status, self._headers = int(status), _headers(lines)
        self._frame(version)

    def _frame(self, version: str) -> None:
        """How the body ends (RFC 9112, section 6.3)."""
        length, coding = self._headers.get("content-length"), self._headers.get("transfer-encoding")
        self._chunked = coding is not None
        if self._chunked and (coding or "").lower() != "chunked":
            raise TransportError(f"the server sent its answer in a coding nobody asked for: {coding!r}")
        if self._status in _WITHOUT_BODY:
            self._length, self._chunked = 0, False
        elif length is not None and not self._chunked:
            if not (length.isascii() and length.isdecimal()):
                raise TransportError(f"the server sent an answer of length {length[:80]!r}")
            self._length = int(length)
        stays = version == "HTTP/1.1" and "close" not in self._headers.get("connection", "").lower()
        self.reusable = stays and (self._chunked or self._length is not None)

    def _read_plain(self) -> Response | None:
        if self._length is None or len(self._data) < self._length:
            return None
        self.reusable = self.reusable and len(self._data) == self._length
        del self._data[self._length :]
        return Response(self._status, self._headers, bytes(self._data))

    def _read_chunks(self) -> Response | None:
        data = self._data
        while (end := data.find(b"\r\n", self._at)) >= 0:
            begin, stop = end + 2, end + 2 + _size(data[self._at : end])
            if begin == stop:
                return self._read_trailer(end)
            _bound(stop, LARGEST_BODY, "the answer")
            if len(data) < stop + 2:
                return None
            if data[stop : stop + 2] != b"\r\n":
                raise TransportError("the server sent a chunk that is longer than it said")
            self._chunks.append((begin, stop))
            self._at = stop + 2
        _bound(len(data) - self._at, _LONGEST_SIZE_LINE, "the size of a chunk")
        return None

    def _read_trailer(self, at: int) -> Response | None:
        """What follows the last chunk: fields that nobody reads, and an empty line."""
        end = self._data.find(_BLANK, at)
        if end < 0:
            _bound(len(self._data) - at, _LONGEST_HEAD, "what follows the answer")
            return None
        self.reusable = self.reusable and len(self._data) == end + len(_BLANK)
        with memoryview(self._data) as view:
            return Response(self._status, self._headers, b"".join([view[begin:stop] for begin, stop in self._chunks]))


def _headers(lines: list[str]) -> dict[str, str]:
    """Names in lower case; of a header that comes several times the values are joined (RFC 9110, section 5.3)."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise TransportError(f"the server sent a header that is none: {line[:80]!r}")
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
