"""The transport to one server over HTTP and TLS.

Requests use our own connections, which need a third of the CPU time of aiohttp. Watches, and requests through a
proxy, use aiohttp.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from controller_manager.common.api.wire import Request, Response, offered_protocols
from controller_manager.common.transport.connection_pool import ConnectionTarget
from controller_manager.common.transport.connections import Connections
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.transport import (
    LARGEST_BODY,
    NO_CREDENTIAL,
    Credential,
    Endpoint,
    TransportError,
    UnaskedUpgrade,
    is_of_tls,
    is_watch,
    with_offer,
)

_MOST_WORDS = 500  # characters of an error text
FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_PORTS = {"https": 443, "http": 80}
_PLAIN = re.compile(r"[A-Za-z0-9_.~/:-]*")  # not escaped in a path
_IDEMPOTENT = ("GET", "PUT", "DELETE")


class EndpointTransport:
    """Sends requests to one server. Watches have their own connections, so they never delay a request.

    A request fails after `connect` seconds without a connection or `read_timeout` seconds without data; for a watch,
    these limits apply until its response begins. `shared` connections replace its own. Raises `ConfigError` if the CA
    certificates are unusable.
    """

    def __init__(self, endpoint: Endpoint, shared: Connections | None = None) -> None:
        url = urlsplit(endpoint.server)
        self.host = url.netloc.rpartition("@")[2]
        self._endpoint = endpoint
        self._path = url.path.rstrip("/")
        self._root = f"{url.scheme}://{self.host}{self._path}"
        self._address = url.hostname or "", url.port or _PORTS[url.scheme]
        self._secure = url.scheme == "https"
        self._connections = shared or Connections(endpoint)
        if shared is None:
            self._connections.context((b"", b""))
        self._connections.join()
        self._last: tuple[Credential, int, ConnectionTarget] | None = None
        self._closed = False

    @property
    def authorities(self) -> bytes:
        """See `Transport`."""
        return self._connections.authorities

    async def send(self, request: Request, credential: Credential = NO_CREDENTIAL) -> Response:
        """Return the response. Raises `TransportError`, and `ConfigError` for a certificate that does not match its
        key.
        """
        try:
            self._connections.refresh()
            if is_watch(request):
                return await self._open(request, credential)
            if self._endpoint.proxy_url:
                return await self._send_through_proxy(request, credential)
            written = self._written(request, credential)
            idempotent = request.method in _IDEMPOTENT
            return await self._connections.pool.send(self._origin(credential), written, idempotent=idempotent)
        except FAILURES as error:
            raise self._failure(request, error) from error

    async def upgrade(
        self, request: Request, credential: Credential = NO_CREDENTIAL
    ) -> tuple[Response, SocketStream | None]:
        """See `Transport`. Raises `TransportError` if a proxy is configured."""
        offer = with_offer(request)
        try:
            self._connections.refresh()
            if self._endpoint.proxy_url:
                raise TransportError("upgrades are not supported through a proxy")
            written = self._written(offer, credential)
            response, stream = await self._connections.pool.upgrade(self._origin(credential), written)
            if stream is not None and response.headers.get("upgrade", "").lower() not in offered_protocols(offer):
                stream.abort()
                raise UnaskedUpgrade
        except FAILURES as error:
            raise self._failure(request, error) from error
        return response, stream

    async def close(self) -> None:
        """Close the connections, unless other transports share them."""
        if not self._closed:
            self._closed = True
            await self._connections.leave()

    async def _send_through_proxy(self, request: Request, credential: Credential) -> Response:
        async with self._connections.for_requests().request(**self._arguments(request, credential)) as answer:
            return Response(
                answer.status,
                _lower(answer),
                await _body(answer, self._connections.limits.largest_answer or LARGEST_BODY),
            )

    async def _open(self, request: Request, credential: Credential) -> Response:
        async with asyncio.timeout(self._connections.limits.read_timeout):
            answer = await self._connections.for_watches().request(**self._arguments(request, credential))
            if answer.status == 200:
                return Response(200, _lower(answer), Chunks(answer, self._named(request)))
            async with answer:
                return Response(answer.status, _lower(answer), await _body(answer, LARGEST_BODY))

    def _named(self, request: Request) -> str:
        return f"{request.method} {self._root}{request.path}"

    def _failure(self, request: Request, error: BaseException) -> TransportError:
        if is_of_tls(error):
            self._connections.distrust()
        return TransportError(f"{self._named(request)}: {reason(error)}")

    def _origin(self, credential: Credential) -> ConnectionTarget:
        generation = self._connections.generation
        if self._last is None or self._last[0] is not credential or self._last[1] != generation:
            tls = self._connections.context((credential.certificate, credential.key)) if self._secure else None
            self._last = (
                credential,
                generation,
                ConnectionTarget(*self._address, tls, self._endpoint.tls_server_name or None),
            )
        return self._last[2]

    def _written(self, request: Request, credential: Credential) -> bytes:
        """Return the request in wire format (RFC 9112)."""
        lines = [("host", self.host), *credential.sign(request).header_lines()]
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            lines.append(("content-length", str(len(request.body))))
        return head(request, self._path, lines) + request.body

    def _arguments(self, request: Request, credential: Credential) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": URL(self._root + target(request), encoded=True),
            "headers": list(credential.sign(request).header_lines()),
            "data": request.body or None,
            "ssl": self._connections.context((credential.certificate, credential.key)),
            "server_hostname": self._endpoint.tls_server_name or None,
            "proxy": self._endpoint.proxy_url or None,
            "allow_redirects": False,
        }


def head(request: Request, root: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the request line and headers (RFC 9112), for a path below `root`. Raises `TransportError` for a malformed
    header.
    """
    lines = [f"{request.method} {root}{target(request)} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1:
        raise TransportError("a header can't have several lines")
    return f"{text}\r\n\r\n".encode()


def target(request: Request) -> str:
    """Return the escaped path and query, or `request.target` unchanged if it is set."""
    if request.target:
        return request.target
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    path = request.path if _PLAIN.fullmatch(request.path) else quote(request.path, safe="/:")
    return path + query


class Chunks:
    """The streamed body of a response; `aclose()` closes the connection at once. `named` describes the request."""

    def __init__(self, answer: aiohttp.ClientResponse, named: str) -> None:
        self._answer = answer
        self._named = named

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._answer.content.readany()
        except FAILURES as error:
            self._answer.close()
            raise TransportError(f"{self._named}: {reason(error)}") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        self._answer.close()


async def _body(answer: aiohttp.ClientResponse, largest: int) -> bytes:
    """Return the whole body; stop reading as soon as it is known to be too large."""
    parts, size, known = [], 0, answer.content_length or 0
    while known <= largest and (part := await answer.content.readany()):
        parts.append(part)
        size += len(part)
        known = max(known, size)
    if known > largest:
        raise TransportError(f"the answer is larger than {largest} bytes")
    return b"".join(parts)


def _lower(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def reason(error: BaseException) -> str:
    """Return an error as text. aiohttp's own text would repeat the host and include the TLS object."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return (str(error) or type(error).__name__)[:_MOST_WORDS]  # errors about invalid HTTP quote a lot of it
