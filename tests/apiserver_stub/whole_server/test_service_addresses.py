"""IPAddress objects of services, and ServiceCIDRs beside the ranges of the flags."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
RANGES = "/apis/networking.k8s.io/v1/servicecidrs"
SMALL = "--service-cluster-ip-range=10.0.0.0/30"  # two addresses; one belongs to this server
STORAGES = ("memory", "workers", pytest.param("etcd", marks=pytest.mark.needs("etcd")))


def _service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def _names(api: Any) -> set[str]:
    found = (await api.get(ADDRESSES)).tree
    return {item["metadata"]["name"] for item in found["items"]}


async def test_address_object_exists_while_its_service_does(started) -> None:
    async with started("--service-cluster-ip-range=10.0.0.0/24") as api:
        made = (await api.post(SERVICES, _service("a"))).tree
        ip = made["spec"]["clusterIP"]
        found = await api.get(f"{ADDRESSES}/{ip}")
        assert found.status == 200
        assert found.tree["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}
        assert found.tree["metadata"]["labels"] == {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }
        assert await _names(api) == {"10.0.0.1", ip}
        await api.post(SERVICES, _service("headless", clusterIP="None"))
        assert await _names(api) == {"10.0.0.1", ip}
        await api.delete(f"{SERVICES}/a")
        assert await _names(api) == {"10.0.0.1"}


async def test_dual_stack_service_has_two_addresses(started) -> None:
    async with started("--service-cluster-ip-range=10.0.0.0/24,fd00::/112") as api:
        made = (await api.post(SERVICES, _service("a", ipFamilyPolicy="RequireDualStack"))).tree
        four, six = made["spec"]["clusterIPs"]
        assert await _names(api) == {"10.0.0.1", four, six}
        made["spec"] |= {"ipFamilyPolicy": "SingleStack", "clusterIPs": [four], "ipFamilies": ["IPv4"]}
        code = (await api.put(f"{SERVICES}/a", made)).status
        assert (code, await _names(api)) == (200, {"10.0.0.1", four})


async def test_dry_run_creates_no_address(started) -> None:
    async with started() as api:
        code = (await api.post(f"{SERVICES}?dryRun=All", _service("a"))).status
        assert (code, len(await _names(api))) == (201, 1)


async def test_addresses_are_reconciled_at_start(started, backend) -> None:
    async with started("--service-cluster-ip-range=10.0.0.0/24") as api:
        made = (await api.post(SERVICES, _service("a"))).tree
        ip = made["spec"]["clusterIP"]
        found = (await api.get(f"{ADDRESSES}/{ip}")).tree
        await api.delete(f"{ADDRESSES}/{ip}")
        orphan = {"metadata": {"name": "10.0.0.200", "labels": found["metadata"]["labels"]}, "spec": found["spec"]}
        own = {"metadata": {"name": "10.0.0.201"}, "spec": found["spec"]}
        for tree in (orphan, own):
            assert (await api.post(ADDRESSES, tree)).status == 201
        assert await _names(api) == {"10.0.0.1", "10.0.0.200", "10.0.0.201"}
        await api.server.settle(6443)
        assert await _names(api) == {"10.0.0.1", ip, "10.0.0.201"}


async def test_address_taken_by_others_is_not_allocated(started) -> None:
    parent = {"parentRef": {"group": "example.org", "resource": "gateways", "name": "g"}}
    async with started(SMALL) as api:
        assert (await api.post(ADDRESSES, {"metadata": {"name": "10.0.0.2"}, "spec": parent})).status == 201
        assert (await api.post(SERVICES, _service("a"))).status == 500
        answer = await api.post(SERVICES, _service("a", clusterIP="10.0.0.2"))
        assert (answer.status, answer.tree["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs")
        await api.delete(f"{ADDRESSES}/10.0.0.2")
        assert (await api.post(SERVICES, _service("a"))).status == 201


async def test_additional_range_is_used_while_ready(started) -> None:
    async with started(SMALL) as api:
        assert (await api.post(SERVICES, _service("first"))).status == 201
        assert (await api.post(SERVICES, _service("b"))).status == 500  # all are allocated
        more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24", "fd00::/112"]}}
        made = await api.post(RANGES, more)
        assert made.status == 201
        second = await api.post(SERVICES, _service("b"))
        assert (second.status, second.tree["spec"]["ipFamilies"]) == (201, ["IPv4"])
        assert ip_address(second.tree["spec"]["clusterIP"]) in ip_network("10.9.0.0/24")
        third = await api.post(SERVICES, _service("c", clusterIP="10.9.0.77"))
        assert (third.status, third.tree["spec"]["clusterIP"]) == (201, "10.9.0.77")
        condition = {"type": "Ready", "status": "False", "reason": "Terminating", "message": ""}
        condition["lastTransitionTime"] = "2024-01-01T00:00:00Z"
        code = (await api.put(f"{RANGES}/more/status", made.tree | {"status": {"conditions": [condition]}})).status
        assert code == 200
        assert (await api.post(SERVICES, _service("d"))).status == 500
        assert (await api.get(f"{SERVICES}/b")).tree["spec"]["clusterIP"] == second.tree["spec"]["clusterIP"]


async def test_ranges_are_known_after_restart(started) -> None:
    more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}}
    async with started(SMALL) as api:
        await api.post(RANGES, more)
        await api.post(SERVICES, _service("a"))
    async with started(SMALL) as api:
        made = await api.post(SERVICES, _service("b"))
        assert (made.status, made.tree["spec"]["clusterIP"].startswith("10.9.0.")) == (201, True)


@pytest.mark.parametrize("change", ["deleted", "replaced"])
async def test_deleted_range_is_not_used(started, change: str) -> None:
    more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}}
    async with started(SMALL) as api:
        await api.post(SERVICES, _service("a"))
        await api.post(RANGES, more)
        await api.delete(f"{RANGES}/more")
        if change == "replaced":
            await api.post(RANGES, more)
        assert (await api.post(SERVICES, _service("b"))).status == (500 if change == "deleted" else 201)
