"""Custom resources as a part of the server: their definitions, and the webhooks that convert their objects."""

from prometheus_client import CollectorRegistry

from apiserver_stub.apis.apiextensions.conversion import ConversionMetrics, Converters
from apiserver_stub.apis.apiextensions.definitions import DefinitionController
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.verbs import RequestScope
from apiserver_stub.webhooks.client import WebhookClient
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log import Logger


class CustomResources:
    """Serves custom resources after `read`; `run` keeps the status of their definitions up to date. `close` also closes
    the conversion `webhooks`.
    """

    def __init__(
        self, scope: RequestScope, webhooks: WebhookClient, log: Logger, registry: CollectorRegistry | None = None
    ) -> None:
        self._webhooks = webhooks
        self._offload = scope.offload
        self._converters = Converters(self._webhooks.post, scope.offload, ConversionMetrics(registry))
        self._definitions = DefinitionController(scope, self._resources_of, log)

    async def read(self) -> None:
        """Serve the existing definitions and follow changes."""
        await self._definitions.read()

    @property
    def is_up_to_date(self) -> bool:
        """Return whether all definitions in the store are served."""
        return self._definitions.is_up_to_date

    async def serve_changed(self) -> None:
        """Serve changed definitions now."""
        await self._definitions.serve_changed()

    async def run(self) -> None:
        """Keep the status of all definitions up to date and clean up deleted ones, until cancelled."""
        await self._definitions.run()

    async def close(self) -> None:
        """Stop all webhook conversions."""
        await self._webhooks.close()

    def _resources_of(self, definition: Tree) -> tuple[ResourceInfo, ...]:
        from apiserver_stub.apis.apiextensions.resources import resources_of  # CEL, which a server can begin without

        return resources_of(definition, self._converters.of(definition), self._offload)
