"""The service CIDR controller in a whole cluster, in virtual time.

Invariants under faults: each service address is in a ServiceCIDR, and after recovery the remaining ServiceCIDRs are
ready and deleted ones without services are removed.
"""

import json
from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import SERVICES
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.networking import IP_ADDRESSES, SERVICE_CIDRS, ServiceCIDR, ServiceCIDRSpec
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.service_cidrs import FINALIZER, SPECS
from tests.scenarios.faults import random_choice

pytestmark = pytest.mark.virtual

RANGES = ("--service-cluster-ip-range=10.0.0.0/24",)
HOLD = "example.org/hold"
FLAGS = ("--leader-elect=false", "--kube-api-qps=-1", "--controllers=service-cidr-controller")
READ = (IP_ADDRESSES.path(), IP_ADDRESSES.path(), SERVICE_CIDRS.path())


async def manage(cluster: Cluster, faults: float = 0.0) -> Replica:
    return await cluster.manage("--leader-elect=false", "--kube-api-qps=-1", specs=SPECS, faults=faults)


async def add(cluster: Cluster, name: str, *cidrs: str, finalizers: tuple[str, ...] = ()) -> ServiceCIDR:
    meta = ObjectMeta(name=name, finalizers=finalizers)
    return await cluster.client.create(SERVICE_CIDRS, ServiceCIDR(metadata=meta, spec=ServiceCIDRSpec(cidrs=cidrs)))


async def get(cluster: Cluster, name: str) -> ServiceCIDR:
    return await cluster.client.get(SERVICE_CIDRS, Key("", name))


async def delete(cluster: Cluster, name: str) -> None:
    await cluster.client.delete(SERVICE_CIDRS, Key("", name))


async def there(cluster: Cluster) -> list[str]:
    return sorted(one.metadata.name for one in (await cluster.client.list(SERVICE_CIDRS)).items)


async def serve(cluster: Cluster, name: str, address: str) -> None:
    spec = {"clusterIP": address, "ports": [{"port": 80}]}
    body = json.dumps({"metadata": {"name": name}, "spec": spec}).encode()
    await cluster.client.raw(Call("POST", "/api/v1/namespaces/default/services", body=body))


def ready(found: ServiceCIDR) -> tuple[str, str]:
    (condition,) = found.status.conditions
    assert (condition.type, bool(condition.last_transition_time)) == ("Ready", True)
    return condition.status, condition.reason


async def test_new_range_gets_finalizer_and_ready_condition() -> None:
    async with Cluster(RANGES) as cluster:
        await manage(cluster)
        await add(cluster, "more", "10.1.0.0/24", finalizers=(HOLD,))
        await cluster.settle()
        for name, finalizers in (("more", {HOLD, FINALIZER}), ("kubernetes", {FINALIZER})):
            found = await get(cluster, name)
            assert (ready(found), set(found.metadata.finalizers)) == (("True", ""), finalizers)
        before = cluster.api.store.revision
        await cluster.advance(600)
        assert cluster.api.store.revision == before


async def test_deleted_range_stays_until_no_service_uses_it() -> None:
    async with Cluster(RANGES) as cluster:
        await manage(cluster)
        await add(cluster, "more", "10.1.0.0/24")
        await cluster.settle()
        await serve(cluster, "web", "10.1.0.7")
        await delete(cluster, "more")
        await cluster.advance(60)
        assert ready(await get(cluster, "more")) == ("False", "Terminating")
        with pytest.raises(ApiError, match=r"10\.1\.0\.8"):
            await serve(cluster, "late", "10.1.0.8")
        await cluster.client.delete(SERVICES, Key("default", "web"))
        await cluster.settle()
        assert await there(cluster) == ["kubernetes"]


