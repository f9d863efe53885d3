"""Input from a client: a parser for requests, and bodies that arrive in pieces.

The parser is llhttp (package `httptools`) in its strict mode. This module adds what llhttp leaves to its caller:
limits, and the rules for a head as a whole.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from controller_manager.common.api import errors
from controller_manager.common.serving import http
from controller_manager.common.transport.duplex import LIMIT

_PART = 16 * 1024  # bytes parsed at a time; llhttp cannot stop within them
_MOST_WAITING = 32  # pipelined requests
_UNREAD = 16 * 1024  # buffered bytes of a body before it is read
_PIECE = 64  # bytes that a piece of a body takes beside its content
_FRAMING = 512 * 1024  # bytes of chunk framing allowed beyond twice the size of the body
_LINE_LIMIT = 64 * 1024  # bytes of a request target or header
_TOO_LONG = f"Got more than {_LINE_LIMIT} bytes when reading"
_HEADERS = 2000  # the groups of a user come in one header each; the total size has a separate limit
_SINGLE = {
    *("content-length", "content-location", "content-range", "content-type", "etag", "host", "max-forwards"),
    *("server", "transfer-encoding", "user-agent"),
}  # headers that a request has once (RFC 9110)
_NOTHING = memoryview(b"")


class BodyStream(msgspec.Struct, eq=False):
    """A body that arrives in pieces, for one reader. `resume` is called when there is room for more.

    No more should be received when more than `limit` bytes are `held` in memory; `size` bytes have been received.
    """

    resume: Callable[[], None]
    limit: int = _UNREAD
    held: int = 0
    size: int = 0
    has_ended: bool = False
    error: Exception | None = None
    _pieces: list[bytes] = []
    _waiter: asyncio.Future[None] | None = None

    def feed(self, piece: bytes) -> None:
        """Add received bytes."""
        self._pieces.append(piece)
        self.held += len(piece) + _PIECE
        self.size += len(piece)
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Mark the body as complete, or as failed: all reads raise `error`."""
        self.has_ended, self.error = error is None, error
        self._wake()

    async def read(self) -> bytes:
        """Return what has arrived since the last read, at least one byte; empty at the end. Raises its error."""
        if not self._pieces and not self.has_ended and self.error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.error is not None:
            raise self.error
        pieces, self._pieces, self.held = self._pieces, [], 0
        self.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class IncomingRequest(msgspec.Struct, frozen=True, eq=False):
    """A request whose head is complete: `target` is path and query as sent, header names are in lower case.

    `body` is None if there is none. After the response the connection `may_stay`. `is_offer`: the request offers an
    upgrade (RFC 9110, section 7.8) and may do so, since it has no body.
    """

    method: str
    target: str
    version: str
    headers: dict[str, str]
    repeated: dict[str, tuple[str, ...]]
    body: BodyStream | None
    may_stay: bool
    is_offer: bool

    @property
    def content_length(self) -> int | None:
        """Return the Content-Length, or None."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def waits_for_leave(self) -> bool:
        """Return whether the client waits for `100 Continue` before it sends the body (RFC 9110, section 10.1.1)."""
        return self.headers.get("expect", "").lower() == "100-continue" and self.version == "1.1"


class RequestParser:
    """Parses input into `requests`; text in there is the error at which parsing stopped.

    A request is added when its head is complete; `body` is its body until that is complete, too. Parsing pauses while
    `is_full`, and continues with `proceed`. Input after an offer to leave HTTP is `held`.
    """

    __slots__ = (
        *("_input", "_is_in_head", "_is_over", "_lines", "_parser", "_resume", "_size", "_target"),
        *("body", "head_size", "held", "requests"),
    )

    def __init__(self, resume: Callable[[], None]) -> None:
        self.requests: deque[IncomingRequest | str] = deque()
        self.body: BodyStream | None = None
        self.head_size = 0  # bytes of an incomplete head
        self.held: bytearray | None = None
        self._resume = resume
        self._input = _NOTHING  # not parsed yet
        self._target = b""
        self._lines: list[tuple[bytes, bytes]] = []  # headers of an incomplete head
        self._size = 0  # bytes of an incomplete line of the head, or of a body with its framing
        self._is_in_head = True
        self._is_over = False
        self._parser = HttpRequestParser(self)

    @property
    def is_full(self) -> bool:
        """Return whether the client should be paused."""
        if self.held is not None:
            return len(self.held) >= LIMIT
        return len(self.requests) >= _MOST_WAITING or (self.body is not None and self.body.held > self.body.limit)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self.held is not None:
            self.held += data
        elif not self._is_over:
            self._input = memoryview(bytes(self._input) + data if self._input else data)
            self.proceed()

    def proceed(self) -> None:
        """Parse until the input ends or `is_full`."""
        while self._input and not self.is_full:
            part, self._input = self._input[:_PART], self._input[_PART:]
            self._parse(part)
        self._input = self._input or _NOTHING  # an empty view refers to parsed input

    def close(self) -> None:
        """End an incomplete body with an error, and drop all references to this object and its owner."""
        if self.body is not None:
            self.body.end(ConnectionResetError("the client is gone"))
        self._is_over, self._input = True, _NOTHING
        self.requests.clear()
        del self._parser, self._resume

    def _stop(self, reason: str) -> None:
        self._is_over, self._input = True, _NOTHING
        if self.body is None:
            self.requests.append(reason)
        else:
            self.body.end(errors.BadRequest(f"the body cannot be read: {reason}"))

    def _parse(self, part: memoryview) -> None:
        self._is_in_head = self.body is None
        self._size += len(part)
        try:
            self._parser.feed_data(part)
        except HttpParserUpgrade as offer:
            self._leave(bytes(part[offer.args[0] :]) + bytes(self._input))
        except HttpParserError as error:
            cause = error.__context__ if isinstance(error, HttpParserCallbackError) else error
            if not isinstance(cause, HttpParserError):
                raise
            self._stop("Bad status line" if "HTTP version" in str(cause) else str(cause))
        else:
            if self._is_in_head:
                self.head_size += len(part)
                if self._size > _LINE_LIMIT:
                    self._stop(_TOO_LONG)
            elif self.body is not None and self._size > _FRAMING + 2 * self.body.size:
                self._stop("the chunk framing is much larger than the content")

    def _leave(self, rest: bytes) -> None:
        """Hold the input after an offer. If it has a body, another parser reads it, since llhttp skips it."""
        offer = self.requests[-1]
        if self.body is None or isinstance(offer, str):
            self._input, self.held = _NOTHING, bytearray(rest)
            return
        length = offer.content_length
        framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{framing}\r\n\r\n".encode())
        self._input = memoryview(rest)

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._is_in_head, self._size = True, 0

    def on_url(self, part: bytes) -> None:
        """Called by the parser."""
        self._target, self._size = self._target + part, 0
        if len(self._target) > _LINE_LIMIT:
            raise HttpParserError(_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for trailers, too, which are ignored."""
        if len(name) + len(value) > _LINE_LIMIT:
            raise HttpParserError(_TOO_LONG)
        if self.body is None:
            self._size = 0
            self._lines.append((name, value))
            if len(self._lines) > _HEADERS:
                raise HttpParserError("Too many headers received")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self.body is not None:
            return  # the head in `_leave`
        parser = self._parser
        method, version, leaves = parser.get_method().decode(), parser.get_http_version(), parser.should_upgrade()
        target = _parsed_target(method, _text(self._target))
        lines = [(name.decode(), _text(value)) for name, value in self._lines]
        headers = http.fold_headers(lines)
        repeated = http.repeated_headers(lines) if len(headers) < len(lines) else {}
        _check_head(version, headers, repeated)
        has_body = method != "CONNECT" and ("transfer-encoding" in headers or int(headers.get("content-length", 0)) > 0)
        self.body = BodyStream(self._resume) if has_body else None
        self._is_in_head, self.head_size, self._size, self._target, self._lines = False, 0, 0, b"", []
        may_stay = version == "1.1" and parser.should_keep_alive() and not leaves and "upgrade" not in headers
        is_offer = version == "1.1" and leaves and not has_body and method not in ("HEAD", "CONNECT")
        if not is_offer:
            headers.pop("upgrade", None)
        self.requests.append(IncomingRequest(method, target, version, headers, repeated, self.body, may_stay, is_offer))

    def on_body(self, piece: bytes) -> None:
        """Called by the parser."""
        if self.body is not None:
            self.body.feed(piece)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self.body is not None and not self._parser.should_upgrade():
            self.body.end()
            self.body = None


