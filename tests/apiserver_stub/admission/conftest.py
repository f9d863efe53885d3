"""Fixtures shared by the admission tests."""

from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from typing import Any

import pytest

from apiserver_stub.admission import Admission, AdmissionConfiguration, AdmissionParts, enabled
from apiserver_stub.admission.services.addresses import ServiceAddresses, ServiceAllocation
from apiserver_stub.admission.services.allocations import Allocations
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.common.offload import Offload
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.webhooks.egress import DIRECT
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from controller_manager.common.base.runtime import Runtime
from tests.apiserver_stub.memory_backend import MemoryBackend

Give = Callable[..., tuple[dict[str, Any], list[str]]]


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    cache = WatchCache(EmbeddedStorage(MemoryBackend()))
    await cache.start()
    yield cache
    await cache.close()


@pytest.fixture
def parts(store: WatchCache) -> AdmissionParts:
    """Parts of plugins, on the empty `store`."""

    async def create(*_: Any) -> None:
        raise AssertionError("there is nothing to create")

    return AdmissionParts(
        store,
        built_in(),
        AlwaysAllow(),
        RBACAuthorizer(store),
        ServiceAddresses(store, [ip_network("10.0.0.0/24")], range(30000, 32768)),
        ServiceResolver(store, by_endpoints=False),
        DIRECT,
        Offload(),
        Runtime("apiserver-stub"),
        FLAGS.parse([]),
        AdmissionConfiguration(),
        create,
    )


@pytest.fixture
async def admission(parts: AdmissionParts) -> Admission:
    """All plugins, on a store with the namespace `default`."""
    name = b'{"metadata":{"resourceVersion":"","name":"default"}}'
    await parts.store.commit(Write("namespaces", "default", 0, name))
    return Admission(enabled(parts))


@pytest.fixture
def allot(store: WatchCache) -> Give:
    """Allocate the addresses of a spec; return the spec and the problems."""
    allocations = Allocations(store)

    def give(
        spec: dict[str, Any], old: dict[str, Any] | None = None, ranges: str = "10.0.0.0/24", key: str = "default/s"
    ) -> tuple[dict[str, Any], list[str]]:
        networks = {f"IPv{n.version}": [n] for n in map(ip_network, ranges.split(","))}
        given = {"type": "ClusterIP", "ports": [{"port": 80}], **spec}
        found = ServiceAllocation(networks, range(30000, 32768), allocations).allot(given, old or {}, key)
        return given, [f"{cause.field}: {cause.message}" for cause in found]

    return give
