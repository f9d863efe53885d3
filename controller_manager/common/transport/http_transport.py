"""A client transport over HTTP and TLS."""

from controller_manager.common.transport.authenticated import AuthenticatedTransport
from controller_manager.common.transport.config import ClientConfig
from controller_manager.common.transport.connections import ConnectionLimits, Connections
from controller_manager.common.transport.credentials import Obtain, from_identity, from_plugin
from controller_manager.common.transport.http import EndpointTransport
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import Credential


class HttpTransport(AuthenticatedTransport):
    """Sends requests to one API server over HTTP and TLS.

    A request fails after `connect` seconds without a connection or `read_timeout` seconds without data; for a watch,
    these limits apply until its response begins. Credentials from `obtain` replace those of `config`; `shared`
    connections replace its own. Raises `ConfigError` if CA certificates or client certificate are unusable.
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
        self._config = config
        self._shared = shared or Connections(config, ConnectionLimits(connections, connect, read_timeout))
        self._shared.context((b"", b"") if obtain else (config.identity.certificate, config.identity.key))
        source = _usable(obtain or _obtain(config, self._shared.metrics), self._shared)
        super().__init__(EndpointTransport(config, self._shared), source)

    def with_credentials(self, obtain: Obtain) -> "HttpTransport":
        """Return a transport over the same connections, with credentials from `obtain`. Close each transport."""
        return HttpTransport(self._config, obtain=obtain, shared=self._shared)


def _obtain(config: ClientConfig, metrics: TransportMetrics) -> Obtain:
    plugin = config.identity.plugin
    return from_plugin(config, plugin, metrics) if plugin else from_identity(config.identity)


def _usable(obtain: Obtain, connections: Connections) -> Obtain:
    """Reject a certificate that does not match its key, so that the old pair stays in use while files are replaced."""

    async def obtain_usable(now: float) -> Credential:
        found = await obtain(now)
        connections.context((found.certificate, found.key))
        return found

    return obtain_usable
