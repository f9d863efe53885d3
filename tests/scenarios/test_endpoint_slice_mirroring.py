"""The endpoint slice mirroring controller in a whole cluster, in virtual time."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import ENDPOINTS, EVENTS, SERVICES, Endpoints
from controller_manager.common.api.discovery import (
    ENDPOINT_SLICES,
    MANAGED_BY,
    SERVICE_NAME,
    SKIP_MIRROR,
    EndpointSlice,
)
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.wire import Request
from controller_manager.testing import Cluster, builders
from controllers.endpoint_slice_mirroring import LAST_APPLIED, MANAGER
from controllers.shared.pods import LEADER, TRIGGER_TIME

pytestmark = pytest.mark.virtual

WEB = Key("default", "web")
ONLY = ("--leader-elect=false", "--controllers=endpointslicemirroring")
PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}]


def endpoints(*ips: str, waiting: tuple[str, ...] = (), **metadata: Any) -> Endpoints:
    subset = {"addresses": [{"ip": ip} for ip in ips], "notReadyAddresses": [{"ip": ip} for ip in waiting]}
    tree = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "web", "namespace": "default", **metadata},
        "subsets": [{**{name: value for name, value in subset.items() if value}, "ports": PORTS}],
    }
    return Endpoints.decode(msgspec.json.encode(tree))


async def slices(cluster: Cluster) -> list[EndpointSlice]:
    found = (await cluster.client.list(ENDPOINT_SLICES, "default")).items
    ours = [slice_ for slice_ in found if (slice_.metadata.labels or {}).get(MANAGED_BY) == MANAGER]
    return sorted(ours, key=lambda slice_: slice_.address_type)


async def listed(cluster: Cluster) -> dict[str, list[tuple[str, bool | None]]]:
    """Return address and readiness of each endpoint, by address family."""
    return {
        slice_.address_type: [(e.addresses[0], e.conditions.ready) for e in slice_.endpoints or ()]
        for slice_ in await slices(cluster)
    }


async def events(cluster: Cluster) -> list[tuple[str, str, str]]:
    found = (await cluster.client.list(EVENTS, "default")).items
    return [(event.reason, event.reporting_component, event.involved_object.kind) for event in found]


async def test_each_address_family_has_a_mirrored_slice() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await cluster.client.create(SERVICES, builders.service("web"))
        annotations = {"note": "kept", LAST_APPLIED: "{}", TRIGGER_TIME: "2026-01-01T00:00:00Z"}
        own = endpoints("192.0.2.1", "2001:db8::1", waiting=("192.0.2.2",), labels={"a": "b"}, annotations=annotations)
        made = await cluster.client.create(ENDPOINTS, own)
        await cluster.settle()
        assert await listed(cluster) == {
            "IPv4": [("192.0.2.1", True), ("192.0.2.2", False)],
            "IPv6": [("2001:db8::1", True)],
        }
        for slice_ in await slices(cluster):
            assert slice_.metadata.labels == {"a": "b", SERVICE_NAME: "web", MANAGED_BY: MANAGER}
            assert slice_.metadata.annotations == {"note": "kept"}
            assert list(msgspec.to_builtins(slice_.ports)) == PORTS
            (owner,) = slice_.metadata.owner_references
            assert (owner.kind, owner.uid, owner.controller) == ("Endpoints", made.metadata.uid, True)


async def test_changes_are_mirrored_without_needless_writes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await cluster.client.create(SERVICES, builders.service("web"))
        made = await cluster.client.create(ENDPOINTS, endpoints("192.0.2.1"))
        await cluster.settle()
        (before,) = await slices(cluster)
        changed = msgspec.structs.replace(made, subsets=endpoints("192.0.2.1", "192.0.2.3").subsets)
        await cluster.client.update(ENDPOINTS, changed)
        await cluster.advance(5)
        assert await listed(cluster) == {"IPv4": [("192.0.2.1", True), ("192.0.2.3", True)]}
        assert [slice_.metadata.uid for slice_ in await slices(cluster)] == [before.metadata.uid]
        revision = cluster.api.store.revision
        trigger = {"metadata": {"annotations": {TRIGGER_TIME: "2026-02-01T00:00:00Z"}}}
        await cluster.client.patch(ENDPOINTS, WEB, trigger)
        await cluster.advance(5)
        assert cluster.api.store.revision == revision + 1
        await cluster.client.patch(ENDPOINTS, WEB, {"metadata": {"labels": {"x": "y"}}})
        await cluster.advance(5)
        assert [(slice_.metadata.labels or {})["x"] for slice_ in await slices(cluster)] == ["y"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param((ENDPOINTS, {"metadata": {"labels": {SKIP_MIRROR: "true"}}}), id="skip-mirror label"),
        pytest.param((ENDPOINTS, {"metadata": {"annotations": {LEADER: "{}"}}}), id="leader election annotation"),
        pytest.param((SERVICES, {"spec": {"selector": {"a": "b"}}}), id="service selector"),
        pytest.param((ENDPOINTS, None), id="endpoints deleted"),
        pytest.param((SERVICES, None), id="service deleted"),
    ],
)
@pytest.mark.parametrize("when", ["while it runs", "while it does not"])
async def test_mirrored_slices_are_deleted_when_no_longer_wanted(
    change: tuple[Any, dict[str, Any] | None], when: str
) -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*ONLY)
        await cluster.client.create(SERVICES, builders.service("web"))
        await cluster.client.create(ENDPOINTS, endpoints("192.0.2.1"))
        await cluster.settle()
        assert len(await slices(cluster)) == 1
        if when == "while it does not":
            await first.kill()
        resource, patch = change
        if patch is None:
            await cluster.client.delete(resource, WEB)
        else:
            await cluster.client.patch(resource, WEB, patch)
        if when == "while it does not":
            await cluster.manage(*ONLY)
        await cluster.advance(5)
        assert await slices(cluster) == []


async def test_endpoints_are_mirrored_once_their_service_exists() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await cluster.client.create(ENDPOINTS, endpoints("192.0.2.1"))
        await cluster.settle()
        assert await slices(cluster) == []
        await cluster.client.create(SERVICES, builders.service("web"))
        await cluster.settle()
        assert await listed(cluster) == {"IPv4": [("192.0.2.1", True)]}


async def test_edited_mirrored_slice_is_restored() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await cluster.client.create(SERVICES, builders.service("web"))
        await cluster.client.create(ENDPOINTS, endpoints("192.0.2.1"))
        await cluster.settle()
        (found,) = await slices(cluster)
        await cluster.client.patch(ENDPOINT_SLICES, key_of(found), {"endpoints": [{"addresses": ["192.0.2.9"]}]})
        await cluster.advance(5)
        assert await listed(cluster) == {"IPv4": [("192.0.2.1", True)]}


@pytest.mark.flag("mirroring-max-endpoints-per-subset")
async def test_addresses_over_limit_are_dropped_and_reported() -> None:
    async with Cluster() as cluster:
        flags = ("--mirroring-max-endpoints-per-subset=2", "--authorization-always-allow-paths=/metrics")
        replica = await cluster.manage(*ONLY, *flags)
        await cluster.client.create(SERVICES, builders.service("web"))
        await cluster.client.create(ENDPOINTS, endpoints("192.0.2.2", "192.0.2.3", waiting=("192.0.2.1",)))
        await cluster.advance(5)
        assert await listed(cluster) == {"IPv4": [("192.0.2.2", True), ("192.0.2.3", True)]}
        expected = [("TooManyAddressesToMirror", "endpoint-slice-mirroring-controller", "Endpoints")]
        assert await events(cluster) == expected
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        for line in ("addresses_skipped_per_sync_sum 1", "endpoints_desired 2", 'changes{operation="create"} 1'):
            assert f"endpoint_slice_mirroring_controller_{line}" in page.body.decode()


@pytest.mark.flag("mirroring-endpointslice-updates-batch-period")
async def test_batch_period_flag_batches_changes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY, "--mirroring-endpointslice-updates-batch-period=10s")
        await cluster.client.create(SERVICES, builders.service("web"))
        await cluster.settle()
        made = await cluster.client.create(ENDPOINTS, endpoints("192.0.2.1"))
        await cluster.settle()
        await cluster.client.update(ENDPOINTS, msgspec.structs.replace(made, subsets=endpoints("192.0.2.2").subsets))
        revision = cluster.api.store.revision
        assert await slices(cluster) == []
        await cluster.advance(10)
        assert await listed(cluster) == {"IPv4": [("192.0.2.2", True)]}
        assert cluster.api.store.revision == revision + 1
