"""The pages of a manager: a handler by path, behind the guard."""

from collections.abc import Mapping
from typing import Protocol

from controller_manager.api.errors import ApiError, Forbidden, MethodNotAllowed, NotFound, Unauthorized
from controller_manager.api.wire import Request, Response
from controller_manager.app.pages.html import wants_html
from controller_manager.app.pages.refusal import how_to_come_in
from controller_manager.component.routes import Handler, find_handler
from controller_manager.serving.health import Health
from controller_manager.serving.http import refusal


class Guards(Protocol):
    """Decides about requests."""

    async def check(self, request: Request) -> None:
        """Return if the request may be answered; raises Unauthorized or Forbidden."""


class Pages:
    """Answers every request; a path in `routes` that ends in a slash stands for all below it too, but for `/`."""

    def __init__(self, guard: Guards, health: Health, routes: Mapping[str, Handler]) -> None:
        self._guard = guard
        self._health = health
        self._routes = routes

    async def handle(self, request: Request) -> Response:
        """Answer a request, or say why not."""
        try:
            await self._guard.check(request)
            return self._health.answer(request) or await self._page(request)
        except ApiError as error:
            is_closed = isinstance(error, Unauthorized | Forbidden)
            return how_to_come_in(error) if is_closed and wants_html(request) else refusal(error)

    async def _page(self, request: Request) -> Response:
        handler = find_handler(self._routes, request.path)
        if handler is None:
            known = ", ".join(("/healthz", "/livez", "/readyz", *self._routes))
            raise NotFound(f"there is no page {request.path}; there are {known}")
        if request.method != "GET":
            raise MethodNotAllowed(f"{request.path} can only be read")
        return await handler(request)
