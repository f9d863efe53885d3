"""The condition `Available` of APIServices, written when it changes.

| state                                                     | condition                     |
|-----------------------------------------------------------|-------------------------------|
| no service: this server serves the group version          | True, Local                   |
| the service does not exist                                | False, ServiceNotFound        |
| its cluster IP does not listen on the port                | False, ServicePortError       |
| the service has no EndpointSlices                         | False, EndpointsNotFound      |
| no endpoint is ready at that port                         | False, MissingEndpoints       |
| the server does not return its resource list              | False, FailedDiscoveryCheck   |
| the server returns its resource list                      | True, Passed                  |
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from apiserver_stub.apis.aggregation.api_services import (
    AVAILABLE,
    APIService,
    APIServiceChange,
    APIServices,
    services_named,
)
from apiserver_stub.apis.aggregation.extension_servers import ExtensionServers
from apiserver_stub.apis.aggregation.local import COLLECTION
from apiserver_stub.apis.aggregation.metrics import AvailabilityMetrics
from apiserver_stub.apis.aggregation.work import DONE, FAILED, KeyedWork, Pauses
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.kinds.strategies.api_services import LOCAL
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt
from controller_manager.common.api.conditions import Condition, with_conditions
from controller_manager.common.api.core import Service
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.discovery import GROUP as SLICES_GROUP
from controller_manager.common.api.discovery import SERVICE_NAME, EndpointSlice
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.connection_pool import authority
from controller_manager.common.transport.transport import ConfigError, TransportError

_SERVICES, _SLICES = "services", f"endpointslices.{SLICES_GROUP}"
_EVERY = 30.0  # seconds between two checks of a server
_DISPUTED = 1.0  # seconds until a condition written by another server is checked again
_PAUSES = Pauses(0.005, 30.0)
_ATTEMPTS = 5  # concurrent attempts; one must succeed
_SECONDS = 5.0
_SERVICE = Decoder(Service)
_SLICE = Decoder(EndpointSlice)


def judge(service: APIService, found: Service | None, slices: Iterable[EndpointSlice]) -> Condition | None:
    """Return the condition that follows from the objects, by the table above; None if the server must be probed."""
    reference = service.spec.service
    if reference is None:
        return msgspec.convert(LOCAL, Condition)
    named = f'service/{reference.name} in "{reference.namespace}"'
    if found is None:
        return _unavailable("ServiceNotFound", f"{named} is not present")
    if found.spec.type != "ClusterIP":
        return None
    port = next((port for port in found.spec.ports if port.port == reference.port), None)
    if port is None:
        return _unavailable("ServicePortError", f"{named} is not listening on port {reference.port}")
    held = tuple(slices)
    if not held:
        return _unavailable("EndpointsNotFound", f"cannot find endpointslices for {named}")
    if not any(_serves(one, port.name) for one in held):
        why = f'endpointslices for {named} have no addresses with port name "{port.name}"'
        return _unavailable("MissingEndpoints", why)
    return None


def _serves(found: EndpointSlice, port: str) -> bool:
    ready = any(endpoint.conditions.ready is not False for endpoint in found.endpoints or ())
    return ready and any((one.name or "") == port and one.port is not None for one in found.ports or ())


def _unavailable(reason: str, message: str) -> Condition:
    return Condition(type=AVAILABLE, status="False", reason=reason, message=message)


_PASSED = Condition(type=AVAILABLE, status="True", reason="Passed", message="all checks passed")


class Availability:
    """Checks each APIService every 30 seconds, and when it, its service or an endpoint changes."""

    def __init__(
        self,
        store: WatchCache,
        services: APIServices,
        servers: ExtensionServers,
        objects: Objects,
        metrics: AvailabilityMetrics,
        log: Logger,
    ) -> None:
        self._store = store
        self._services = services
        self._servers = servers
        self._objects = objects
        self._metrics = metrics
        self._log = log
        self._by_service: dict[tuple[str, str], tuple[str, ...]] = {}
        self._written: dict[str, Condition] = {}
        self._work = KeyedWork(self._check, _PAUSES, log, "availability")
        services.subscribe(self._changed)
        store.subscribe(self._follow)

    async def run(self) -> None:
        """Run the checks until cancelled."""
        await self._work.run()

    def _changed(self, change: APIServiceChange) -> None:
        before, after = change
        if (before and before.spec.service) != (after and after.spec.service):
            self._by_service = services_named(self._services.remote.values())
        if after is None:
            self._written.pop(before.name if before else "", None)
        elif before is None or before.spec != after.spec:
            self._work.add(after.name)
        elif _timeless(after.condition) != self._written.get(after.name):  # by another server, which may see it so
            self._work.add_later(after.name, _DISPUTED)

    def _follow(self, changes: Sequence[Change]) -> None:
        if not self._by_service:
            return
        for change in changes:
            row = change.row
            if row.resource == _SERVICES:
                self._wake(row.key)
            elif row.resource == _SLICES and (name := row.labels.get(SERVICE_NAME)):
                self._wake(f"{row.key.partition('/')[0]}/{name}")

    def _wake(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        for service in self._by_service.get((namespace, name), ()):
            self._work.add(service)

    async def _check(self, name: str) -> float:
        service = self._services.all.get(name)
        if service is None:
            return DONE
        condition = judge(service, self._service(service), self._slices(service))
        if condition is None:
            condition = await self._probe(service)
        try:
            await self._write(service, condition)
        except ApiError as error:
            self._log.warning("failed to write the availability of an APIService", name=name, error=str(error))
            return FAILED
        if service.spec.service is None:
            return DONE
        return FAILED if condition.reason == "FailedDiscoveryCheck" else _EVERY

    async def _probe(self, service: APIService) -> Condition:
        """Probe the server with concurrent attempts. The first success counts, otherwise the last failure."""
        failure = ""
        async with Tasks() as tasks:
            running = [tasks.start(self._ask(service), name=f"probe {service.name}") for _ in range(_ATTEMPTS)]
            for answered in asyncio.as_completed(running):
                failure = await answered
                if not failure:
                    return _PASSED
        return _unavailable("FailedDiscoveryCheck", failure)

    async def _ask(self, service: APIService) -> str:
        """Return why the server does not serve its resource list; empty if it does."""
        group, version = service.group_version
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            url = f"https://{authority(self._servers.origin(service))}{path}"
        except (ApiError, ConfigError) as error:
            return str(error)
        try:
            status = await self._servers.status(service, path, seconds=_SECONDS)
        except (ApiError, TransportError) as error:
            return f"failing or missing response from {url}: {error}"
        if not 200 <= status < 300:
            return f"failing or missing response from {url}: bad status from {url}: {status}"
        return ""

    async def _write(self, service: APIService, condition: Condition) -> None:
        self._written[service.name] = condition
        if _timeless(service.condition) == condition:
            return
        path = f"{COLLECTION}/{service.name}"
        await self._objects.revise(
            path, service.metadata.uid, lambda tree: _with_condition(tree, condition), subresource="status"
        )
        if service.is_available and condition.status != "True":
            self._metrics.turned(service.name, condition.reason)

    def _service(self, service: APIService) -> Service | None:
        reference = service.spec.service
        row = self._store.get(_SERVICES, f"{reference.namespace}/{reference.name}") if reference else None
        try:
            return None if row is None else _SERVICE.decode(row.data)
        except (msgspec.DecodeError, Corrupt):
            return None

    def _slices(self, service: APIService) -> Iterable[EndpointSlice]:
        reference = service.spec.service
        if reference is None:
            return
        for row in self._store.snapshot(_SLICES).items(prefix=f"{reference.namespace}/"):
            if row.labels.get(SERVICE_NAME) == reference.name:
                with suppress(msgspec.DecodeError, Corrupt):
                    yield _SLICE.decode(row.data)


def _timeless(condition: Condition | None) -> Condition | None:
    return condition and msgspec.structs.replace(condition, last_transition_time=None)


def _with_condition(tree: Tree, condition: Condition) -> Tree | None:
    """Return the APIService with the condition set; None if it is set already."""
    status = tree.get("status") or {}
    before = tuple(msgspec.convert(one, Condition) for one in status.get("conditions") or ())
    after = with_conditions(before, [condition], format_time(utc_now()))
    return None if after == before else tree | {"status": {**status, "conditions": msgspec.to_builtins(after)}}
