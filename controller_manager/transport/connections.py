"""Connections to one server and their TLS contexts, for all transports that share them whatever their credentials."""

import ssl
from dataclasses import dataclass

import aiohttp

from controller_manager.base.files import memory_file
from controller_manager.transport.connection_pool import ConnectionPool
from controller_manager.transport.metrics import TransportMetrics
from controller_manager.transport.transport import ConfigError, Endpoint

_READ_BUFFER = 1 << 20
_MOST_CONTEXTS = 4
CertificateAndKey = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The most connections for requests, and the seconds to wait for a connection and for a byte."""

    connections: int = 64
    connect: float = 10.0
    read_timeout: float = 60.0


DEFAULT_LIMITS = ConnectionLimits()


class Connections:
    """Opened when first needed, closed when the last of those who joined has left.

    Those for watches are apart from those for requests (`pool`), and as many as it takes.
    """

    def __init__(
        self, endpoint: Endpoint, limits: ConnectionLimits = DEFAULT_LIMITS, metrics: TransportMetrics | None = None
    ) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self.metrics = metrics or TransportMetrics()
        self._users = 0
        self._contexts: dict[CertificateAndKey, ssl.SSLContext] = {}
        self.pool = ConnectionPool(limits.connections, limits.connect, limits.read_timeout)
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
        """The session for what goes on."""
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


def session(connections: int, timeout: aiohttp.ClientTimeout, read_buffer: int = _READ_BUFFER) -> aiohttp.ClientSession:
    """Return a session that adds nothing to what it carries; of each answer it holds about twice `read_buffer`."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        auto_decompress=False,  # nothing compressed is asked for: a few bytes must not become a gigabyte
        read_bufsize=read_buffer,
        trust_env=False,
    )


def client_context(endpoint: Endpoint, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A context that trusts the authorities of an endpoint and shows `certificate` (PEM, with `key`), if any."""
    try:
        # What is not ASCII can only be a comment, over which `ssl` would stumble.
        context = ssl.create_default_context(cadata=endpoint.ca.decode("ascii", "ignore") if endpoint.ca else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate-authority of {endpoint.server} holds no usable PEM certificate") from error
    # Newer Pythons ask for extensions that the authorities of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if endpoint.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _show(context, certificate, key)
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    try:
        with memory_file(certificate + b"\n" + key) as pair:
            context.load_cert_chain(pair, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError("client-certificate and client-key are no matching, unencrypted PEM pair") from error
