"""IPAddress objects of services, and ServiceCIDRs beside the ranges of the flags."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
RANGES = "/apis/networking.k8s.io/v1/servicecidrs"
SMALL = "--service-cluster-ip-range=10.0.0.0/30"  # two addresses, one of which belongs to this server
STORAGES = ("memory", "workers", pytest.param("etcd", marks=pytest.mark.needs("etcd")))


def _service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def _names(api: Any) -> set[str]:
    _, found = await api("GET", ADDRESSES)
    return {item["metadata"]["name"] for item in found["items"]}


async def test_address_object_exists_while_its_service_does(started) -> None:
    async with started("--service-cluster-ip-range=10.0.0.0/24") as api:
        _, made = await api("POST", SERVICES, _service("a"))
        ip = made["spec"]["clusterIP"]
        code, found = await api("GET", f"{ADDRESSES}/{ip}")
        assert code == 200
        assert found["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}
        assert found["metadata"]["labels"] == {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }
        assert await _names(api) == {"10.0.0.1", ip}
        await api("POST", SERVICES, _service("headless", clusterIP="None"))
        assert await _names(api) == {"10.0.0.1", ip}
        await api("DELETE", f"{SERVICES}/a")
        assert await _names(api) == {"10.0.0.1"}


async def test_dual_stack_service_has_two_addresses(started) -> None:
    async with started("--service-cluster-ip-range=10.0.0.0/24,fd00::/112") as api:
        _, made = await api("POST", SERVICES, _service("a", ipFamilyPolicy="RequireDualStack"))
        four, six = made["spec"]["clusterIPs"]
        assert await _names(api) == {"10.0.0.1", four, six}
        made["spec"] |= {"ipFamilyPolicy": "SingleStack", "clusterIPs": [four], "ipFamilies": ["IPv4"]}
        code, _ = await api("PUT", f"{SERVICES}/a", made)
        assert (code, await _names(api)) == (200, {"10.0.0.1", four})


async def test_dry_run_creates_no_address(started) -> None:
    async with started() as api:
        code, _ = await api("POST", f"{SERVICES}?dryRun=All", _service("a"))
        assert (code, len(await _names(api))) == (201, 1)


async def test_addresses_are_reconciled_at_start(started, backend) -> None:
    async with started("--service-cluster-ip-range=10.0.0.0/24") as api:
        _, made = await api("POST", SERVICES, _service("a"))
        ip = made["spec"]["clusterIP"]
        _, found = await api("GET", f"{ADDRESSES}/{ip}")
        await api("DELETE", f"{ADDRESSES}/{ip}")
        orphan = {"metadata": {"name": "10.0.0.200", "labels": found["metadata"]["labels"]}, "spec": found["spec"]}
        own = {"metadata": {"name": "10.0.0.201"}, "spec": found["spec"]}
        for tree in (orphan, own):
            assert (await api("POST", ADDRESSES, tree))[0] == 201
        assert await _names(api) == {"10.0.0.1", "10.0.0.200", "10.0.0.201"}
        await api.server.settle(6443)
        assert await _names(api) == {"10.0.0.1", ip, "10.0.0.201"}


async def test_address_taken_by_others_is_not_allocated(started) -> None:
    parent = {"parentRef": {"group": "example.org", "resource": "gateways", "name": "g"}}
    async with started(SMALL) as api:
        assert (await api("POST", ADDRESSES, {"metadata": {"name": "10.0.0.2"}, "spec": parent}))[0] == 201
        assert (await api("POST", SERVICES, _service("a")))[0] == 500
        code, told = await api("POST", SERVICES, _service("a", clusterIP="10.0.0.2"))
        assert (code, told["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs")
        await api("DELETE", f"{ADDRESSES}/10.0.0.2")
        assert (await api("POST", SERVICES, _service("a")))[0] == 201


async def test_additional_range_is_used_while_ready(started) -> None:
    async with started(SMALL) as api:
        assert (await api("POST", SERVICES, _service("first")))[0] == 201
        assert (await api("POST", SERVICES, _service("b")))[0] == 500  # all are allocated
        more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24", "fd00::/112"]}}
        code, made = await api("POST", RANGES, more)
        assert code == 201
        code, second = await api("POST", SERVICES, _service("b"))
        assert (code, second["spec"]["ipFamilies"]) == (201, ["IPv4"])
        assert ip_address(second["spec"]["clusterIP"]) in ip_network("10.9.0.0/24")
        code, third = await api("POST", SERVICES, _service("c", clusterIP="10.9.0.77"))
        assert (code, third["spec"]["clusterIP"]) == (201, "10.9.0.77")
        condition = {"type": "Ready", "status": "False", "reason": "Terminating", "message": ""}
        condition["lastTransitionTime"] = "2024-01-01T00:00:00Z"
        code, _ = await api("PUT", f"{RANGES}/more/status", made | {"status": {"conditions": [condition]}})
        assert code == 200
        assert (await api("POST", SERVICES, _service("d")))[0] == 500
        assert (await api("GET", f"{SERVICES}/b"))[1]["spec"]["clusterIP"] == second["spec"]["clusterIP"]


async def test_ranges_are_known_after_restart(started) -> None:
    more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}}
    async with started(SMALL) as api:
        await api("POST", RANGES, more)
        await api("POST", SERVICES, _service("a"))
    async with started(SMALL) as api:
        code, made = await api("POST", SERVICES, _service("b"))
        assert (code, made["spec"]["clusterIP"].startswith("10.9.0.")) == (201, True)


@pytest.mark.parametrize("change", ["deleted", "replaced"])
async def test_deleted_range_is_not_used(started, change: str) -> None:
    more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}}
    async with started(SMALL) as api:
        await api("POST", SERVICES, _service("a"))
        await api("POST", RANGES, more)
        await api("DELETE", f"{RANGES}/more")
        if change == "replaced":
            await api("POST", RANGES, more)
        assert (await api("POST", SERVICES, _service("b")))[0] == (500 if change == "deleted" else 201)
