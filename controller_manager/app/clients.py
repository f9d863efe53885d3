"""The clients of one manager: they share metrics; each has the rate limit to itself."""

from collections.abc import Callable
from typing import ClassVar

from controller_manager.app.network import Network
from controller_manager.base.runtime import Runtime
from controller_manager.client import Client, ClientMetrics, Throttle
from controller_manager.leader import FencedTransport
from controller_manager.options import Int32, Options, flag


class ClientOptions(Options):
    """How the API server is reached."""

    title: ClassVar[str] = "Client"

    clusterconfig: str = flag(
        "",
        "client configuration file; without it and --master, the service account of the pod is used",
        aliases=("kubeconfig",),
        metavar="file",
    )
    master: str = flag("", "address of the API server, in place of the one in the client configuration")
    cluster_api_qps: float = flag(
        20.0,
        "requests a second of each controller to the API server; 0 sets no limit",
        aliases=("kube-api-qps",),
        minimum=0,
    )
    cluster_api_burst: Int32 = flag(
        30,
        "requests of each controller to the API server that may go out at once",
        aliases=("kube-api-burst",),
        minimum=1,
    )


class Clients:
    """`unlimited` renews the lease, which nothing must hold up; `reader` fills the informers."""

    def __init__(self, options: ClientOptions, network: Network, runtime: Runtime) -> None:
        self._options = options
        self._name = runtime.name
        self._transport = network.connect(options.clusterconfig, options.master)
        self._metrics = ClientMetrics(runtime.registry)
        self.unlimited = Client(self._transport, metrics=self._metrics, user_agent=f"{runtime.name}/process")
        self.reader = self.unlimited.derive(user_agent=f"{runtime.name}/informers", throttle=self._throttle(1))

    def writer(self, name: str, may_write: Callable[[], bool], qps_factor: int = 1) -> Client:
        """A client of the component `name` for what only a leader may do; a busy one holds up no other."""
        fenced = FencedTransport(self._transport, may_write)
        return Client(
            fenced,
            metrics=self._metrics,
            user_agent=f"{self._name}/{name}",
            throttle=self._throttle(qps_factor),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()

    def _throttle(self, factor: int) -> Throttle:
        return Throttle(self._options.cluster_api_qps * factor, self._options.cluster_api_burst * factor)
