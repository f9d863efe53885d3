"""Wires the parts of aggregation together and runs their background tasks."""

from apiserver_stub.apis.aggregation.api_services import APIServiceChange, APIServices
from apiserver_stub.apis.aggregation.availability import Availability
from apiserver_stub.apis.aggregation.descriptions import ExtensionDescriptions
from apiserver_stub.apis.aggregation.discovery import ExtensionDiscovery
from apiserver_stub.apis.aggregation.extension_servers import ExtensionServers
from apiserver_stub.apis.aggregation.local import LocalAPIServices
from apiserver_stub.apis.aggregation.metrics import AvailabilityMetrics
from apiserver_stub.apis.aggregation.proxy import ExtensionProxy
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.common.flags import AggregationOptions
from apiserver_stub.common.offload import Offload
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from controller_manager.common.serving.authentication import RequestHeaderConfig

REGISTRATION = "poststarthook/kube-apiserver-autoregistration"
"""The health check of the APIServices that this server registers."""


class Aggregation:
    """The APIServices of one server: `read` them after the store was read, then `settle`, and `run`.

    At construction `kinds` must have the built-in resources only. `patience` is the timeout in seconds of responses
    that are not endless.
    """

    def __init__(
        self,
        store: WatchCache,
        kinds: ResourceRegistry,
        objects: Objects,
        servers: ExtensionServers,
        options: AggregationOptions,
        runtime: Runtime,
        patience: float,
        offload: Offload,
    ) -> None:
        log = runtime.log("aggregation")
        self._servers = servers
        self._services = services = APIServices(store)
        built_in = [(group.name, version) for group in kinds.groups() for version in group.versions]
        self._local = LocalAPIServices(store, services, built_in, objects, log)
        metrics = AvailabilityMetrics(services, runtime.registry)
        self._availability = Availability(store, services, servers, objects, metrics, log)
        self.discovery = ExtensionDiscovery(services, servers, log)
        """Discovery of all group versions, those of extension servers included."""
        self.descriptions = ExtensionDescriptions(services, servers, offload.run, log)
        """The OpenAPI documents of extension servers."""
        redirects = not options.aggregator_reject_forwarding_redirect
        proxies = RequestHeaderConfig(**options.header_lists())
        self.proxy = ExtensionProxy(
            services, servers, self.discovery, self.descriptions, patience, proxies=proxies, redirects=redirects
        )
        """Proxies requests to extension servers."""
        services.subscribe(self._forget)

    def read(self) -> None:
        """Read the existing APIServices from the store."""
        self._services.read()
        self._local.read()

    async def settle(self) -> None:
        """Write the APIServices of this server's own group versions. Raises the error of a failed request."""
        await self._local.settle()

    async def run(self) -> None:
        """Keep everything up to date until cancelled."""
        await all_of(self._local.run(), self._availability.run(), self.discovery.run(), self.descriptions.run())

    async def close(self) -> None:
        """Close the connections to extension servers."""
        await self._servers.close()

    def _forget(self, change: APIServiceChange) -> None:
        if change.after is None and change.before is not None:
            self._servers.forget(change.before.name)
