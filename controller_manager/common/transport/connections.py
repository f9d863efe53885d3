"""The connections to one server that transports share, whatever their credentials."""

import ssl

import aiohttp
import msgspec

from controller_manager.common.transport.authorities import ServerAuthorities
from controller_manager.common.transport.connection_pool import ConnectionPool
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.session import session
from controller_manager.common.transport.transport import ConfigError, Endpoint, TransportError

_MOST_CONTEXTS = 4
CertificateAndKey = tuple[bytes, bytes]


class ConnectionLimits(msgspec.Struct, frozen=True):
    """The most connections for requests, the seconds to wait for a connection and for a byte, and the most bytes of an
    answer that is no watch, `LARGEST_BODY` by default.
    """

    connections: int = 64
    connect: float = 10.0
    read_timeout: float = 60.0
    largest_answer: int | None = None


DEFAULT_LIMITS = ConnectionLimits()


class Connections:
    """Connections to one server, opened when first needed, closed when the last of those who joined has left.

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
        self.limits = limits
        self.metrics = metrics or TransportMetrics()
        self._authorities = ServerAuthorities(endpoint, self.metrics)
        self.generation = 0
        """Counts changes of the authorities; contexts of an earlier generation must not be used for new requests."""
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
        for opened in (self._requests, self._watches):
            if opened is not None:
                await opened.close()
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

    @property
    def authorities(self) -> bytes:
        """Return the authorities (PEM) that the server is verified by; empty for those of the system."""
        return self._authorities.endpoint.ca

    def refresh(self) -> None:
        """Use the authorities that their file holds now, if it is time to look; to be called before each request."""
        if self._authorities.renewed():
            self.generation += 1
            self.metrics.closed(len(self._contexts))
            self._contexts.clear()

    def distrust(self) -> None:
        """Look at the authorities before the next request, since the server could not be verified."""
        self._authorities.distrust()

    def context(self, pair: CertificateAndKey) -> ssl.SSLContext:
        """One context per certificate and key, so that its connections are used again: those of others never are.

        Raises `ConfigError` when authorities or certificate are unusable.
        """
        found = self._contexts.get(pair)
        if found is None:
            found = self._contexts[pair] = self._authorities.context(*pair)
            self.metrics.made_context()
            if len(self._contexts) > _MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
                self.metrics.dropped_context()
        return found
