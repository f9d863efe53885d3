"""The transport of a client over HTTP and TLS."""

from controller_manager.common.transport.authenticated import AuthenticatedTransport
from controller_manager.common.transport.config import ClientConfig
from controller_manager.common.transport.connections import ConnectionLimits, Connections
from controller_manager.common.transport.credentials import Obtain, from_identity, from_plugin
from controller_manager.common.transport.http import EndpointTransport
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import Credential


class HttpTransport(AuthenticatedTransport):
    """Sends requests to one API server over HTTP and TLS.

    A request fails after `connect` seconds without a connection or `read_timeout` seconds without a byte; of a watch
    that holds until it has begun. `obtain` gives credentials in place of those of `config`; connections that are
    `shared` are used in place of its own. Raises `ConfigError` when authorities or certificate are unusable.
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
        """A transport over the same connections, with the credentials that `obtain` gives; each is to be closed."""
        return HttpTransport(self._config, obtain=obtain, shared=self._shared)


def _obtain(config: ClientConfig, metrics: TransportMetrics) -> Obtain:
    plugin = config.identity.plugin
    return from_plugin(config, plugin, metrics) if plugin else from_identity(config.identity)


def _usable(obtain: Obtain, connections: Connections) -> Obtain:
    """Refuses a certificate without its key, so that while files are renewed the pair before them stays in use."""

    async def obtain_usable(now: float) -> Credential:
        found = await obtain(now)
        connections.context((found.certificate, found.key))
        return found

    return obtain_usable
