"""Connections to one server, shared by transports with any credentials."""

import ssl
import sys

import msgspec

from controller_manager.common.transport.authorities import ServerAuthorities
from controller_manager.common.transport.connection_pool import ConnectionPool
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.http_connect import EndpointProxy
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import ConfigError, Endpoint

_MOST_CONTEXTS = 4
CertificateAndKey = tuple[bytes, bytes]


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits: connections for requests, seconds to wait for a connection and for data, and bytes of a response other
    than a watch (default `LARGEST_BODY`).
    """

    connections: int = 64
    connect: float = 10.0
    read_timeout: float = 60.0
    largest_answer: int | None = None


DEFAULT_LIMITS = ConnectionLimits()


class Connections:
    """Connections to one server, opened on first use and closed when the last user has left.

    Requests use `pool`; watches use `watches`, which is unlimited. Raises `ConfigError` for a `dialer` if the endpoint
    has its own `proxy`.
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
        self.limits = limits
        self.metrics = metrics or TransportMetrics()
        self._authorities = ServerAuthorities(endpoint, self.metrics)
        self.generation = 0
        """Number of changes of the CA certificates; contexts of an earlier generation must not be used for new
        requests.
        """
        self._users = 0
        self._contexts: dict[CertificateAndKey, ssl.SSLContext] = {}
        self.proxy = EndpointProxy(endpoint.proxy_url, self._proxy_context) if endpoint.proxy_url else None
        if self.proxy is not None and endpoint.server.startswith("https:"):
            dialer = self.proxy
        self.pool = ConnectionPool(
            limits.connections, limits.connect, limits.read_timeout, limits.largest_answer, dialer
        )
        self.watches = ConnectionPool(sys.maxsize, limits.connect, limits.read_timeout, dialer=dialer)

    def join(self) -> None:
        """Register a user of the connections."""
        self._users += 1
        if self._users > 1:
            self.metrics.shared()

    async def leave(self) -> None:
        """Unregister a user; the last one closes the connections."""
        self._users -= 1
        if self._users > 0:
            return
        self.metrics.closed(len(self._contexts))
        self._contexts.clear()
        self.pool.close()
        self.watches.close()
        if self.proxy is not None:
            await self.proxy.close()

    @property
    def authorities(self) -> bytes:
        """Return the CA certificates (PEM) that verify the server; empty for those of the system."""
        return self._authorities.endpoint.ca

    def refresh(self) -> None:
        """Reload the CA file if it is due; call this before each request."""
        if self._authorities.renewed():
            self.generation += 1
            self.metrics.closed(len(self._contexts))
            self._contexts.clear()

    def distrust(self) -> None:
        """Reload the CA file before the next request, because the server could not be verified."""
        self._authorities.distrust()

    def context(self, pair: CertificateAndKey) -> ssl.SSLContext:
        """Return the TLS context of a certificate and key. Connections are only reused with the same context.

        Raises `ConfigError` if CA certificates or client certificate are unusable.
        """
        found = self._contexts.get(pair)
        if found is None:
            found = self._contexts[pair] = self._authorities.context(*pair)
            self.metrics.made_context()
            if len(self._contexts) > _MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
                self.metrics.dropped_context()
        return found

    def _proxy_context(self) -> ssl.SSLContext:
        return self.context((b"", b""))
