"""aiohttp sessions that do not modify requests and responses; optionally with connections from a dialer."""

import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from controller_manager.common.transport.dialer import Dialer

_READ_BUFFER = 1 << 20
_NAMED = ".dialed"


def session(
    connections: int,
    timeout: aiohttp.ClientTimeout,
    read_buffer: int = _READ_BUFFER,
    to_one: int = 0,
    dialed: "DialedSockets | None" = None,
) -> aiohttp.ClientSession:
    """Return a session that adds no headers. It has at most `connections` connections, and at most `to_one` to each
    server; 0 means no limit. It buffers about twice `read_buffer` of each response. With `dialed`, URLs use its names.
    """
    return aiohttp.ClientSession(
        connector=_connector(connections, to_one, dialed),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        auto_decompress=False,  # we never request compression, and a few bytes must not expand to a gigabyte
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


class DialedSockets(AbstractResolver):
    """Lets a session use connections from a dialer: it dials when the session resolves a name, and returns the socket
    when the session creates one. The URLs must contain `name_of(host)`; the session does not resolve other forms.
    """

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._dialed: dict[int, socket.socket] = {}
        self._last = 0

    @staticmethod
    def name_of(host: str) -> str:
        """Return the name to use for a host in the URLs of the session."""
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
        """Return the socket for an address; called by the session."""
        return _Connected(fileno=self._dialed.pop(address[4][1]).detach())

    async def close(self) -> None:
        """Close sockets that the session did not use."""
        for one in self._dialed.values():
            one.close()
        self._dialed.clear()


class _Connected(socket.socket):
    """A socket that is already connected."""

    def connect(self, address: object) -> None:
        """Called by the loop."""
