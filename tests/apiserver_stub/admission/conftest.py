"""What the tests of admission share."""

from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from typing import Any

import pytest

from apiserver_stub.admission import Admission, built_in
from apiserver_stub.admission.allocations import Allocations
from apiserver_stub.admission.escalation import EscalationCheck
from apiserver_stub.admission.pod_security import PodSecurity
from apiserver_stub.admission.services import ServiceAddresses, ServiceAllocation
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.storage.backend import MemoryBackend
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache

Give = Callable[..., tuple[dict[str, Any], list[str]]]


@pytest.fixture
async def admission() -> AsyncIterator[Admission]:
    """All plugins, on a store with the namespace `default`."""

    async def allows(*_: Any) -> bool:
        return True

    async def update(*_: Any) -> None:
        raise AssertionError("there are no quotas")

    store = WatchCache(EmbeddedStorage(MemoryBackend()))
    await store.start()
    await store.commit(Write("namespaces", "default", 0, b'{"metadata":{"resourceVersion":"","name":"default"}}'))
    addresses = ServiceAddresses(store, [ip_network("10.0.0.0/24")], range(30000, 32768))
    escalation = EscalationCheck(AlwaysAllow(), RBACAuthorizer(store))
    yield Admission(built_in(store, addresses, allows, escalation, update, pod_security=PodSecurity(store)))
    await store.close()


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    cache = WatchCache(EmbeddedStorage(MemoryBackend()))
    await cache.start()
    yield cache
    await cache.close()


@pytest.fixture
def allot(store: WatchCache) -> Give:
    """What becomes of a spec, and what is wrong with it."""
    allocations = Allocations(store)

    def give(
        spec: dict[str, Any], old: dict[str, Any] | None = None, ranges: str = "10.0.0.0/24", key: str = "default/s"
    ) -> tuple[dict[str, Any], list[str]]:
        networks = {f"IPv{n.version}": [n] for n in map(ip_network, ranges.split(","))}
        given = {"type": "ClusterIP", "ports": [{"port": 80}], **spec}
        found = ServiceAllocation(networks, range(30000, 32768), allocations).allot(given, old or {}, key)
        return given, [f"{cause.field}: {cause.message}" for cause in found]

    return give
