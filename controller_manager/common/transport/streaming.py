"""Forwards requests: bodies and responses of any size are streamed, with little data in memory."""

import resource
from collections.abc import AsyncIterator

from controller_manager.common.api.wire import Request, Response, offered_protocols
from controller_manager.common.transport.client_connection import StreamedRequest, reason
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget, authority
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.http import head, target
from controller_manager.common.transport.transport import TransportError, with_offer

_CONNECT = 10.0  # seconds
_LARGEST_REFUSAL = 1 << 20  # bytes of the response of a server that rejects an upgrade
_HANDSHAKE = 60.0  # seconds until a server must answer an upgrade request
_MOST = 2000
_IDEMPOTENT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
_WITHOUT_LENGTH = ("GET", "HEAD", "OPTIONS")  # unless there is a body


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
        self._keep_host = keep_host
        self._streams = 0
        self._pool = ConnectionPool(
            self._most, connect, _HANDSHAKE, _LARGEST_REFUSAL, dialer, to_one=(self._most + 1) // 2
        )

    async def send(
        self, origin: ConnectionTarget, request: Request, body: AsyncIterator[bytes] | None = None
    ) -> Response:
        """Return the response with a streamed body; `body` is the request body if it is not in memory.

        Raises `TransportError`.
        """
        lines = [("host", self._host(origin, request)), *_headers(request)]
        is_chunked = body is not None and "content-length" not in request.headers
        if is_chunked:
            lines.append(("transfer-encoding", "chunked"))
        elif "content-length" not in request.headers and (request.body or request.method not in _WITHOUT_LENGTH):
            lines.append(("content-length", str(len(request.body))))
        try:
            asked = StreamedRequest(
                head(request, "", lines) + (request.body if body is None else b""),
                f"{request.method} {url_of(origin, request)}",
                idempotent=body is None and request.method in _IDEMPOTENT,
                is_head=request.method == "HEAD",
                body=body,
                is_chunked=is_chunked,
            )
            return await self._pool.stream(origin, asked)
        except (OSError, ValueError) as error:
            raise TransportError(reason(error)) from error

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
            response, stream = await self._pool.upgrade(origin, written, offered_protocols(offer))
        except (OSError, ValueError) as error:
            raise TransportError(reason(error)) from error
        if stream is not None:
            self._streams += 1
            stream.when_lost(self._lost)
        return response, stream

    def _host(self, origin: ConnectionTarget, request: Request) -> str:
        """Return the host header: without the default port, as clients send it."""
        if self._keep_host and "host" in request.headers:
            return request.headers["host"]
        return authority(origin).removesuffix(":443" if origin.tls else ":80")

    def _lost(self) -> None:
        self._streams -= 1

    async def close(self) -> None:
        """Close every connection; running transfers break."""
        self._pool.close()


def _connections() -> int:
    """Return a number of connections that leaves enough file descriptors for the rest of the process."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if most == resource.RLIM_INFINITY else min(most // 10, _MOST)


def url_of(origin: ConnectionTarget, request: Request) -> str:
    """Return the URL of a request."""
    return f"{'https' if origin.tls else 'http'}://{authority(origin)}{target(request)}"


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.header_lines() if name != "host"]
