"""What a manager serves about itself: a handler by path, behind the guard."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from controller_manager.api.errors import ApiError, Forbidden, MethodNotAllowed, NotFound, Unauthorized
from controller_manager.api.wire import Request, Response
from controller_manager.app.pages.html import wants_html
from controller_manager.app.pages.refusal import how_to_come_in
from controller_manager.serving import Health
from controller_manager.serving.http import refusal

Handler = Callable[[Request], Awaitable[Response]]


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
        handler = self._handler(request.path)
        if request.method != "GET":
            raise MethodNotAllowed(f"{request.path} can only be read")
        return await handler(request)

    def _handler(self, path: str) -> Handler:
        folders = [one for one in self._routes if one != "/" and one.endswith("/") and path.startswith(one)]
        for name in (path, *sorted(folders, key=len, reverse=True)):
            if name in self._routes:
                return self._routes[name]
        known = ", ".join(("/healthz", "/livez", "/readyz", *self._routes))
        raise NotFound(f"there is no page {path}; there are {known}")
