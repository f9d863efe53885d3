"""How a service resolves to an address."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.webhooks.service_resolver import ServiceAddress, ServiceResolver
from controller_manager.common.api.errors import ApiError, NotFound, ServiceUnavailable
from tests.apiserver_stub.memory_backend import MemoryBackend

PORTS = [{"name": "https", "port": 443}, {"name": "other", "port": 8443}]
CLUSTER = {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": PORTS, "ipFamilies": ["IPv6", "IPv4"]}
SLICES = "endpointslices.discovery.k8s.io"


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    found = WatchCache(EmbeddedStorage(MemoryBackend()))
    await found.start()
    yield found
    await found.close()


async def put(store: WatchCache, resource: str, namespace: str, name: str, **rest: Any) -> None:
    metadata = {"resourceVersion": "", "namespace": namespace, "name": name, **rest.pop("metadata", {})}
    data = msgspec.json.encode({"metadata": metadata, **rest})
    await store.commit(Write(resource, f"{namespace}/{name}", 0, data))


async def put_slice(
    store: WatchCache,
    name: str,
    family: str,
    *endpoints: tuple[str, bool | None],
    of: str = "hook",
    port: str = "https",
) -> None:
    shown = [
        {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}}
        for address, ready in endpoints
    ]
    await put(
        store,
        SLICES,
        "ns" if of == "hook" else "default",
        name,
        metadata={"labels": {"kubernetes.io/service-name": of}},
        addressType=family,
        endpoints=shown,
        ports=[{"name": port, "port": 9443}],
    )


@pytest.mark.parametrize(
    ("spec", "port", "host"),
    [
        (CLUSTER, 443, "10.0.0.7"),
        (CLUSTER, 8443, "10.0.0.7"),
        ({**CLUSTER, "type": "NodePort", "clusterIP": "fd00::1"}, 443, "fd00::1"),
        ({**CLUSTER, "type": "LoadBalancer", "ipFamilies": None}, 443, "10.0.0.7"),
        ({"type": "ExternalName", "externalName": "hook.example.com"}, 1234, "hook.example.com"),
    ],
)
async def test_service_resolves_to_cluster_ip_or_name(
    store: WatchCache, spec: dict[str, Any], port: int, host: str
) -> None:
    await put(store, "services", "ns", "hook", spec=spec)
    assert ServiceResolver(store).resolve("ns", "hook", port) == ServiceAddress(host, port, "hook.ns.svc")


@pytest.mark.parametrize(
    ("spec", "by_endpoints", "why"),
    [
        ({**CLUSTER, "clusterIP": "None"}, False, 'cannot route to service with ClusterIP "None"'),
        ({**CLUSTER, "ports": []}, False, 'no service port 443 found for service "hook"'),
        ({**CLUSTER, "ports": []}, True, 'no service port 443 found for service "hook"'),
        ({**CLUSTER, "type": "Odd"}, False, 'unsupported service type "Odd"'),
        (
            {"type": "ExternalName", "externalName": "x", "ports": PORTS},
            True,
            'unsupported service type "ExternalName"',
        ),
        (CLUSTER, True, 'no endpoints available for service "hook"'),
    ],
)
async def test_service_without_target_is_rejected(
    store: WatchCache, spec: dict[str, Any], by_endpoints: bool, why: str
) -> None:
    await put(store, "services", "ns", "hook", spec=spec)
    with pytest.raises(ServiceUnavailable) as refusal:
        ServiceResolver(store, by_endpoints=by_endpoints).resolve("ns", "hook", 443)
    assert refusal.value.message == why


async def test_missing_service_is_not_found(store: WatchCache) -> None:
    with pytest.raises(NotFound) as refusal:
        ServiceResolver(store).resolve("ns", "hook", 443)
    assert refusal.value.message == 'service "hook" not found'


async def test_ready_endpoints_of_first_family_with_port_are_used(store: WatchCache) -> None:
    await put(store, "services", "ns", "hook", spec=CLUSTER)
    resolver = ServiceResolver(store, by_endpoints=True)
    await put_slice(store, "a", "IPv4", ("10.1.0.1", None), ("10.1.0.2", True), ("10.1.0.3", False))
    await put_slice(store, "b", "IPv6", ("fd00::9", True), port="other")
    await put_slice(store, "z", "IPv6", ("fd00::8", True), of="another")
    found = {resolver.resolve("ns", "hook", 443) for _ in range(100)}
    assert found == {ServiceAddress(f"10.1.0.{n}", 9443, "hook.ns.svc") for n in (1, 2)}
    await put_slice(store, "c", "IPv6", ("fd00::3", True), ("fd00::4", False))
    found = {resolver.resolve("ns", "hook", 443) for _ in range(100)}
    assert found == {ServiceAddress("fd00::3", 9443, "hook.ns.svc")}


async def test_unready_endpoints_are_not_used(store: WatchCache) -> None:
    await put(store, "services", "ns", "hook", spec=CLUSTER)
    await put_slice(store, "a", "IPv4", ("10.1.0.3", False))
    with pytest.raises(ApiError, match="no endpoints available"):
        ServiceResolver(store, by_endpoints=True).resolve("ns", "hook", 443)


async def test_own_service_resolves_to_own_endpoint(store: WatchCache) -> None:
    await put(store, "services", "default", "kubernetes", spec=CLUSTER)
    await put_slice(store, "kubernetes", "IPv4", ("127.0.0.1", True), of="kubernetes")
    resolver = ServiceResolver(store)
    assert resolver.resolve("default", "kubernetes", 443) == ("127.0.0.1", 9443, "kubernetes.default.svc")
    assert resolver.resolve("default", "kubernetes", 8443).host == "10.0.0.7"
