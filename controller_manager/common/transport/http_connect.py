"""Tunnels through HTTP CONNECT proxies (RFC 9110, section 9.3.6), at a URL or a Unix socket."""

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from controller_manager.common.base.log import get_logger
from controller_manager.common.transport.duplex import SocketStream, StreamOpener
from controller_manager.common.transport.sockets import CarriedSockets, carry
from controller_manager.common.transport.transport import TransportError

_LONGEST_HEAD = 64 * 1024
_PIECE = 4096
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([^\r\n]*))?\r\n")
_END = b"\r\n\r\n"
_SHOWN = 100  # bytes of an invalid response shown in errors


class ProxyAddress(msgspec.Struct, frozen=True):
    """The address of a proxy: a Unix socket, or host and port, with TLS if `tls` is set. `authorization` is the value
    of the Proxy-Authorization header, if any.
    """

    uds_name: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    authorization: str = ""

    def __str__(self) -> str:
        return self.uds_name or f"{self.host}:{self.port}"


class HTTPConnectProxy:
    """Opens tunnels through one proxy, each over its own connection."""

    def __init__(self, address: ProxyAddress, sockets: CarriedSockets) -> None:
        self._address = address
        self._sockets = sockets

    async def connect(self) -> SocketStream:
        """Return a connection to the proxy. Raises OSError."""
        try:
            return await self._connect()
        except TimeoutError:
            raise
        except OSError as error:  # otherwise the error would be attributed to the target
            raise TransportError(f"failed to connect to the proxy {self._address}: {error}") from error

    async def _connect(self) -> SocketStream:
        loop, proxy = asyncio.get_running_loop(), self._address
        if proxy.uds_name:
            _, opener = await loop.create_unix_connection(StreamOpener, proxy.uds_name)
            return opener.stream
        name = (proxy.server_name or proxy.host) if proxy.tls else None
        _, opener = await loop.create_connection(
            StreamOpener, proxy.host, proxy.port, ssl=proxy.tls, server_hostname=name
        )
        return opener.stream

    async def tunnel(self, connection: SocketStream, address: str) -> socket.socket:
        """Return a socket to `address` (host:port) over a connection to the proxy, which is closed on failure. Raises
        OSError.
        """
        try:
            login = self._address.authorization
            shown = f"Proxy-Authorization: {login}\r\n" if login else ""
            await connection.write(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{shown}\r\n".encode())
            early = await self._accepted(connection, address)
            return await self._sockets.open(lambda stream: carry(stream, connection, early))
        except BaseException:
            connection.abort()
            raise

    async def _accepted(self, connection: SocketStream, address: str) -> bytes:
        """Read the response head; return the bytes after it, which are the first data of the target."""
        head = bytearray()
        while _END not in head:
            piece = await connection.read(_PIECE)
            if not piece:
                raise TransportError(f"the proxy {self._address} closed the connection during a CONNECT to {address}")
            head += piece
            if len(head) > _LONGEST_HEAD:
                raise TransportError(f"the response header of the proxy {self._address} is too large")
        answer = _STATUS_LINE.match(head)
        if answer is None:
            raise TransportError(f"the proxy {self._address} sent a malformed status line: {bytes(head[:_SHOWN])!r}")
        if answer[1] != b"200":
            status = f"{answer[1].decode()} {(answer[2] or b'')[:_SHOWN].decode('latin-1')}".strip()
            raise TransportError(f"the proxy {self._address} responded {status} to a CONNECT to {address}")
        return bytes(head[head.index(_END) + len(_END) :])


class EndpointProxy:
    """A `Dialer` through the proxy of an endpoint, a URL. `context` returns the TLS context for an https proxy."""

    def __init__(self, url: str, context: Callable[[], ssl.SSLContext]) -> None:
        self._url = urlsplit(url)
        self._context = context
        self._sockets = CarriedSockets(get_logger("proxy"))
        self.authorization = _login(self._url)

    async def dial(self, host: str, port: int) -> socket.socket:
        """See `Dialer`."""
        url, is_secure = self._url, self._url.scheme == "https"
        address = ProxyAddress(
            host=url.hostname or "",
            port=url.port or (443 if is_secure else 80),
            tls=self._context() if is_secure else None,
            authorization=self.authorization,
        )
        proxy = HTTPConnectProxy(address, self._sockets)
        return await proxy.tunnel(await proxy.connect(), f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    async def close(self) -> None:
        """Close all tunnels; later ones work again."""
        sockets, self._sockets = self._sockets, CarriedSockets(get_logger("proxy"))
        await sockets.close()


def _login(url: SplitResult) -> str:
    """Return the credentials of a URL as a header value (RFC 7617); empty without any."""
    if url.username is None:
        return ""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
