"""Paths that address no resource: version, metrics, flags, profiles, discovery and OpenAPI."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from apiserver_stub.apis import openapi
from apiserver_stub.apis.discovery import Discovery, Extensions
from apiserver_stub.apis.openapi import Media, OpenApi
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.request_info import RequestInfo, not_allowed
from apiserver_stub.storage.worker import INDICATORS, METRICS, Gather
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.component.pages import (
    Handler,
    Profiling,
    debugging_routes,
    find_handler,
    fixed,
    folders,
    gathered_handler,
    metrics_handler,
)
from controller_manager.common.component.process_metrics import build_info
from controller_manager.common.options.command_line import reported_version
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.health import Health

_NOTHING: Mapping[str, Handler] = MappingProxyType({})


def process_routes(
    options: Parsed,
    runtime: Runtime,
    health: Health,
    profiling: Profiling,
    others: Mapping[str, Handler] = _NOTHING,
    gather: Gather | None = None,
) -> Mapping[str, Handler]:
    """Return the handlers by path, including `others`. `gather` collects the metrics of several processes."""
    version = reported_version(options)
    routes = {
        "/version": version_handler(version),
        METRICS: gathered_handler(gather, METRICS) if gather else metrics_handler(runtime.registry),
        INDICATORS: gathered_handler(gather, INDICATORS) if gather else metrics_handler(health.indicators),
        **profiling.routes(),
        **others,
    }
    return {**routes, **debugging_routes(runtime.name, options, version, routes)}


def version_handler(version: str) -> Handler:
    """Return the handler of `/version` for this server version."""
    build = build_info(version)
    major, minor = build["major"], build["minor"]
    versions = {
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
    }
    return fixed(Response(200, {"content-type": "application/json"}, msgspec.json.encode({**versions, **build})))


# Paths that discovery lists besides `routes`: those of health, which the handler chain answers, and of OpenAPI.
_OTHER_PATHS = ("/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3")


class NonResourceHandler:
    """Answers GET requests for non-resource paths: `routes`, discovery and OpenAPI.

    `address` is the server address shown to clients, if given; `run` performs long computations; `extensions` and
    `descriptions` provide the discovery and OpenAPI documents of aggregated servers.
    """

    def __init__(
        self,
        kinds: ResourceRegistry,
        routes: Mapping[str, Handler],
        media: Media | None = None,
        address: str = "",
        run: StepRunner = at_once,
        extensions: Extensions | None = None,
        descriptions: openapi.Extensions | None = None,
    ) -> None:
        self._openapi = OpenApi(kinds, media, run, descriptions, routes)
        self._routes = routes
        self._folders = folders(routes)
        paths = dict.fromkeys(path.rstrip("/") for path in routes)
        self._discovery = Discovery(kinds, (*paths, *_OTHER_PATHS), address, extensions)

    async def answer(self, request: Request, info: RequestInfo) -> Response:
        """Return the page. Raises `NotFound`, `MethodNotAllowed` or `NotAcceptable`."""
        path = info.path.rstrip("/")
        own = self._routes.get(info.path) or self._routes.get(path)
        handler = find_handler(self._routes, info.path) if info.path.startswith(self._folders) else own
        if handler is None:
            response = await self._openapi.answer(request, path) or self._discovery.answer(request, path)
        if info.verb != "get":
            raise not_allowed()
        return response if handler is None else await handler(request)
