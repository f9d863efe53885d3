"""The life of an API server: its parts are opened, brought to what every cluster has, run, and closed."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.apis.aggregation import REGISTRATION
from apiserver_stub.bootstrap import HOOKS, ClusterInfo, ServerAddress, bootstrap
from apiserver_stub.bootstrap.policy import features_with_policy
from apiserver_stub.common.flags import NetworkOptions, ServerFeatureOptions, ServingOptions
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.process.pki.addresses import reachable_address
from apiserver_stub.server.handler_chain import Server
from apiserver_stub.server.health import StartProgress
from apiserver_stub.server.response_headers import with_headers
from apiserver_stub.verbs import RequestScope
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.tasks import all_of
from controller_manager.common.options.parse import Parsed

_UPKEEP = 60.0  # seconds between two checks of the default objects


async def _nothing() -> None:
    """Do nothing (default for optional steps)."""


class Component(msgspec.Struct, frozen=True):
    """A part of the server with a lifecycle: `open` prepares it, `settle` creates or corrects its objects in the
    cluster and is repeated, `run` works until canceled or done, and `close` releases its resources.
    """

    open: Callable[[], Awaitable[None]] = _nothing
    settle: Callable[[], Awaitable[None]] = _nothing
    run: Callable[[], Coroutine[Any, Any, None]] | None = None
    close: Callable[[], Awaitable[None]] = _nothing


class ApiServer:
    """One API server: call `start`, pass requests to `handle`, call `stop`.

    Its `parts`, including the store, are opened in order and closed in reverse order.
    """

    def __init__(
        self, server: Server, scope: RequestScope, progress: StartProgress, options: Parsed, parts: Sequence[Component]
    ) -> None:
        self.server = server
        self.scope = scope
        """The request scope of the server's own writes."""
        self._handle = with_headers(server.handle, options[ServingOptions])
        self._progress = progress
        self._options = options
        self._parts = tuple(parts)

    @property
    def store(self) -> WatchCache:
        """The objects."""
        return self.scope.store

    @property
    def kinds(self) -> ResourceRegistry:
        """The resources that are served, which may change while the server runs."""
        return self.scope.kinds

    def handle(self, request: Request) -> Awaitable[Response]:
        """Handle a request."""
        return self._handle(request)

    async def start(self) -> None:
        """Read the store and create the objects that every cluster has. Raises `Unusable`."""
        await self.open()
        await self.settle(self._options[ServingOptions].secure_port)

    async def open(self) -> None:
        """Read the store; requests are served from then on. Raises `Unusable`."""
        for part in self._parts:
            await part.open()
        self._progress.stored = True

    async def resume(self) -> None:
        """Read a store that a server with the same options has just settled, without settling it again. Raises
        `Unusable`.
        """
        await self.open()
        for step in (*HOOKS, REGISTRATION):
            self._progress.finish(step)

    async def settle(self, port: int, authentication: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create the objects that every cluster has. Clients reach this server at `port`; `authentication` is published
        for extension servers. Repeated calls correct the objects.
        """
        network = self._options[NetworkOptions]
        host = host_of(self._options[ServingOptions])
        address = ServerAddress(network.first_service, host, port, tuple(map(str, network.services)))
        enabled = self._options[ServerFeatureOptions].enabled
        cluster = ClusterInfo(address, authentication, frozenset(filter(enabled, features_with_policy())))
        await bootstrap(self.handle, self.scope, cluster, self._progress.finish)
        for part in self._parts:
            await part.settle()

    async def run(self) -> None:
        """Run the background tasks of the server until canceled."""
        await all_of(*(part.run() for part in self._parts if part.run is not None))

    async def load_all(self) -> None:
        """Import, in the thread, modules that would delay the first custom resource definition."""
        for module in ("apiserver_stub.kinds.structural.expressions", "apiserver_stub.apis.apiextensions.resources"):
            await self.scope.offload.run(partial(import_module, module))

    async def keep_settled(self, port: int, authentication: Callable[[], Mapping[str, str]]) -> None:
        """Repeat `settle` periodically until cancelled."""
        while True:
            await asyncio.sleep(_UPKEEP)
            await self.settle(port, authentication())

    def unready(self) -> None:
        """Report not ready from now on."""
        self._progress.stopping = True

    def end_streams(self) -> None:
        """End all watches and reject new ones."""
        self.scope.hub.close()

    async def stop(self) -> None:
        """End all watches, finish submitted writes and close the store."""
        self.unready()
        self.end_streams()
        self._progress.stored = False
        for part in reversed(self._parts):
            await part.close()


def host_of(serving: ServingOptions) -> str:
    """Return the name or address at which clients reach the server."""
    return serving.advertise_address or reachable_address(serving.bind_address)


def address_of(serving: ServingOptions) -> str:
    """Return host and port at which they do; empty when the port is chosen only when it starts."""
    host = host_of(serving)
    return f"{f'[{host}]' if ':' in host else host}:{serving.secure_port}" if serving.secure_port else ""