def _check_head(version: str, headers: dict[str, str], repeated: dict[str, tuple[str, ...]]) -> None:
    if version not in ("1.1", "1.0"):
        raise HttpParserError("only HTTP/1.1 and HTTP/1.0 are spoken here")
    if version == "1.1" and "host" not in headers:
        raise HttpParserError("Missing 'Host' header in request.")
    if twice := _SINGLE.intersection(repeated):
        raise HttpParserError(f"Duplicate '{min(twice)}' header found.")
    if headers.get("transfer-encoding", "chunked").lower() != "chunked":
        raise HttpParserError("the only Transfer-Encoding known here is chunked")


def _text(data: bytes) -> str:
    return data.rstrip(b" \t").decode("utf-8", "surrogateescape")


def _parsed_target(method: str, target: str) -> str:
    """Return path and query of a target; of an absolute one (RFC 9112, section 3.2.2) the part after the host."""
    if target.startswith("/") or (target == "*" and method == "OPTIONS"):
        return target
    is_authority = method == "CONNECT"
    try:
        url = urlsplit(f"//{target}" if is_authority else target)
        host, _port = url.hostname, url.port  # a ValueError if they are malformed
    except ValueError:
        host = None
    if not host or (is_authority and url.netloc != target):
        raise HttpParserError("the target is not a URL")
    return f"{url.path}?{url.query}" if url.query else url.path