async def test_range_removal_waits_for_all_servers() -> None:
    async with Cluster(RANGES) as cluster:
        await manage(cluster)
        await add(cluster, "more", "10.1.0.0/24")
        await cluster.settle()
        await delete(cluster, "more")
        await cluster.advance(8)
        assert await there(cluster) == ["kubernetes", "more"]
        await cluster.advance(3)
        assert await there(cluster) == ["kubernetes"]


async def test_deleted_range_inside_another_range_is_removed() -> None:
    async with Cluster(RANGES) as cluster:
        await manage(cluster)
        await add(cluster, "more", "10.1.0.0/24")
        await cluster.settle()
        await serve(cluster, "web", "10.1.0.7")
        await delete(cluster, "more")
        await cluster.advance(60)
        assert await there(cluster) == ["kubernetes", "more"]
        await add(cluster, "wide", "10.1.0.0/16")
        await cluster.settle()
        assert await there(cluster) == ["kubernetes", "wide"]


async def test_edited_range_is_restored() -> None:
    async with Cluster(RANGES) as cluster:
        await manage(cluster)
        await add(cluster, "more", "10.1.0.0/24")
        await cluster.settle()
        found = await get(cluster, "more")
        (condition,) = found.status.conditions
        status = replace(found.status, conditions=(replace(condition, status="False", reason="Mine"),))
        await cluster.client.update(SERVICE_CIDRS, replace(found, status=status), subresource="status")
        await cluster.client.patch(SERVICE_CIDRS, Key("", "more"), {"metadata": {"finalizers": None}})
        await cluster.settle()
        found = await get(cluster, "more")
        assert (ready(found), found.metadata.finalizers) == (("True", ""), (FINALIZER,))


@pytest.mark.virtual(seeds=200)
async def test_every_service_address_has_a_range_despite_faults() -> None:
    ranges = ("10.1.0.0/24", "10.1.0.0/25", "10.1.0.0/24", "10.2.0.0/28")
    async with Cluster(RANGES) as cluster:
        faults = FaultInjector(cluster, await manage(cluster, faults=RATE), FLAGS, READ)
        for number in range(12):
            name = f"r{number % len(ranges)}"
            await random_choice((faults.deafen, faults.kill, nothing, nothing, nothing))()
            try:
                if random_source().uniform(0, 1) < 0.5:
                    await add(cluster, name, ranges[number % len(ranges)])
                else:
                    await delete_guarded(cluster, name)
                await serve(cluster, f"s{number}", f"10.{random_source().uniform(1, 3):.0f}.0.{1 + number}")
            except ApiError:
                pass  # the object exists already, or does not exist, or has no range
            await cluster.sleep(random_source().uniform(0, 12))
            await check(cluster)
        await faults.heal()
        await cluster.advance(1500)  # longer than silent watches and retries take
        await check(cluster)
        for one in (await cluster.client.list(SERVICE_CIDRS)).items:
            assert ready(one)[0] == ("False" if one.metadata.deletion_timestamp else "True")
        for service in (await cluster.client.list(SERVICES)).items:
            if service.metadata.name != "kubernetes":
                await cluster.client.delete(SERVICES, Key("default", service.metadata.name))
        await cluster.settle()
        assert [
            one for one in (await cluster.client.list(SERVICE_CIDRS)).items if one.metadata.deletion_timestamp
        ] == []


async def nothing() -> None:
    """Do nothing; random failures are enough."""


async def delete_guarded(cluster: Cluster, name: str) -> None:
    """Delete a range, unless it has no finalizer yet: then it would be removed at once, even if it is used."""
    if FINALIZER in (await get(cluster, name)).metadata.finalizers:
        await delete(cluster, name)


async def check(cluster: Cluster) -> None:
    """Raise AssertionError unless each service address is in an existing range."""
    found = (await cluster.client.list(SERVICE_CIDRS)).items
    networks = [ip_network(cidr) for one in found for cidr in one.spec.cidrs]
    for service in (await cluster.client.list(SERVICES)).items:
        address = service.spec.cluster_ip
        assert any(ip_address(address) in network for network in networks), f"{address} is in none of {networks}"
