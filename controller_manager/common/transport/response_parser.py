"""An incremental parser for one HTTP/1.1 response (RFC 9112), around that of httptools (llhttp). It is pure.

It is strict, since a response with unclear framing may be misread: anything unusual raises
`TransportError`, and the connection is not used again.
"""

import sys

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from controller_manager.common.api.wire import Response
from controller_manager.common.transport.transport import LARGEST_BODY, TransportError, UnaskedUpgrade

_STEP = 64 << 10  # bytes parsed at a time
_LARGEST_OVERHEAD = 2 * _STEP
_SWITCHING = 101
WITHOUT_BODY = (204, 304)


class ServerDisconnected(TransportError):
    """The server closed a connection without a response; it may not have received the request."""


class ResponseParser:
    """Parses the responses of one connection. `start` begins a response; its `head` is the response without its body,
    once that is known. When it `is_complete`, `reusable` is True if the connection can carry another request.

    The body is limited to `largest_body` bytes, by default 1 GiB, the headers to 64 KiB, and other data before, between
    or after the parts of the body to about 128 KiB.
    """

    def __init__(self, largest_body: int | None = None) -> None:
        self._parser = HttpResponseParser(self)  # a cycle, so there is one for all responses
        self._default = largest_body or LARGEST_BODY
        self.start()

    def start(self, *, may_switch: bool = False, is_head: bool = False, is_limited: bool = True) -> None:
        """Expect a response, which has no body if `is_head`.

        The server may switch protocols only if `may_switch`; a 101 response is complete after its head. The size of the
        body has no limit unless it `is_limited`.
        """
        self._may_switch = may_switch
        self._is_head = is_head
        self._largest_body = self._default if is_limited else sys.maxsize
        self._began = False
        self._ends_with_connection = False
        self._body_size = 0
        self._overhead = 0  # bytes since the last part of the body
        self._lines: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self.head: Response | None = None
        self.is_complete = False
        self.reusable = False
        self.rest = b""
        """The bytes after a response that switched protocols."""

    def feed(self, data: bytes) -> Response | None:
        """Add received data; return the response once it is complete."""
        for start in range(0, len(data), _STEP):
            self._feed(data[start : start + _STEP])
            if self.is_complete:
                more = data[start + _STEP :]
                self.rest, self.reusable = self.rest + more, self.reusable and not more
                break
        return self._whole() if self.is_complete else None

    def take(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def end(self) -> Response:
        """Return the response at the end of the connection, which ends a body without a length."""
        if not self._began:
            raise ServerDisconnected("the server hung up")
        if not self._ends_with_connection:
            raise TransportError("the server hung up in the middle of its answer")
        return self._whole()

    def on_message_begin(self) -> None:
        """Called by httptools."""
        if self.is_complete:
            raise TransportError("the server sent data after its answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools, also for trailers."""
        self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        """Called by httptools."""
        status, lines = self._parser.get_status_code(), self._lines
        self._lines = []
        if self._overhead > _STEP:
            _bound(sum(len(name) + len(value) for name, value in lines), _STEP, "the head of the answer")
        if status == _SWITCHING and not self._may_switch:
            raise UnaskedUpgrade
        if status < 100:
            raise TransportError(f"the server sent the status {status}")
        if status < 200 and status != _SWITCHING:
            return  # an informational response; another one follows (RFC 9110, section 15.2)
        self.head = response = _head(status, lines)
        self.reusable = self._parser.should_keep_alive()
        if self._is_head:
            self.is_complete = True
            self._parser = HttpResponseParser(self)
            return
        length, coding = response.headers.get("content-length"), response.headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise TransportError(f"unsupported transfer-encoding from server: {coding!r}")
        if status not in WITHOUT_BODY:
            self._ends_with_connection = length is None and coding is None
            _bound(int(length or 0), self._largest_body, "the answer")

    def on_chunk_header(self) -> None:
        """Called by httptools."""
        self._overhead = 0

    def on_body(self, piece: bytes) -> None:
        """Called by httptools."""
        if self.is_complete:
            raise TransportError("the server sent a body after the answer to a HEAD request")
        self._overhead = 0
        self._body_size += len(piece)
        _bound(self._body_size, self._largest_body, "the answer")
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Called by httptools."""
        self.is_complete = self.head is not None

    def _feed(self, data: bytes) -> None:
        self._began = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as switch:
            self.rest, self.reusable = data[switch.args[0] :], False
        except HttpParserError as error:
            self.reusable = False
            if self.is_complete:
                return  # more data after the response
            if isinstance(error, HttpParserCallbackError) and isinstance(error.__context__, TransportError):
                raise error.__context__ from None
            raise TransportError(f"the server sent invalid HTTP: {error}") from None
        if not self.is_complete:
            _bound(self._overhead, _LARGEST_OVERHEAD, "the head of the answer or of a chunk")

    def _whole(self) -> Response:
        head = self.head
        assert head is not None
        return Response(head.status, head.headers, b"".join(self._pieces), head.repeated)


def _head(status: int, lines: list[tuple[bytes, bytes]]) -> Response:
    """Return a response without a body; the values of a repeated header are joined (RFC 9110, section 5.3)."""
    headers: dict[str, str] = {}
    repeated: dict[str, tuple[str, ...]] = {}
    for raw_name, raw_value in lines:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in headers:
            repeated[name] = (*repeated.get(name, (headers[name],)), value)
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return Response(status, headers, b"", repeated)


def _bound(size: int, most: int, what: str) -> None:
    if size > most:
        raise TransportError(f"{what} is larger than {most} bytes")
