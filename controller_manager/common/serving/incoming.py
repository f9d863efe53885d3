"""What comes from a client: where heads end, and a request as its head describes it, its body still on the wire."""

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage

_VERSIONS = frozenset({HttpVersion10, HttpVersion11})


HEAD_END = b"\r\n\r\n"
SPACE = 32
_SEAM = 16  # bytes of a head that what follows is read together with


class HeadScanner:
    """Finds where a head ends that comes in parts, and whether it may offer another protocol.

    Its `seam` is what the next part is read together with: nothing where a head begins there.
    """

    __slots__ = ("may_offer", "seam")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Expect the beginning of a head."""
        self.seam = b""
        self.may_offer = False

    def find_end(self, data: bytes) -> int | None:
        """Return where the first head that ends in the next part does, None if none does; another may follow it."""
        seen = self.seam + data
        end = seen.find(HEAD_END)
        # What follows a head in a single line is its body; that of a write is nearly all there is.
        heads = end if end >= 0 and seen.find(b"\n", end + len(HEAD_END)) < 0 else len(seen)
        self.may_offer = self.may_offer or seen.find(b"pgrade", 0, heads) >= 0 or seen.find(b"PGRADE", 0, heads) >= 0
        if end < 0 or (not self.seam and data[0] <= SPACE):
            self.seam = seen[-_SEAM:]
            return None
        end += len(HEAD_END) - len(self.seam)
        self.seam = b"" if seen.endswith(HEAD_END) else seen[-_SEAM:]
        return end


class UnreadableBody(Exception):
    """The body of a request cannot be read; the one of aiohttp comes with all of its servers."""


class IncomingRequest:
    """A request that has come over a connection (`protocol`); its body comes as `content`."""

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
        """Whether its version of HTTP is one that is spoken here."""
        return self.version in _VERSIONS

    @property
    def has_body(self) -> bool:
        """Whether there is a body, which may be empty."""
        return self.content is not EMPTY_PAYLOAD

    @property
    def content_length(self) -> int | None:
        """The bytes of the body, if the head says how many there are."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def target(self) -> str:
        """Path and query as they came; of an absolute target (RFC 9112, section 3.2.2) the part behind the host."""
        raw = self.message.path
        return raw if raw.startswith("/") else self.message.url.relative().raw_path_qs

    @property
    def may_stay(self) -> bool:
        """Whether the connection may serve another request: an offer to leave HTTP is the last thing to trust there."""
        if self.message.should_close or self.version < HttpVersion11:
            return False
        return self.method != "CONNECT" and "upgrade" not in self.headers

    @property
    def is_offer(self) -> bool:
        """Whether it offers another protocol (RFC 9110, section 7.8) where it may: behind no body."""
        if self.version < HttpVersion11 or self.method == "HEAD" or self.has_body:
            return False
        return "upgrade" in self.headers

    @property
    def waits_for_leave(self) -> bool:
        """Whether the client sends its body only when told to (RFC 9110, section 10.1.1)."""
        return self.headers.get("expect", "").lower() == "100-continue" and self.version >= HttpVersion11
