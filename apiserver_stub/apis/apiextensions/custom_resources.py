"""The part of a server that custom resources are: their definitions, and the webhooks that convert their objects."""

from prometheus_client import CollectorRegistry

from apiserver_stub.apis.apiextensions.conversion import ConversionMetrics, Converters
from apiserver_stub.apis.apiextensions.definitions import DefinitionController
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.verbs import RequestScope
from apiserver_stub.webhooks.client import WebhookClient
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log import Logger


class CustomResources:
    """Serves custom resources from `read` on; `run` keeps their definitions as they should be. The `webhooks` that
    convert them are closed with it.
    """

    def __init__(
        self, scope: RequestScope, webhooks: WebhookClient, log: Logger, registry: CollectorRegistry | None = None
    ) -> None:
        self._webhooks = webhooks
        self._offload = scope.offload
        self._converters = Converters(self._webhooks.post, scope.offload, ConversionMetrics(registry))
        self._definitions = DefinitionController(scope, self._resources_of, log)

    async def read(self) -> None:
        """Serve what is defined already, and hear of all changes from now on."""
        await self._definitions.read()

    @property
    def is_up_to_date(self) -> bool:
        """Return whether all is served that the store says is defined."""
        return self._definitions.is_up_to_date

    async def serve_changed(self) -> None:
        """Serve what is defined now, without waiting for its turn."""
        await self._definitions.serve_changed()

    async def run(self) -> None:
        """Keep the status of all definitions as it should be, and remove what is deleted, until cancelled."""
        await self._definitions.run()

    async def close(self) -> None:
        """End all conversions by webhooks."""
        await self._webhooks.close()

    def _resources_of(self, definition: Tree) -> tuple[ResourceInfo, ...]:
        from apiserver_stub.apis.apiextensions.resources import resources_of  # CEL, which a server can begin without

        return resources_of(definition, self._converters.of(definition), self._offload)
