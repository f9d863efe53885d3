"""Ways to API servers: a transport for each client configuration that the flags of this process name."""

from typing import TYPE_CHECKING, Protocol

from controller_manager.client import Transport
from controller_manager.client.credentials import Obtain
from controller_manager.client.kubeconfig import from_flags
from controller_manager.transport.metrics import TransportMetrics

if TYPE_CHECKING:
    from controller_manager.client import HttpTransport


class Network(Protocol):
    """Makes the transports of a process; whoever asks for one closes it."""

    def connect(self, clusterconfig: str = "", master: str = "", obtain: Obtain | None = None) -> Transport:
        """A transport as the flags `--clusterconfig` and `--master` describe it, or as the flags of the same meaning.

        With `obtain` it shows the credentials that this gives, instead of those of the configuration. Raises
        ConfigError with a sentence.
        """


class HttpNetwork:
    """The network there is outside of tests; who brings credentials shares the connections of a configuration."""

    def __init__(self, metrics: TransportMetrics | None = None) -> None:
        self._metrics = metrics or TransportMetrics()
        self._made: dict[tuple[str, str], HttpTransport] = {}

    def connect(self, clusterconfig: str = "", master: str = "", obtain: Obtain | None = None) -> Transport:
        """See `Network`."""
        from controller_manager.client import HttpTransport  # --help does without its HTTP library
        from controller_manager.transport.connections import Connections

        first = self._made.get((clusterconfig, master))
        if first is not None and obtain is not None:
            return first.with_credentials(obtain)
        config = from_flags(clusterconfig, master)
        made = HttpTransport(config, obtain=obtain, shared=Connections(config, metrics=self._metrics))
        self._made.setdefault((clusterconfig, master), made)
        return made
