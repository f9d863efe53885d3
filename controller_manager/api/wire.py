"""One request and one answer of the HTTP API, as plain values; both the client and the server speak in these."""

import math
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

_NONE: Mapping[str, str] = MappingProxyType({})
_NOTHING_TWICE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Certificate(Struct, frozen=True):
    """The verified client certificate of a connection (its subject; RFC 4514 attributes CN and O).

    `root` is the SHA-256 of the authority its chain ends in, in hexadecimal; `expires` in wall seconds.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    root: str = ""
    expires: float = math.inf


class Unread(Protocol):
    """A body that is still on the wire."""

    async def read(self, caller: str) -> bytes:
        """All of it, for a caller known by that name; raises an ApiError if it is too large or there is no room."""


class Request(Struct, frozen=True):
    """An HTTP request: `path` is percent-decoded, `query` in order of appearance, header names in lower case.

    A header that came several times has its values joined with commas in `headers`, and apart in `repeated`. From a
    socket a body comes `unread`, so that it is read only for who is let in; within a process `body` is there at once.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = _NONE
    body: bytes = b""
    certificate: Certificate | None = None
    repeated: Mapping[str, tuple[str, ...]] = _NOTHING_TWICE
    unread: Unread | None = None

    async def received(self, caller: str) -> "Request":
        """The request with its body, read for `caller`. Raises as `Unread.read`."""
        return self if self.unread is None else replace(self, body=await self.unread.read(caller), unread=None)

    def values(self, header: str) -> tuple[str, ...]:
        """Every value of a header as it came; a comma in one divides nothing."""
        apart = self.repeated.get(header)
        if apart is not None:
            return apart
        return (self.headers[header],) if header in self.headers else ()


class Response(Struct, frozen=True):
    """An HTTP answer: `body` is whole, or a stream of chunks that its reader closes with `aclose()`.

    A header that is to come several times has its values joined with commas in `headers`, and apart in `repeated`.
    """

    status: int
    headers: Mapping[str, str] = _NONE
    body: "bytes | AsyncIterator[bytes]" = b""
    repeated: Mapping[str, tuple[str, ...]] = _NOTHING_TWICE
