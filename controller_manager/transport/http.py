"""The transport over HTTP and TLS, and the connections to one server that transports share whatever their credentials.

What is answered at once goes over connections of our own, with a third of the CPU; watches, and whatever a proxy
carries, through aiohttp.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from controller_manager.api.wire import Request, Response, offered_protocols
from controller_manager.transport.connection_pool import ConnectionPool, Origin
from controller_manager.transport.dialer import Dialer
from controller_manager.transport.duplex import SocketStream
from controller_manager.transport.metrics import TransportMetrics
from controller_manager.transport.transport import (
    LARGEST_BODY,
    NO_CREDENTIAL,
    ConfigError,
    Credential,
    Endpoint,
    TransportError,
    UnaskedUpgrade,
    client_context,
    is_watch,
    with_offer,
)

_READ_BUFFER = 1 << 20
_MOST_CONTEXTS = 4
CertificateAndKey = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The most connections for requests, the seconds to wait for a connection and for a byte, and the most bytes of an
    answer that is no watch, `LARGEST_BODY` by default.
    """

    connections: int = 64
    connect: float = 10.0
    read_timeout: float = 60.0
    largest_answer: int | None = None


DEFAULT_LIMITS = ConnectionLimits()


class Connections:
    """Opened when first needed, closed when the last of those who joined has left.

    Those for watches are apart from those for requests (`pool`), and as many as it takes. With a `dialer` there are
    those for requests only, and `ConfigError` is raised where the endpoint names a proxy of its own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        metrics: TransportMetrics | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        if dialer is not None and endpoint.proxy_url:
            raise ConfigError(f"the server {endpoint.server} has a proxy-url, but is reached by an egress selection")
        self._dialer = dialer
        self.endpoint = endpoint
        self.limits = limits
        self.metrics = metrics or TransportMetrics()
        self._users = 0
        self._contexts: dict[CertificateAndKey, ssl.SSLContext] = {}
        self.pool = ConnectionPool(
            limits.connections, limits.connect, limits.read_timeout, limits.largest_answer, dialer
        )
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None

    def join(self) -> None:
        """Use them."""
        self._users += 1
        if self._users > 1:
            self.metrics.shared()

    async def leave(self) -> None:
        """Use them no longer."""
        self._users -= 1
        if self._users > 0:
            return
        self.metrics.closed(len(self._contexts))
        self._contexts.clear()
        self.pool.close()
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None

    def for_requests(self) -> aiohttp.ClientSession:
        """The session for what is answered soon, where a proxy stands between."""
        if self._requests is None:
            limits = self.limits
            timeout = aiohttp.ClientTimeout(sock_connect=limits.connect, sock_read=limits.read_timeout)
            self._requests = session(limits.connections, timeout)
        return self._requests

    def for_watches(self) -> aiohttp.ClientSession:
        """The session for what goes on. Raises `TransportError` where a dialer must be used."""
        if self._dialer is not None:
            raise TransportError("no watch is carried over connections of a dialer")
        if self._watches is None:
            self._watches = session(0, aiohttp.ClientTimeout(sock_connect=self.limits.connect))
        return self._watches

    def context(self, pair: CertificateAndKey) -> ssl.SSLContext:
        """One context per certificate and key, so that its connections are used again: those of others never are.

        Raises `ConfigError` when authorities or certificate are unusable.
        """
        found = self._contexts.get(pair)
        if found is None:
            found = self._contexts[pair] = client_context(self.endpoint, *pair)
            self.metrics.made_context()
            if len(self._contexts) > _MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
                self.metrics.dropped_context()
        return found


def session(
    connections: int,
    timeout: aiohttp.ClientTimeout,
    read_buffer: int = _READ_BUFFER,
    to_one: int = 0,
    dialed: "DialedSockets | None" = None,
) -> aiohttp.ClientSession:
    """Return a session that adds nothing to what it carries, of at most so many connections, and so many `to_one`
    server; 0 sets no bound. Of each answer it holds about twice `read_buffer`. With `dialed`, URLs have its names.
    """
    return aiohttp.ClientSession(
        connector=_connector(connections, to_one, dialed),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        auto_decompress=False,  # nothing compressed is asked for: a few bytes must not become a gigabyte
        read_bufsize=read_buffer,
        trust_env=False,
    )


def _connector(connections: int, to_one: int, dialed: "DialedSockets | None") -> aiohttp.TCPConnector:
    if dialed is None:
        return aiohttp.TCPConnector(limit=connections, limit_per_host=to_one)
    return aiohttp.TCPConnector(
        limit=connections,
        limit_per_host=to_one,
        resolver=dialed,
        use_dns_cache=False,
        socket_factory=dialed.take,
    )


_NAMED = ".dialed"


class DialedSockets(AbstractResolver):
    """Has a session use connections of a dialer: it dials where the session resolves a name, and hands the socket over
    where that makes one. The session asks for addresses of `name_of`, since it would resolve no others.
    """

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._dialed: dict[int, socket.socket] = {}
        self._last = 0

    @staticmethod
    def name_of(host: str) -> str:
        """Return the name by which a session asks for a host."""
        return host.encode().hex() + _NAMED

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Dial, and return the number of the socket as an address; called by the session."""
        found = await self._dialer.dial(bytes.fromhex(host.removesuffix(_NAMED)).decode(), port)
        self._last += 1
        self._dialed[self._last] = found
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=self._last, family=socket.AF_INET, proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        ]  # fmt: skip

    def take(self, address: tuple[Any, ...]) -> socket.socket:
        """Return the socket of an address; called by the session."""
        return _Connected(fileno=self._dialed.pop(address[4][1]).detach())

    async def close(self) -> None:
        """Close what the session did not take."""
        for one in self._dialed.values():
            one.close()
        self._dialed.clear()


