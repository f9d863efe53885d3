"""Forwards requests to another server and responses back: hop-by-hop headers are removed, bodies and upgraded
connections are streamed.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from typing import Self

from msgspec.structs import replace

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.serving.authentication import WEBSOCKET_PROTOCOL, RequestHeaderConfig, without_token
from controller_manager.common.transport.duplex import SocketStream, relay
from controller_manager.common.transport.transport import TransportError, close_body, known_length

_SMALL = 64 * 1024  # bytes of a response body that is forwarded at once
_PROXY_USER = "x-remote-"  # prefix of headers in which this server sends the user
# Hop-by-hop headers (RFC 9110, section 7.6.1), and headers that identify the caller.
_KEPT_BACK = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "trailers", "transfer-encoding", "upgrade", "expect", "host", "authorization", "audit-id", f"{_PROXY_USER}user",
    f"{_PROXY_USER}uid", f"{_PROXY_USER}group",
})  # fmt: skip
_PREFIXES = (f"{_PROXY_USER}extra-", "impersonate-")
_NO_PROXIES = RequestHeaderConfig()


def without_caller(request: Request, proxies: RequestHeaderConfig = _NO_PROXIES) -> Request:
    """Return a request with the headers for another server, without hop-by-hop headers, credentials and those in which
    `proxies` of this server name users.
    """
    named = _listed(request.headers.get("connection", ""))
    kept = {
        name: value
        for name, value in request.headers.items()
        if not (name in named or name in _KEPT_BACK or name.startswith(_PREFIXES) or proxies.uses(name))
    }
    if WEBSOCKET_PROTOCOL in kept:
        kept[WEBSOCKET_PROTOCOL] = without_token(kept[WEBSOCKET_PROTOCOL])
    apart = {name: values for name, values in request.repeated.items() if name in kept and name != WEBSOCKET_PROTOCOL}
    return replace(request, headers=kept, repeated=apart, certificate=None, unread=None, target="")


def returned(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a response without hop-by-hop and framing headers."""
    named = _listed(headers.get("connection", ""))
    return {
        name: value
        for name, value in headers.items()
        if name not in named and name != "content-length" and name not in _KEPT_BACK
    }


async def passed_back(response: Response, ends_at: float = math.inf) -> Response:
    """Return a response for the caller: a small body at once, a larger one as a stream until `ends_at` (loop time)."""
    headers = returned(response.headers)
    apart = {name: values for name, values in response.repeated.items() if name in headers}
    return Response(response.status, headers, await _passing(response, ends_at), apart)


def upgraded(response: Response, stream: SocketStream) -> Response:
    """Return the response that connects the caller to the other end of a stream."""
    return Response(101, returned(response.headers), Upgrade(response.headers["upgrade"], Relay(stream).serve))


async def _passing(response: Response, ends_at: float) -> bytes | AsyncIterator[bytes]:
    """Return a small body at once, a larger one as a stream."""
    body = response.body
    assert not isinstance(body, Upgrade)
    length = known_length(response)
    if isinstance(body, bytes):
        return body
    if length is None or length > _SMALL:
        return PassingBody(body, ends_at)
    try:
        return b"".join([part async for part in body])
    finally:
        await close_body(response)


class PassingBody(AsyncIterator[bytes]):
    """A streamed response body until `ends_at` (loop time); then it is cut off."""

    def __init__(self, body: AsyncIterator[bytes], ends_at: float = math.inf) -> None:
        self._body = body
        self._ends_at = ends_at

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._ends_at == math.inf:
            return await anext(self._body)
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await anext(self._body)
        except TimeoutError:
            raise TransportError("timed out while reading the response") from None

    async def aclose(self) -> None:
        """Close the body."""
        if aclose := getattr(self._body, "aclose", None):
            await aclose()


class Relay:
    """Forwards bytes between a caller and the stream of a server, both ways, until one of them ends.

    If it is never started because the caller has disconnected, it closes the stream.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._began = False

    def __del__(self) -> None:
        if not self._began:
            self._stream.abort()

    async def serve(self, caller: DuplexStream) -> None:
        """Carry until one of them ends. Raises ConnectionError."""
        self._began = True
        try:
            await relay(caller, self._stream)
        except BaseException:
            self._stream.abort()
            raise
        await self._stream.aclose()


def _listed(value: str) -> frozenset[str]:
    return frozenset(token.strip().lower() for token in value.split(","))
