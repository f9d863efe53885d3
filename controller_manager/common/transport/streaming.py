"""Forwards requests: bodies and responses of any size are streamed, with little data in memory."""

import resource
from collections.abc import AsyncIterator

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from controller_manager.common.api.wire import Request, Response, offered_protocols
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget, authority
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.http import FAILURES, Chunks, head, reason, target
from controller_manager.common.transport.session import DialedSockets, session
from controller_manager.common.transport.transport import TransportError, UnaskedUpgrade, with_offer

_BUFFER = 64 * 1024  # buffered bytes of a response; aiohttp may hold about twice that
_CONNECT = 10.0  # seconds
_LARGEST_REFUSAL = 1 << 20  # bytes of the response of a server that rejects an upgrade
_HANDSHAKE = 60.0  # seconds until a server must answer an upgrade request
_MOST = 2000
_SWITCHING = 101
_NO_BODY = (204, 304)


class StreamingTransport:
    """Sends requests to any origin whose certificate is valid; connections are reused.

    The headers of a request are sent unchanged, except `host`, which is the origin unless `keep_host` is set. The time
    to read a response is not limited. There are at most `connections` connections, half of them to one origin, and as
    many upgraded ones. A request without a free connection fails after `connect` seconds. Without a `dialer`
    connections are direct.
    """

    def __init__(
        self,
        connections: int | None = None,
        dialer: Dialer | None = None,
        *,
        connect: float = _CONNECT,
        keep_host: bool = False,
    ) -> None:
        self._most = connections or _connections()
        self._connect = connect
        self._keep_host = keep_host
        self._dialed = None if dialer is None else DialedSockets(dialer)
        self._streams = 0
        self._session: aiohttp.ClientSession | None = None
        self._pool = ConnectionPool(1, connect, _HANDSHAKE, largest_body=_LARGEST_REFUSAL, dialer=dialer)

    async def send(
        self, origin: ConnectionTarget, request: Request, body: AsyncIterator[bytes] | None = None
    ) -> Response:
        """Return the response with a streamed body; `body` is the request body if it is not in memory.

        Raises `TransportError`.
        """
        if self._session is None:
            timeout = aiohttp.ClientTimeout(connect=self._connect)
            self._session = session(self._most, timeout, _BUFFER, to_one=(self._most + 1) // 2, dialed=self._dialed)
        url, headers = url_of(origin, request), CIMultiDict(_headers(request))
        reached = url
        if self._dialed is not None:
            reached = url_of(origin._replace(host=self._dialed.name_of(origin.host)), request)
            headers["host"] = URL(url, encoded=True).host_port_subcomponent or ""
        if self._keep_host and "host" in request.headers:
            headers["host"] = request.headers["host"]
        try:
            answer = await self._session.request(
                request.method,
                URL(reached, encoded=True),
                headers=headers,
                data=_Once(body) if body is not None else request.body or None,
                ssl=origin.tls or False,
                server_hostname=origin.name or origin.host,
                allow_redirects=False,
            )
        except (*FAILURES, ValueError) as error:
            raise TransportError(reason(error)) from error
        if answer.status == _SWITCHING:
            answer.close()
            raise UnaskedUpgrade
        folded, repeated = _folded(answer.headers)
        if answer.status in _NO_BODY:
            answer.release()
            return Response(answer.status, folded, b"", repeated)
        return Response(answer.status, folded, Chunks(answer, f"{request.method} {url}"), repeated)

    async def upgrade(self, origin: ConnectionTarget, request: Request) -> tuple[Response, SocketStream | None]:
        """Return the response to an upgrade request, and the stream on its own connection if the status is 101. Raises
        `TransportError`.
        """
        offer = with_offer(request)
        if self._streams >= self._most:
            raise TransportError("too many upgraded connections")
        try:
            host = (self._keep_host and offer.headers.get("host")) or authority(origin)
            written = head(offer, "", [("host", host), *_headers(offer)]) + offer.body
            response, stream = await self._pool.upgrade(origin, written)
            if stream is not None and response.headers.get("upgrade", "").lower() not in offered_protocols(offer):
                stream.abort()
                raise UnaskedUpgrade
        except (*FAILURES, ValueError) as error:
            raise TransportError(reason(error)) from error
        if stream is not None:
            self._streams += 1
            stream.when_lost(self._lost)
        return response, stream

    def _lost(self) -> None:
        self._streams -= 1

    async def close(self) -> None:
        """Close every connection; running transfers break."""
        self._pool.close()
        if self._session is not None:
            await self._session.close()
            self._session = None


def _connections() -> int:
    """Return a number of connections that leaves enough file descriptors for the rest of the process."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if most == resource.RLIM_INFINITY else min(most // 10, _MOST)


class _Once:
    """A body that can be sent once: if its connection breaks, the rest is not sent on another one."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body: AsyncIterator[bytes] | None = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        body, self._body = self._body, None
        if body is None:
            raise TransportError("the server hung up")
        return body.__aiter__()


def url_of(origin: ConnectionTarget, request: Request) -> str:
    """Return the URL of a request."""
    return f"{'https' if origin.tls else 'http'}://{authority(origin)}{target(request)}"


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.header_lines() if name != "host"]


def _folded(headers: CIMultiDictProxy[str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return headers by lower-case name with joined values, and separately the values of repeated headers."""
    apart: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        apart[name.lower()] = (*apart.get(name.lower(), ()), value)
    repeated = {name: values for name, values in apart.items() if len(values) > 1}
    return {name: ", ".join(values) for name, values in apart.items()}, repeated