class _Connected(socket.socket):
    """A socket that is connected already."""

    def connect(self, address: object) -> None:
        """Called by the loop."""


_MOST_WORDS = 500  # characters of a reason
FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_PORTS = {"https": 443, "http": 80}
_PLAIN = re.compile(r"[A-Za-z0-9_.~/:-]*")  # what is not escaped in a path
_IDEMPOTENT = ("GET", "PUT", "DELETE")


class EndpointTransport:
    """Sends requests to one server; watches have connections of their own, so they never hold up a request.

    A request fails after `connect` seconds without a connection or `read_timeout` seconds without a byte; of a watch
    that holds until it has begun. Connections that are `shared` are used in place of its own. Raises `ConfigError` when
    the authorities are unusable.
    """

    def __init__(self, endpoint: Endpoint, shared: Connections | None = None) -> None:
        url = urlsplit(endpoint.server)
        self.host = url.netloc.rpartition("@")[2]
        self.authorities = endpoint.ca
        self._endpoint = endpoint
        self._path = url.path.rstrip("/")
        self._root = f"{url.scheme}://{self.host}{self._path}"
        self._address = url.hostname or "", url.port or _PORTS[url.scheme]
        self._secure = url.scheme == "https"
        self._connections = shared or Connections(endpoint)
        if shared is None:
            self._connections.context((b"", b""))
        self._connections.join()
        self._last: tuple[Credential, Origin] | None = None
        self._closed = False

    async def send(self, request: Request, credential: Credential = NO_CREDENTIAL) -> Response:
        """The answer. Raises `TransportError`, and `ConfigError` for a certificate that is not of its key."""
        try:
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
        """See `Transport`. Not through a proxy, which raises `TransportError`."""
        offer = with_offer(request)
        try:
            if self._endpoint.proxy_url:
                raise TransportError("no protocol can be changed through a proxy")
            written = self._written(offer, credential)
            response, stream = await self._connections.pool.upgrade(self._origin(credential), written)
            if stream is not None and response.headers.get("upgrade", "").lower() not in offered_protocols(offer):
                stream.abort()
                raise UnaskedUpgrade
        except FAILURES as error:
            raise self._failure(request, error) from error
        return response, stream

    async def close(self) -> None:
        """Close every connection that nobody else uses."""
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
        return TransportError(f"{self._named(request)}: {reason(error)}")

    def _origin(self, credential: Credential) -> Origin:
        if self._last is None or self._last[0] is not credential:
            tls = self._connections.context((credential.certificate, credential.key)) if self._secure else None
            self._last = credential, Origin(*self._address, tls, self._endpoint.tls_server_name or None)
        return self._last[1]

    def _written(self, request: Request, credential: Credential) -> bytes:
        """The request as it is sent (RFC 9112)."""
        headers = {"host": self.host, **credential.headers(request)}
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers["content-length"] = str(len(request.body))
        return head(request, self._path, headers.items()) + request.body

    def _arguments(self, request: Request, credential: Credential) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": URL(self._root + target(request), encoded=True),
            "headers": credential.headers(request),
            "data": request.body or None,
            "ssl": self._connections.context((credential.certificate, credential.key)),
            "server_hostname": self._endpoint.tls_server_name or None,
            "proxy": self._endpoint.proxy_url or None,
            "allow_redirects": False,
        }


def head(request: Request, root: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The request line and the headers (RFC 9112), for a path below `root`. Raises `TransportError` for a header that
    is none.
    """
    lines = [f"{request.method} {root}{target(request)} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1:
        raise TransportError("a header can't have several lines")
    return f"{text}\r\n\r\n".encode()


def target(request: Request) -> str:
    """Path and query, escaped, unless the request has them as they are to be sent."""
    if request.target:
        return request.target
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    path = request.path if _PLAIN.fullmatch(request.path) else quote(request.path, safe="/:")
    return path + query


class Chunks:
    """The body of an answer as it comes in; `aclose()` drops the connection at once. `named` is its request."""

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
    """All of it; one that is too large is given up as soon as that is known."""
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
    """In words; aiohttp's own would name the host once more, and the object that secures the connection."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return (str(error) or type(error).__name__)[:_MOST_WORDS]  # what is no HTTP is quoted at length
