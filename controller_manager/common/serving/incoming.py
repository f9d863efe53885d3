"""Input from a client: the end of request heads, and requests whose body has not been read."""

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage

_VERSIONS = frozenset({HttpVersion10, HttpVersion11})


HEAD_END = b"\r\n\r\n"
SPACE = 32
_SEAM = 16  # bytes at the end of a part that are scanned again with the next part


class HeadScanner:
    """Finds the end of a request head that arrives in parts, and whether it may offer an upgrade.

    `seam` is the end of the previous part, which is scanned together with the next one; empty at the start of a head.
    """

    __slots__ = ("may_offer", "seam")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start at the beginning of a head."""
        self.seam = b""
        self.may_offer = False

    def find_end(self, data: bytes) -> int | None:
        """Return the end of the first head that ends in `data`, or None; another head may follow it."""
        seen = self.seam + data
        end = seen.find(HEAD_END)
        # A single line after a head is its body; bodies of writes are usually like that.
        heads = end if end >= 0 and seen.find(b"\n", end + len(HEAD_END)) < 0 else len(seen)
        self.may_offer = self.may_offer or seen.find(b"pgrade", 0, heads) >= 0 or seen.find(b"PGRADE", 0, heads) >= 0
        if end < 0 or (not self.seam and data[0] <= SPACE):
            self.seam = seen[-_SEAM:]
            return None
        end += len(HEAD_END) - len(self.seam)
        self.seam = b"" if seen.endswith(HEAD_END) else seen[-_SEAM:]
        return end


class UnreadableBody(Exception):
    """The body of a request cannot be read. The exception of aiohttp would import all of its server."""


class IncomingRequest:
    """A request received on a connection (`protocol`); its body is read from `content`."""

    __slots__ = ("content", "headers", "message", "method", "protocol", "version")

    def __init__(self, protocol: BaseProtocol, message: RawRequestMessage, content: StreamReader) -> None:
        self.protocol = protocol
        self.message = message
        self.content = content
        self.method = message.method
        self.version = message.version
        self.headers = message.headers

    @property
    def is_known_http(self) -> bool:
        """Return whether the HTTP version is supported."""
        return self.version in _VERSIONS

    @property
    def has_body(self) -> bool:
        """Return whether there is a body, which may be empty."""
        return self.content is not EMPTY_PAYLOAD

    @property
    def content_length(self) -> int | None:
        """Return the Content-Length, or None."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def target(self) -> str:
        """Return path and query as sent; for an absolute target (RFC 9112, section 3.2.2) the part after the host."""
        raw = self.message.path
        return raw if raw.startswith("/") else self.message.url.relative().raw_path_qs

    @property
    def may_stay(self) -> bool:
        """Return whether the connection may handle another request; False after an upgrade offer."""
        if self.message.should_close or self.version < HttpVersion11:
            return False
        return self.method != "CONNECT" and "upgrade" not in self.headers

    @property
    def is_offer(self) -> bool:
        """Return whether the request offers an upgrade (RFC 9110, section 7.8) and may do so: it has no body."""
        if self.version < HttpVersion11 or self.method == "HEAD" or self.has_body:
            return False
        return "upgrade" in self.headers

    @property
    def waits_for_leave(self) -> bool:
        """Return whether the client waits for `100 Continue` before it sends the body (RFC 9110, section 10.1.1)."""
        return self.headers.get("expect", "").lower() == "100-continue" and self.version >= HttpVersion11
