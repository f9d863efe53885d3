"""Paths that address no resource: health, version, metrics, discovery and OpenAPI."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
from controller_manager.common.base.clock import monotonic
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

_STORES = ("etcd", "etcd-readiness")  # names of the store in `exclude` parameters


class StartProgress:
    """The state of the process from start to stop; each step is set by the code that performs it. Create it within the
    event loop.

    `problem` returns why the store cannot write, or an empty string; `hooks` are the names of the post-start hooks.
    With etcd the check is named after it, and `unready` returns why etcd is not ready.
    """

    def __init__(
        self,
        livez_grace: float,
        problem: Callable[[], str],
        hooks: Iterable[str] = (),
        unready: Callable[[], str] | None = None,
    ) -> None:
        self._problem = problem
        self._unready = unready
        self._livez_until = monotonic() + livez_grace
        self._hooks = tuple(hooks)
        self._finished: set[str] = set()
        self.stored = False
        """The store has been read."""
        self.stopping = False
        """A termination signal was received."""

    def checks_in(self, health: Health) -> None:
        """Add the checks of this object to the health endpoints."""
        health.add("log", _log)
        if self._unready is None:
            health.add("datastore", self._datastore, ("healthz", "readyz"), _STORES)
            health.add("datastore", self._open, ("livez",), _STORES)
        else:
            unready = self._unready
            health.add(_STORES[0], self._datastore)
            health.add(_STORES[1], lambda: self._open() or unready(), ("readyz",))
        for hook in self._hooks:
            health.add(hook, partial(self._unfinished, hook), ("healthz", "readyz"))
            health.add(hook, partial(self._overdue, hook), ("livez",))
        health.add("shutdown", lambda: "the process is shutting down" if self.stopping else "", ("readyz",))

    def finish(self, hook: str) -> None:
        """This hook has done its work."""
        self._finished.add(hook)

    def _open(self) -> str:
        return "" if self.stored else "the store is not open"

    def _datastore(self) -> str:
        return self._open() or self._problem()

    def _unfinished(self, hook: str) -> str:
        return "" if hook in self._finished else "not finished yet"

    def _overdue(self, hook: str) -> str:
        return "" if monotonic() < self._livez_until else self._unfinished(hook)


def _log() -> str:
    return "the log is closed" if sys.stderr.closed else ""


# The pages of the API server about itself: its version, its metrics, its flags, and its profiles.

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


# Listed as paths, but handled elsewhere.
_ELSEWHERE = ("/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3")


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
        self._discovery = Discovery(kinds, (*paths, *_ELSEWHERE), address, extensions)

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
