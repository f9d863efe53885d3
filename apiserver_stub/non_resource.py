"""Paths that address no resource: what the server is, what it offers, and its metrics."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from apiserver_stub.discovery import Discovery
from apiserver_stub.kinds.registry import Kinds
from apiserver_stub.offload import Run, at_once
from apiserver_stub.openapi import Media, OpenApi
from apiserver_stub.parse import RequestInfo, not_allowed
from apiserver_stub.version import version_page
from controller_manager.api.wire import Request, Response
from controller_manager.serving.pages import metrics_page

# Answered by others, yet in the list of paths.
_ELSEWHERE = ("/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3")


class NonResourceHandler:
    """Answers GET requests for known paths; clients are told that they reach the server at `address`, if given.

    `others` answer for more paths; `run` performs what takes long.
    """

    def __init__(
        self,
        kinds: Kinds,
        registry: CollectorRegistry,
        media: Media | None = None,
        address: str = "",
        others: Mapping[str, Callable[[], Response]] | None = None,
        run: Run = at_once,
    ) -> None:
        version = Response(200, {"content-type": "application/json"}, version_page())
        self._openapi = OpenApi(kinds, media, run)
        self._fixed: dict[str, Callable[[], Response]] = {
            "/version": lambda: version,
            "/metrics": lambda: metrics_page(registry),
            **(others or {}),
        }
        self._discovery = Discovery(kinds, (*self._fixed, *_ELSEWHERE), address)

    async def answer(self, request: Request, route: RequestInfo) -> Response:
        """The page. Raises `NotFound`, `MethodNotAllowed` or `NotAcceptable`."""
        path = route.path.rstrip("/")
        response = await self._find(request, path)
        if route.verb != "get":
            raise not_allowed()
        return response

    async def _find(self, request: Request, path: str) -> Response:
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed()
        return await self._openapi.answer(request, path) or self._discovery.answer(request, path)
