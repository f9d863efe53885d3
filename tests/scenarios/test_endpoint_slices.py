"""The endpoint slice controller in a whole cluster, in virtual time."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import NAMESPACES, PODS, SERVICES
from controller_manager.common.api.discovery import ENDPOINT_SLICES, MANAGED_BY, SERVICE_NAME, EndpointSlice
from controller_manager.common.api.errors import InternalError, NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster, Replica, builders
from controllers.endpoint_slices.decide import MANAGER
from controllers.shared.pods import TRIGGER_TIME
from tests.scenarios.endpoint_slices import ONLY, WEB, events, node, run_node, run_pod, serve, slices

pytestmark = pytest.mark.virtual

PREFIX = "endpoint_slice_controller_"


async def set_status(cluster: Cluster, number: int, **status: Any) -> None:
    await cluster.client.patch(PODS, Key("default", f"web-{number:03}"), {"status": status}, subresource="status")


async def test_slice_has_all_fields_of_endpoints_and_service() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await run_node(cluster, node("n1", "a"))
        service = await cluster.client.create(
            SERVICES,
            msgspec.structs.replace(
                wanted := builders.service("web", {"app": "web"}),
                metadata=msgspec.structs.replace(wanted.metadata, labels={"team": "x"}),
            ),
        )
        await run_pod(cluster, 1, node="n1")
        await cluster.settle()
        (found,) = await slices(cluster)
        assert found.metadata.name.startswith("web-")
        assert found.metadata.generate_name == "web-"
        assert found.metadata.labels == {"team": "x", SERVICE_NAME: "web", MANAGED_BY: MANAGER}
        assert list(msgspec.to_builtins(found.metadata.owner_references)) == [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "name": "web",
                "uid": service.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        pod = await cluster.client.get(PODS, Key("default", "web-001"))
        assert found.address_type == "IPv4"
        assert list(msgspec.to_builtins(found.ports)) == [{"name": "http", "port": 80, "protocol": "TCP"}]
        assert list(msgspec.to_builtins(found.endpoints)) == [
            {
                "addresses": ("10.1.0.2",),
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": "n1",
                "zone": "a",
                "targetRef": {"kind": "Pod", "namespace": "default", "name": "web-001", "uid": pod.metadata.uid},
            }
        ]
        assert (found.metadata.annotations or {})[TRIGGER_TIME] == "2026-01-01T00:00:00Z"


async def test_empty_slice_of_service_without_pods_is_reused() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        service = await serve(cluster)
        await cluster.settle()
        (empty,) = await slices(cluster)
        assert not empty.endpoints
        assert not empty.ports
        assert (empty.metadata.annotations or {})[TRIGGER_TIME] == service.metadata.creation_timestamp
        await run_pod(cluster, 1)
        await cluster.settle()
        (used,) = await slices(cluster)
        assert used.metadata.uid == empty.metadata.uid
        assert [e.addresses for e in used.endpoints or ()] == [("10.1.0.2",)]


async def test_terminating_pods_serve_until_unready() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster)
        await run_pod(cluster, 1, finalizers=["example.org/wait"])
        await cluster.settle()
        await cluster.client.delete(PODS, Key("default", "web-001"))
        await cluster.settle()
        (found,) = await slices(cluster)
        (endpoint,) = found.endpoints or ()
        assert msgspec.to_builtins(endpoint.conditions) == {"ready": False, "serving": True, "terminating": True}
        await set_status(cluster, 1, phase="Succeeded")
        await cluster.settle()
        (found,) = await slices(cluster)
        assert not found.endpoints


async def test_nothing_is_written_when_nothing_changed() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*ONLY)
        await serve(cluster, clusterIP="None")
        for number in range(3):
            await run_pod(cluster, number)
        await cluster.settle()
        before = cluster.api.store.revision
        await cluster.client.patch(PODS, Key("default", "web-001"), {"metadata": {"annotations": {"a": "b"}}})
        await cluster.advance(60)
        assert cluster.api.store.revision == before + 1
        await first.kill()
        await cluster.manage(*ONLY)
        await cluster.advance(60)
        assert cluster.api.store.revision == before + 1


async def test_each_address_family_has_its_own_slices() -> None:
    server = ("--service-cluster-ip-range=10.0.0.0/16,fd00::/112",)
    async with Cluster(server) as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster, ipFamilyPolicy="RequireDualStack")
        await run_pod(cluster, 1)
        await set_status(cluster, 1, podIPs=[{"ip": "10.1.0.2"}, {"ip": "fd01::2"}])
        await cluster.settle()
        found = {s.address_type: [e.addresses for e in s.endpoints or ()] for s in await slices(cluster)}
        assert found == {"IPv4": [("10.1.0.2",)], "IPv6": [("fd01::2",)]}
        address = (await cluster.client.get(SERVICES, WEB)).spec.cluster_ip
        single = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": [address]}
        await cluster.client.patch(SERVICES, WEB, {"spec": single})
        await cluster.settle()
        assert [s.address_type for s in await slices(cluster)] == ["IPv4"]


async def test_pods_with_different_named_ports_get_separate_slices() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster, ports={"web": "http"})
        await run_pod(cluster, 1, ports={"http": 8080})
        await run_pod(cluster, 2, ports={"http": 9090})
        await cluster.settle()
        found = {(s.ports or ())[0].port: [e.addresses[0] for e in s.endpoints or ()] for s in await slices(cluster)}
        assert found == {8080: ["10.1.0.2"], 9090: ["10.1.0.3"]}


async def test_edited_slices_are_restored() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster)
        await run_pod(cluster, 1)
        await cluster.settle()
        (found,) = await slices(cluster)
        await cluster.client.patch(ENDPOINT_SLICES, key_of(found), {"endpoints": [{"addresses": ["192.0.2.1"]}]})
        await cluster.advance(5)
        (found,) = await slices(cluster)
        assert [e.addresses[0] for e in found.endpoints or ()] == ["10.1.0.2"]
        await cluster.client.patch(ENDPOINT_SLICES, key_of(found), {"metadata": {"labels": {"x": "y"}}})
        await cluster.advance(5)
        (found,) = await slices(cluster)
        assert "x" not in (found.metadata.labels or {})
        await cluster.client.delete(ENDPOINT_SLICES, key_of(found))
        await cluster.advance(5)
        assert len(await slices(cluster)) == 1


async def test_slices_of_other_managers_are_left_alone() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster)
        own = {"metadata": {"name": "own", "namespace": "default", "labels": {SERVICE_NAME: "web"}}}
        tree = {**own, "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": []}
        made = await cluster.client.create(ENDPOINT_SLICES, EndpointSlice.decode(msgspec.json.encode(tree)))
        await cluster.advance(5)
        assert await cluster.client.get(ENDPOINT_SLICES, Key("default", "own")) == made


@pytest.mark.parametrize("spec", [{"selects": False}, {"type": "ExternalName", "externalName": "example.org"}])
async def test_service_without_selector_or_ip_gets_no_slices(spec: dict[str, Any]) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster, **spec)
        await cluster.settle()
        assert await slices(cluster) == []


async def test_recreated_service_gets_new_slices() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster)
        await run_pod(cluster, 1)
        await cluster.settle()
        (old,) = await slices(cluster)
        await cluster.client.delete(SERVICES, WEB)
        made = await serve(cluster)
        await cluster.advance(5)
        (new,) = await slices(cluster)
        assert new.metadata.uid != old.metadata.uid
        assert [owner.uid for owner in new.metadata.owner_references] == [made.metadata.uid]
        await cluster.client.delete(SERVICES, WEB)
        await cluster.settle()
        assert await slices(cluster) == []


async def test_slices_of_deleted_service_are_deleted_at_start() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*ONLY)
        await serve(cluster)
        await cluster.settle()
        await first.kill()
        await cluster.client.delete(SERVICES, WEB)
        await cluster.manage(*ONLY)
        await cluster.advance(5)
        assert await slices(cluster) == []


async def test_stale_service_cache_deletes_no_slices() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*ONLY)
        await serve(cluster)
        await run_pod(cluster, 1)
        await cluster.settle()
        (before,) = await slices(cluster)
        await first.kill()
        second = await cluster.manage(*ONLY)

        def no_services_yet(request: Request) -> Response | None:
            query = dict(request.query)
            if request.path == "/api/v1/services" and "watch" not in query:
                return Response(200, {}, b'{"items":[],"metadata":{"resourceVersion":"1"}}')
            return InternalError("later").response() if request.path == "/api/v1/services" else None

        second.network.intercept(no_services_yet)
        await cluster.sleep(20)
        assert await slices(cluster) == [before]


async def test_deleting_service_gets_no_new_slices() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        service = builders.service("web", {"app": "web"})
        kept = msgspec.structs.replace(service.metadata, finalizers=("example.org/wait",))
        await cluster.client.create(SERVICES, msgspec.structs.replace(service, metadata=kept))
        await cluster.settle()
        await cluster.client.delete(SERVICES, WEB)
        (found,) = await slices(cluster)
        await cluster.client.delete(ENDPOINT_SLICES, key_of(found))
        await cluster.advance(5)
        assert await slices(cluster) == []


@pytest.mark.flag("max-endpoints-per-slice")
async def test_max_endpoints_per_slice_flag_limits_slices() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY, "--max-endpoints-per-slice=4")
        await serve(cluster)
        for number in range(10):
            await run_pod(cluster, number)
        await cluster.settle()
        found = [len(s.endpoints or ()) for s in await slices(cluster)]
        assert sum(found) == 10
        assert max(found) <= 4


@pytest.mark.flag("endpointslice-updates-batch-period")
async def test_batch_period_flag_batches_changes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY, "--endpointslice-updates-batch-period=10s")
        await serve(cluster)
        await cluster.advance(20)
        for number in range(5):
            await run_pod(cluster, number)
        await cluster.settle()
        before = cluster.api.store.revision
        assert sum(len(s.endpoints or ()) for s in await slices(cluster)) == 0
        await cluster.advance(10)
        assert sum(len(s.endpoints or ()) for s in await slices(cluster)) == 5
        assert cluster.api.store.revision == before + 1


def hold_writes(replica: Replica) -> list[str]:
    """Reject all creations of slices, and return the list of their paths."""
    asked: list[str] = []

    def answer(request: Request) -> Response | None:
        if request.method != "POST" or not request.path.endswith("endpointslices"):
            return None
        asked.append(request.path)
        return Response(500, {}, InternalError("not now").status().encode())

    replica.network.intercept(answer)
    return asked


async def test_failed_update_is_reported_by_event() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*ONLY)
        hold_writes(replica)
        await serve(cluster)
        await cluster.sleep(5)
        assert ("FailedToUpdateEndpointSlices", "endpoint-slice-controller") in await events(cluster)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert len(await slices(cluster)) == 1


async def test_terminating_namespace_causes_no_errors() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpointslice,namespace")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}, namespace="old"))
        await cluster.settle()
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.advance(30)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, Key("", "old"))


async def counted(replica: Replica) -> dict[str, float]:
    """Return the metrics without the common prefix of their names."""
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(page.body, bytes)
    lines = (line for line in page.body.decode().splitlines() if line.startswith(PREFIX))
    return {name.removeprefix(PREFIX): float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_start_reconciles_each_service_once() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*ONLY)
        for name in ("one", "two", "three"):
            await cluster.client.create(SERVICES, builders.service(name, {"app": name}))
        await cluster.settle()
        await first.kill()
        second = await cluster.manage(*ONLY, "--authorization-always-allow-paths=/metrics")
        await cluster.advance(10)
        assert (await counted(second))['syncs{result="success"}'] == 3 + len(("kubernetes",))


async def test_metrics_count_slices_and_endpoints() -> None:
    async with Cluster() as cluster:
        flags = ("--max-endpoints-per-slice=2", "--authorization-always-allow-paths=/metrics")
        replica = await cluster.manage(*ONLY, *flags)
        await serve(cluster, trafficDistribution="PreferClose")
        for number in range(3):
            await run_pod(cluster, number)
        await cluster.advance(5)
        found = await counted(replica)
        assert found["endpoints_desired"] == 3
        assert found["num_endpoint_slices"] == 2
        assert found["desired_endpoint_slices"] == 2
        assert found['changes{operation="create"}'] == 2
        assert found['services_count_by_traffic_distribution{traffic_distribution="PreferClose"}'] == 1
        assert found["endpoints_added_per_sync_sum"] == 3
        close = '{topology="Disabled",traffic_distribution="PreferClose"}'
        assert found[f"endpointslices_changed_per_sync_sum{close}"] >= 2
        assert found['syncs{result="success"}'] >= 3
        await cluster.client.delete(SERVICES, WEB)
        await cluster.advance(5)
        found = await counted(replica)
        assert found["num_endpoint_slices"] == 0
        assert found['services_count_by_traffic_distribution{traffic_distribution="PreferClose"}'] == 0
        assert 'syncs{result="error"}' not in found
