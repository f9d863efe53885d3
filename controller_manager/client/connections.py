"""Connections to one API server, for all transports that share them whatever their credentials."""

import ssl
from dataclasses import dataclass

import aiohttp

from controller_manager.client.config import ClientConfig
from controller_manager.client.connection_pool import ConnectionPool
from controller_manager.client.tls import client_context
from controller_manager.client.transport_metrics import TransportMetrics

_READ_BUFFER = 1 << 20
_MOST_CONTEXTS = 4
Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there are for requests, and the seconds without a connection and without a byte."""

    connections: int = 64
    connect: float = 10.0
    read_timeout: float = 60.0


class Connections:
    """Opened when first needed, closed when the last of those who joined has left.

    Those for watches are apart from those for requests (`wires`), and as many as it takes.
    """

    def __init__(self, config: ClientConfig, limits: Limits, metrics: TransportMetrics | None = None) -> None:
        self.config = config
        self.limits = limits
        self.metrics = metrics or TransportMetrics()
        self._users = 0
        self._contexts: dict[Pair, ssl.SSLContext] = {}
        self.wires = ConnectionPool(limits.connections, limits.connect, limits.read_timeout)
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
        self.wires.close()
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None

    def for_requests(self) -> aiohttp.ClientSession:
        """The session for what is answered soon, where a proxy stands between."""
        if self._requests is None:
            limits = self.limits
            timeout = aiohttp.ClientTimeout(sock_connect=limits.connect, sock_read=limits.read_timeout)
            self._requests = _session(limits.connections, timeout)
        return self._requests

    def for_watches(self) -> aiohttp.ClientSession:
        """The session for what goes on."""
        if self._watches is None:
            self._watches = _session(0, aiohttp.ClientTimeout(sock_connect=self.limits.connect))
        return self._watches

    def context(self, pair: Pair) -> ssl.SSLContext:
        """One context per certificate and key, so that its connections are used again: those of others never are.

        Raises `ConfigError` when authorities or certificate are unusable.
        """
        found = self._contexts.get(pair)
        if found is None:
            found = self._contexts[pair] = client_context(self.config, *pair)
            self.metrics.made_context()
            if len(self._contexts) > _MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
                self.metrics.dropped_context()
        return found


def _session(connections: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type"),
        auto_decompress=False,  # nothing compressed is asked for: a few bytes must not become a gigabyte
        read_bufsize=_READ_BUFFER,
        trust_env=False,
    )
