"""HTTP requests and responses as plain values, for client and server."""

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

_NONE: Mapping[str, str] = MappingProxyType({})
_NOTHING_TWICE: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_ESCAPED = re.compile(r"[^!#$&'*+\-.^_`|~0-9A-Za-z]")


class Certificate(Struct, frozen=True):
    """The verified client certificate of a connection (its subject; RFC 4514 attributes CN and O).

    `root` is the hexadecimal SHA-256 of the CA at the end of its chain, `digest` its own; `expires` is in wall seconds.
    `uid` is that of the user, None if it is invalid.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    root: str = ""
    expires: float = math.inf
    uid: str | None = ""
    digest: str = ""


class Unread(Protocol):
    """A body that was not read yet."""

    async def read(self, caller: str) -> bytes:
        """Return the whole body for the named caller; raises an ApiError if it is too large or there is no
        memory.
        """

    def stream(self) -> AsyncIterator[bytes]:
        """Return the body as a stream of any size, to forward it; use it once, instead of `read`.

        Raises an ApiError if the body does not arrive.
        """


class Request(Struct, frozen=True):
    """An HTTP request: `path` is percent-decoded, `query` in order of appearance, header names in lower case.

    The values of a repeated header are joined with commas in `headers`, and separate in `repeated`. A request from a
    socket has an `unread` body, so that it is read only after authentication; an in-process request has `body`.
    Requests from a socket have `target`, the path and query as sent, and `remote`, the address of the client; both are
    empty in-process. Code that forwards a request may set `target` to replace path and query. HEAD arrives as GET with
    `is_head`, so that only forwarding code must know it.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = _NONE
    body: bytes = b""
    certificate: Certificate | None = None
    repeated: Mapping[str, tuple[str, ...]] = _NOTHING_TWICE
    unread: Unread | None = None
    target: str = ""
    remote: str = ""
    is_head: bool = False

    async def received(self, caller: str) -> "Request":
        """Return the request with its body, read for `caller`. Raises like `Unread.read`."""
        return self if self.unread is None else replace(self, body=await self.unread.read(caller), unread=None)

    def values(self, header: str) -> tuple[str, ...]:
        """Return every value of a header unchanged; commas do not separate values."""
        apart = self.repeated.get(header)
        if apart is not None:
            return apart
        return (self.headers[header],) if header in self.headers else ()

    def header_lines(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of each header line; a repeated header has several lines."""
        if not self.repeated:
            yield from self.headers.items()
            return
        for name in self.headers:
            for value in self.values(name):
                yield name, value


def with_headers(request: Request, lines: Iterable[tuple[str, str]]) -> Request:
    """Return the request with these header lines replacing those with the same names. Repeated names stay separate."""
    added: dict[str, tuple[str, ...]] = {}
    for name, value in lines:
        added[name] = (*added.get(name, ()), value)
    joined = {name: ", ".join(values) for name, values in added.items()}
    kept = {name: values for name, values in request.repeated.items() if name not in added}
    apart = {name: values for name, values in added.items() if len(values) > 1}
    return replace(request, headers={**request.headers, **joined}, repeated={**kept, **apart})


def escape_header_key(key: str) -> str:
    """Return the key of an extra field as part of a header name: lower case, and percent-encoded where a header name
    does not allow a character (RFC 9110, section 5.6.2; RFC 3986, section 2.1).
    """
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), key).lower()


class DuplexStream(Protocol):
    """A byte stream in both directions after a protocol switch.

    One task reads and one writes at a time. The buffer of each direction is limited: a writer waits for the reader of
    the other side. Both directions end together, since asyncio's TLS has no half-closed streams.
    """

    async def read(self, n: int) -> bytes:
        """Read 1 to `n` bytes; empty once the peer has closed and everything was read.

        Raises ConnectionError if the connection broke.
        """

    async def write(self, data: bytes) -> None:
        """Write all of `data`; return when most of it was sent. Raises ConnectionError once either side has closed.

        After a cancellation it is unknown how much of `data` was written.
        """

    async def aclose(self) -> None:
        """Send pending data, then close both directions; unread data is lost."""


Sink = Callable[[bytes], bool]
"""Accepts a chunk of a stream; returns False if the reader must wait until the data is sent."""


@runtime_checkable
class Pushing(Protocol):
    """A stream that passes chunks to a sink while its reader waits, which saves the reader a loop iteration.

    The reader gets the other chunks, and an empty chunk after the sink has returned False.
    """

    def push_to(self, sink: Sink) -> None:
        """Set the sink."""


@runtime_checkable
class PushingBookmarks(Protocol):
    """A watch that passes bookmarks to a sink while its reader waits, as `Pushing` does with all chunks."""

    def push_bookmarks_to(self, sink: Sink) -> None:
        """Set the sink."""


def push_bookmarks(body: object, sink: Sink) -> None:
    """Pass the bookmarks of a response body to `sink`, if the body supports it."""
    push = getattr(body, "push_bookmarks_to", None)
    if push is not None:
        push(sink)


class Upgrade(Struct, frozen=True):
    """A switch to another `protocol` on the connection of a request (RFC 9110, section 7.8), as the body of a 101.

    `serve` gets the stream; its return closes the stream, and an exception breaks the connection.
    """

    protocol: str
    serve: Callable[[DuplexStream], Awaitable[None]]


class Response(Struct, frozen=True):
    """An HTTP response: `body` is bytes, a stream of chunks that its reader closes with `aclose()`, or an upgrade.

    The values of a repeated header are joined with commas in `headers`, and separate in `repeated`.
    """

    status: int
    headers: Mapping[str, str] = _NONE
    body: "bytes | AsyncIterator[bytes] | Upgrade" = b""
    repeated: Mapping[str, tuple[str, ...]] = _NOTHING_TWICE


def offered_protocols(request: Request) -> tuple[str, ...]:
    """Return the protocols in the upgrade offer of a request (RFC 9110, section 7.8), in lower case, preferred ones
    first.
    """
    offer = request.headers.get("upgrade")
    if not offer or "upgrade" not in _tokens(request.headers.get("connection", "")):
        return ()
    return _tokens(offer)


def check_offered(request: Request, response: Response) -> None:
    """Raise RuntimeError for a response that switches to a protocol that the request has not offered."""
    upgrade = response.body
    if isinstance(upgrade, Upgrade) and upgrade.protocol.lower() not in offered_protocols(request):
        raise RuntimeError(f"the client has not offered to change to {upgrade.protocol!r}")


def _tokens(value: str) -> tuple[str, ...]:
    return tuple(token.strip().lower() for token in value.split(",") if token.strip())
