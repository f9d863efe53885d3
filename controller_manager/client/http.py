"""The transport over HTTP and TLS. What is answered at once goes over wires of our own, with a third of the CPU;
watches, and whatever a proxy carries, through aiohttp.
"""

import asyncio
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from controller_manager.api.wire import DuplexStream, Request, Response, offered_protocols
from controller_manager.client.config import ClientConfig
from controller_manager.client.connection_pool import Origin
from controller_manager.client.connections import Connections, Limits
from controller_manager.client.credentials import Credential, Credentials, Obtain, from_identity
from controller_manager.client.plugin import from_plugin
from controller_manager.client.transport import LARGEST_BODY, TransportError, UnaskedUpgrade, is_watch, with_offer
from controller_manager.client.transport_metrics import TransportMetrics
from controller_manager.transport.duplex import SocketStream

_MOST_WORDS = 500  # characters of a reason
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_PORTS = {"https": 443, "http": 80}
_IDEMPOTENT = ("GET", "PUT", "DELETE")


class HttpTransport:
    """Sends requests to one server; watches have connections of their own, so they never hold up a request.

    A request fails after `connect` seconds without a connection or `read_timeout` seconds without a byte; of a watch
    that holds until it has begun. `obtain` gives credentials in place of those of `config`; connections that are
    `shared` are used in place of its own. Raises `ConfigError` when authorities or certificate are unusable.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        obtain: Obtain | None = None,
        connections: int = 64,
        connect: float = 10.0,
        read_timeout: float = 60.0,
        shared: Connections | None = None,
    ) -> None:
        url = urlsplit(config.server)
        self.host = url.netloc.rpartition("@")[2]
        self.authorities = config.ca
        self._config = config
        self._path = url.path.rstrip("/")
        self._root = f"{url.scheme}://{self.host}{self._path}"
        self._address = url.hostname or "", url.port or _PORTS[url.scheme]
        self._secure = url.scheme == "https"
        self._shared = shared or Connections(config, Limits(connections, connect, read_timeout))
        self._credentials = Credentials(_usable(obtain or _obtain(config, self._shared.metrics), self._shared))
        self._shared.context((b"", b"") if obtain else (config.identity.certificate, config.identity.key))
        self._shared.join()
        self._closed = False

    def with_credentials(self, obtain: Obtain) -> "HttpTransport":
        """A transport over the same connections, with the credentials that `obtain` gives; each is to be closed."""
        return HttpTransport(self._config, obtain=obtain, shared=self._shared)

    async def send(self, request: Request) -> Response:
        """The answer; one of 401 is asked for again with renewed credentials. Raises `TransportError`, also when there
        are no credentials to be had.
        """
        return await self._credentials.send(request, self._exchange)

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """See `Transport`. Not through a proxy, which raises `TransportError`."""
        opened: SocketStream | None = None
        offer = with_offer(request)

        async def switch(request: Request, credential: Credential) -> Response:
            nonlocal opened
            response, opened = await self._switch(request, credential)
            return response

        return await self._credentials.send(offer, switch), opened

    async def close(self) -> None:
        """Close every connection that nobody else uses."""
        if not self._closed:
            self._closed = True
            await self._shared.leave()

    async def _exchange(self, request: Request, credential: Credential) -> Response:
        origin = f"{request.method} {self._root}{request.path}"
        try:
            if is_watch(request):
                return await self._open(request, credential, origin)
            return await self._ask(request, credential)
        except _FAILURES as error:
            raise TransportError(f"{origin}: {_reason(error)}") from error

    async def _switch(self, request: Request, credential: Credential) -> tuple[Response, SocketStream | None]:
        origin = f"{request.method} {self._root}{request.path}"
        if self._config.proxy_url:
            raise TransportError(f"{origin}: no protocol can be changed through a proxy")
        try:
            written = self._written(request, credential)
            response, stream = await self._shared.wires.upgrade(self._place(credential), written)
        except _FAILURES as error:
            raise TransportError(f"{origin}: {_reason(error)}") from error
        if stream is not None and response.headers.get("upgrade", "").lower() not in offered_protocols(request):
            stream.abort()
            raise UnaskedUpgrade
        return response, stream

    async def _ask(self, request: Request, credential: Credential) -> Response:
        if not self._config.proxy_url:
            wires, place = self._shared.wires, self._place(credential)
            return await wires.ask(place, self._written(request, credential), idempotent=request.method in _IDEMPOTENT)
        async with self._shared.for_requests().request(**self._arguments(request, credential)) as answer:
            return Response(answer.status, _lower(answer), await _body(answer))

    async def _open(self, request: Request, credential: Credential, origin: str) -> Response:
        async with asyncio.timeout(self._shared.limits.read_timeout):
            answer = await self._shared.for_watches().request(**self._arguments(request, credential))
            if answer.status == 200:
                return Response(200, _lower(answer), _Chunks(answer, origin))
            async with answer:
                return Response(answer.status, _lower(answer), await _body(answer))

    def _place(self, credential: Credential) -> Origin:
        tls = self._shared.context((credential.certificate, credential.key)) if self._secure else None
        return Origin(*self._address, tls, self._config.tls_server_name or None)

    def _written(self, request: Request, credential: Credential) -> bytes:
        """The request as it is sent (RFC 9112)."""
        headers = {"host": self.host, **_headers(request, credential)}
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers["content-length"] = str(len(request.body))
        lines = [f"{request.method} {self._path}{_target(request)} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join(lines)
        if head.count("\r") != len(headers) or head.count("\n") != len(headers):
            raise TransportError("a header can't have several lines")
        return f"{head}\r\n\r\n".encode() + request.body

    def _arguments(self, request: Request, credential: Credential) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": URL(self._root + _target(request), encoded=True),
            "headers": _headers(request, credential),
            "data": request.body or None,
            "ssl": self._shared.context((credential.certificate, credential.key)),
            "server_hostname": self._config.tls_server_name or None,
            "proxy": self._config.proxy_url or None,
            "allow_redirects": False,
        }


def _headers(request: Request, credential: Credential) -> dict[str, str]:
    shown = {"authorization": f"Bearer {credential.token}"} if credential.token else {}
    return {**request.headers, **shown}


def _target(request: Request) -> str:
    """Path and query, escaped."""
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return quote(request.path, safe="/:") + query


def _obtain(config: ClientConfig, metrics: TransportMetrics) -> Obtain:
    plugin = config.identity.plugin
    return from_plugin(config, plugin, metrics) if plugin else from_identity(config.identity)


def _usable(obtain: Obtain, connections: Connections) -> Obtain:
    """Refuses a certificate without its key, so that while files are renewed the pair before them stays in use."""

    async def obtain_usable(now: float) -> Credential:
        found = await obtain(now)
        connections.context((found.certificate, found.key))
        return found

    return obtain_usable


class _Chunks:
    """The body of a watch as it comes in; `aclose()` drops the connection at once."""

    def __init__(self, answer: aiohttp.ClientResponse, origin: str) -> None:
        self._answer = answer
        self._origin = origin

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._answer.content.readany()
        except _FAILURES as error:
            self._answer.close()
            raise TransportError(f"{self._origin}: {_reason(error)}") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        self._answer.close()


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """All of it; one that is too large is given up as soon as that is known."""
    parts, size, known = [], 0, answer.content_length or 0
    while known <= LARGEST_BODY and (part := await answer.content.readany()):
        parts.append(part)
        size += len(part)
        known = max(known, size)
    if known > LARGEST_BODY:
        raise TransportError(f"the answer is larger than {LARGEST_BODY} bytes")
    return b"".join(parts)


def _lower(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _reason(error: BaseException) -> str:
    """In words; aiohttp's own would name the host once more, and the object that secures the connection."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return (str(error) or type(error).__name__)[:_MOST_WORDS]  # what is no HTTP is quoted at length
