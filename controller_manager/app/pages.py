"""What the manager serves about itself, and to whom."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from controller_manager.api.errors import ApiError, MethodNotAllowed, NotFound
from controller_manager.api.wire import Request, Response
from controller_manager.serving import Access, Health
from controller_manager.serving.http import refusal
from controller_manager.serving.pages import configz_page, metrics_page


class Pages:
    """Health, /metrics and /configz; answers every request."""

    def __init__(
        self, access: Access, health: Health, registry: CollectorRegistry, name: str, settings: Mapping[str, Any]
    ) -> None:
        self._access = access
        self._health = health
        self._registry = registry
        self._name = name
        self._settings = settings

    async def handle(self, request: Request) -> Response:
        """Answer a request, or say why not."""
        try:
            await self._access.check(request)
            return self._health.answer(request) or self._page(request)
        except ApiError as error:
            return refusal(error)

    def _page(self, request: Request) -> Response:
        if request.path not in ("/metrics", "/configz"):
            raise NotFound(f"there is no page {request.path}; there are /healthz, /livez, /readyz, /metrics, /configz")
        if request.method != "GET":
            raise MethodNotAllowed(f"{request.path} can only be read")
        if request.path == "/metrics":
            return metrics_page(self._registry)
        return configz_page(self._name, self._settings)
