"""One request and one answer of the HTTP API, as plain values; both the client and the server speak in these."""

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

    `root` is the SHA-256 of the authority its chain ends in, in hexadecimal, and `digest` its own; `expires` in wall
    seconds. `uid` is that of the user, None if it cannot be told.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    root: str = ""
    expires: float = math.inf
    uid: str | None = ""
    digest: str = ""


class Unread(Protocol):
    """A body that is still on the wire."""

    async def read(self, caller: str) -> bytes:
        """Return all of it, for a caller known by that name; raises an ApiError if it is too large or there is
        no room.
        """

    def stream(self) -> AsyncIterator[bytes]:
        """Return it as it comes, whatever its size, for who passes it on; to be read once, in place of `read`.

        Raises an ApiError if it does not arrive.
        """


class Request(Struct, frozen=True):
    """An HTTP request: `path` is percent-decoded, `query` in order of appearance, header names in lower case.

    A header that came several times has its values joined with commas in `headers`, and apart in `repeated`. From a
    socket a body comes `unread`, so that it is read only for who is let in; within a process `body` is there at once.
    From a socket there are `target`, path and query as they came, and `remote`, the address of the client; within a
    process both are empty. Who passes a request on may set `target` to what is to be sent in place of path and query.
    HEAD comes as GET that `is_head`, so that only who passes it on has to know.
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
        """Return the request with its body, read for `caller`. Raises as `Unread.read`."""
        return self if self.unread is None else replace(self, body=await self.unread.read(caller), unread=None)

    def values(self, header: str) -> tuple[str, ...]:
        """Return every value of a header as it came; a comma in one divides nothing."""
        apart = self.repeated.get(header)
        if apart is not None:
            return apart
        return (self.headers[header],) if header in self.headers else ()

    def header_lines(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of each header line; a header that is sent several times has several lines."""
        if not self.repeated:
            yield from self.headers.items()
            return
        for name in self.headers:
            for value in self.values(name):
                yield name, value


def with_headers(request: Request, lines: Iterable[tuple[str, str]]) -> Request:
    """Return the request with more header lines, in place of those of the same names. Lines of one name stay apart."""
    added: dict[str, tuple[str, ...]] = {}
    for name, value in lines:
        added[name] = (*added.get(name, ()), value)
    joined = {name: ", ".join(values) for name, values in added.items()}
    kept = {name: values for name, values in request.repeated.items() if name not in added}
    apart = {name: values for name, values in added.items() if len(values) > 1}
    return replace(request, headers={**request.headers, **joined}, repeated={**kept, **apart})


def escape_header_key(key: str) -> str:
    """Return a key of a user's extra as part of a header name: lower case, and percent-encoded where a header name
    does not allow a character (RFC 9110, section 5.6.2; RFC 3986, section 2.1).
    """
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), key).lower()


class DuplexStream(Protocol):
    """Bytes in both directions over one connection, in the protocol that both sides changed to.

    One task reads and one writes at a time. Each direction holds a bounded number of bytes: who writes faster than the
    other side reads waits. Both directions end together, since TLS as asyncio speaks it knows no half-closed stream.
    """

    async def read(self, n: int) -> bytes:
        """Read at least one and at most `n` bytes; empty once the other side has closed and everything was read.

        Raises ConnectionError if the connection broke.
        """

    async def write(self, data: bytes) -> None:
        """Write all of `data`; return when most of it was taken. Raises ConnectionError once either side has closed.

        After a cancellation it is unknown how much of `data` was written.
        """

    async def aclose(self) -> None:
        """Send what was written, then end both directions; what was not read yet is lost."""


Sink = Callable[[bytes], bool]
"""Takes a chunk of a stream at once; returns False if its reader is to see that what was written is taken."""


@runtime_checkable
class Pushing(Protocol):
    """A stream that gives chunks to a sink while its reader waits for one, which spares the reader a turn of the loop.

    The reader gets the others, and an empty chunk where the sink has said so.
    """

    def push_to(self, sink: Sink) -> None:
        """Have such a sink from now on."""


@runtime_checkable
class PushingBookmarks(Protocol):
    """A watch that gives bookmarks to a sink while its reader waits, as `Pushing` does all chunks."""

    def push_bookmarks_to(self, sink: Sink) -> None:
        """Have such a sink from now on."""


def push_bookmarks(body: object, sink: Sink) -> None:
    """Have `sink` take the bookmarks of an answer's body, if that gives any."""
    push = getattr(body, "push_bookmarks_to", None)
    if push is not None:
        push(sink)


class Upgrade(Struct, frozen=True):
    """The change to another `protocol` on the connection of a request (RFC 9110, section 7.8), as the body of a 101.

    `serve` gets the stream and talks until it returns, which closes the stream; an exception breaks the connection.
    """

    protocol: str
    serve: Callable[[DuplexStream], Awaitable[None]]


class Response(Struct, frozen=True):
    """An HTTP answer: `body` is whole, a stream of chunks that its reader closes with `aclose()`, or an upgrade.

    A header that is to come several times has its values joined with commas in `headers`, and apart in `repeated`.
    """

    status: int
    headers: Mapping[str, str] = _NONE
    body: "bytes | AsyncIterator[bytes] | Upgrade" = b""
    repeated: Mapping[str, tuple[str, ...]] = _NOTHING_TWICE


def offered_protocols(request: Request) -> tuple[str, ...]:
    """Return the protocols that a request offers to change to (RFC 9110, section 7.8), in lower case, preferred ones
    first.
    """
    offer = request.headers.get("upgrade")
    if not offer or "upgrade" not in _tokens(request.headers.get("connection", "")):
        return ()
    return _tokens(offer)


def check_offered(request: Request, response: Response) -> None:
    """Raise RuntimeError for an answer that changes to a protocol which its request has not offered."""
    upgrade = response.body
    if isinstance(upgrade, Upgrade) and upgrade.protocol.lower() not in offered_protocols(request):
        raise RuntimeError(f"the client has not offered to change to {upgrade.protocol!r}")


def _tokens(value: str) -> tuple[str, ...]:
    return tuple(token.strip().lower() for token in value.split(",") if token.strip())
