"""The transport to one server over HTTP and TLS."""

import asyncio
import re
from collections.abc import Iterable
from urllib.parse import quote, urlencode, urlsplit

from msgspec.structs import replace

from controller_manager.common.api.wire import Request, Response, offered_protocols
from controller_manager.common.transport.client_connection import StreamedRequest, reason
from controller_manager.common.transport.connection_pool import ConnectionTarget
from controller_manager.common.transport.connections import Connections
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.transport import (
    NO_CREDENTIAL,
    Credential,
    Endpoint,
    TransportError,
    is_of_tls,
    is_watch,
    whole_body,
    with_offer,
)

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
        self._root = f"{url.scheme}://{self.host}{url.path.rstrip('/')}"
        self._connections = shared or Connections(endpoint)
        # A proxy gets the whole URL of a request that is not encrypted (RFC 9112, section 3.2.2).
        self._proxy = self._connections.proxy if url.scheme == "http" else None
        self._path = self._root if self._proxy else url.path.rstrip("/")
        reached = urlsplit(self._endpoint.proxy_url) if self._proxy else url
        self._address = reached.hostname or "", reached.port or _PORTS[reached.scheme]
        self._secure = reached.scheme == "https"
        if shared is None:
            self._connections.context((b"", b""))
        self._connections.join()
        self._name = None if self._proxy else endpoint.tls_server_name or None
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
            written = self._written(request, credential)
            idempotent = request.method in _IDEMPOTENT
            return await self._connections.pool.send(self._origin(credential), written, idempotent=idempotent)
        except OSError as error:
            raise self._failure(request, error) from error

    async def upgrade(
        self, request: Request, credential: Credential = NO_CREDENTIAL
    ) -> tuple[Response, SocketStream | None]:
        """See `Transport`."""
        offer = with_offer(request)
        try:
            self._connections.refresh()
            written = self._written(offer, credential)
            return await self._connections.pool.upgrade(self._origin(credential), written, offered_protocols(offer))
        except OSError as error:
            raise self._failure(request, error) from error

    async def close(self) -> None:
        """Close the connections, unless other transports share them."""
        if not self._closed:
            self._closed = True
            await self._connections.leave()

    async def _open(self, request: Request, credential: Credential) -> Response:
        asked = StreamedRequest(self._written(request, credential), self._named(request), idempotent=True)
        async with asyncio.timeout(self._connections.limits.read_timeout):
            response = await self._connections.watches.stream(self._origin(credential), asked)
            if response.status == 200:
                return response
            return replace(response, body=await whole_body(response))

    def _named(self, request: Request) -> str:
        return f"{request.method} {self._root}{request.path}"

    def _failure(self, request: Request, error: BaseException) -> TransportError:
        if is_of_tls(error):
            self._connections.distrust()
        named, why = self._named(request), reason(error)
        return TransportError(why if why.startswith(named) else f"{named}: {why}")

    def _origin(self, credential: Credential) -> ConnectionTarget:
        generation = self._connections.generation
        if self._last is None or self._last[0] is not credential or self._last[1] != generation:
            tls = self._connections.context((credential.certificate, credential.key)) if self._secure else None
            self._last = (
                credential,
                generation,
                ConnectionTarget(*self._address, tls, self._name),
            )
        return self._last[2]

    def _written(self, request: Request, credential: Credential) -> bytes:
        """Return the request in wire format (RFC 9112)."""
        lines = [("host", self.host), *credential.sign(request).header_lines()]
        if self._proxy is not None and self._proxy.authorization:
            lines.append(("proxy-authorization", self._proxy.authorization))
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            lines.append(("content-length", str(len(request.body))))
        return head(request, self._path, lines) + request.body


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
