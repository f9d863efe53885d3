"""Services on a real store: allocated, preserved and rejected addresses and ports (API concepts, Dry-run, rule 4: ports
and addresses assigned to Services).
"""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

import pytest

from apiserver_stub.admission.services import allocations
from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api import errors
from controller_manager.common.api.core import SERVICES as KIND
from controller_manager.common.base.tasks import all_of
from controller_manager.testing import Cluster, builders
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.verbs.conftest import allocation_of

SERVICES = "/api/v1/namespaces/default/services"
NETWORKS = [ip_network("10.0.0.0/28")]


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def port(number: int, node_port: int = 0, protocol: str = "TCP") -> dict[str, Any]:
    opened = {"nodePort": node_port} if node_port else {}
    return {"port": number, "name": f"{protocol.lower()}-{number}", "protocol": protocol, **opened}


def node_ports(found: dict[str, Any]) -> list[int | None]:
    return [port.get("nodePort") for port in found["spec"]["ports"]]


@pytest.fixture
def allocation() -> Any:
    return allocation_of(NETWORKS, range(30000, 30004))


async def test_service_gets_an_address(api) -> None:
    spec = (await api.post(SERVICES, service("a"))).tree["spec"]
    assert spec["clusterIP"] in map(str, NETWORKS[0])
    assert (spec["clusterIPs"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == (
        [spec["clusterIP"]], ["IPv4"], "SingleStack",
    )  # fmt: skip
    assert "nodePort" not in spec["ports"][0]


@pytest.mark.parametrize(
    ("spec", "absent"),
    [({"clusterIP": "None"}, ()), ({"type": "ExternalName", "externalName": "a.b"}, ("clusterIP", "ipFamilies"))],
)
async def test_headless_and_external_services_get_no_address(
    api, spec: dict[str, Any], absent: tuple[str, ...]
) -> None:
    found = (await api.post(SERVICES, service("a", **spec))).tree["spec"]
    assert found.get("clusterIP", "None") == "None"
    assert not set(absent) & set(found)


async def test_addresses_are_unique_and_reused_after_release(api) -> None:
    made = [(await api.post(SERVICES, service(f"s{i}"))).tree for i in range(13)]
    given = {found["spec"]["clusterIP"] for found in made}
    assert len(given) == 13
    assert "10.0.0.1" not in given
    with pytest.raises(errors.InternalError, match="failed to allocate a serviceIP: range is full"):
        await api.post(SERVICES, service("more"))
    await api.delete(f"{SERVICES}/s3")
    again = (await api.post(SERVICES, service("more"))).tree
    assert again["spec"]["clusterIP"] == made[3]["spec"]["clusterIP"]


async def test_concurrent_services_get_different_addresses(api) -> None:
    made = await all_of(*(api.post(SERVICES, service(f"s{i}")) for i in range(13)))
    assert len({answer.tree["spec"]["clusterIP"] for answer in made}) == 13


async def test_first_address_is_reserved_for_kubernetes_service(api) -> None:
    with pytest.raises(errors.Invalid, match="already allocated"):
        await api.post(SERVICES, service("a", clusterIP="10.0.0.1"))
    found = (await api.post(SERVICES, service("kubernetes", clusterIP="10.0.0.1"))).tree
    assert found["spec"]["clusterIPs"] == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"clusterIP": "10.0.0.5"}, "spec.clusterIPs", "failed to allocate IP 10.0.0.5: provided IP is already alloc"),
        ({"clusterIP": "10.0.9.5"}, "spec.clusterIPs", "the provided IP (10.0.9.5) is not in the valid range"),
        ({"clusterIP": "10.0.0.0"}, "spec.clusterIPs", "is not in the valid range. The range of valid IPs is 10.0.0.0"),
        ({"type": "NodePort", "ports": [port(1, 30001)]}, "spec.ports[0].nodePort", "provided port is already alloc"),
        ({"type": "NodePort", "ports": [port(1, 80)]}, "spec.ports[0].nodePort", "range of valid ports is 30000-30003"),
        (
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
             "ports": [port(1, 30002)]},
            "spec.healthCheckNodePort", "provided port is already allocated",
        ),
        (
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30002,
             "ports": [port(1, 30002)]},
            "spec.healthCheckNodePort", "provided port is already allocated",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry", ["", "?dryRun=All"])
async def test_unavailable_addresses_and_ports_are_rejected(
    api, spec: dict[str, Any], field: str, message: str, dry: str
) -> None:
    held = service("held", clusterIP="10.0.0.5", type="NodePort", ports=[port(80, 30001)])
    await api.post(SERVICES, held)
    with pytest.raises(errors.Invalid) as caught:
        await api.post(f"{SERVICES}{dry}", service("a", **spec))
    assert caught.value.details is not None
    assert [cause.field for cause in caught.value.details.causes] == [field]
    assert message in caught.value.message


async def test_dry_run_shows_allocations_without_keeping_them(api) -> None:
    """API concepts, Dry-run, rule 2."""
    for _ in range(20):
        shown = (await api.post(f"{SERVICES}?dryRun=All", service("a", type="NodePort"))).tree
        assert shown["spec"]["clusterIP"]
        assert node_ports(shown) != [None]
    wanted = {"clusterIP": shown["spec"]["clusterIP"], "type": "NodePort", "ports": shown["spec"]["ports"]}
    assert (await api.post(SERVICES, service("b", **wanted))).tree


async def test_failed_write_allocates_nothing(api) -> None:
    too_large = service("a", clusterIP="10.0.0.5", externalIPs=["10.1.1.1"] * 400_000)
    with pytest.raises(errors.RequestEntityTooLarge):
        await api.post(SERVICES, too_large)
    made = (await api.post(SERVICES, service("b", clusterIP="10.0.0.5"))).tree
    assert made["spec"]["clusterIP"] == "10.0.0.5"


async def test_node_port_is_shared_by_both_protocols(api) -> None:
    both = [port(53), port(53, protocol="UDP"), port(80)]
    made = (await api.post(SERVICES, service("dns", type="NodePort", ports=both))).tree
    dns, dns_udp, web = node_ports(made)
    assert dns == dns_udp != web
    with pytest.raises(errors.Invalid, match="provided port is already allocated"):
        await api.post(SERVICES, service("a", type="NodePort", ports=[port(1, dns or 0, "UDP")]))
    with pytest.raises(errors.InternalError, match="failed to allocate a nodePort: range is full"):
        await api.post(SERVICES, service("a", type="NodePort", ports=[port(n) for n in range(1, 4)]))


async def test_too_many_node_ports_and_full_range_are_rejected(api) -> None:
    many = [port(n) for n in range(1, 6)]
    with pytest.raises(errors.Invalid, match="takes 5 node ports, and the range has only 4") as caught:
        await api.post(SERVICES, service("a", type="NodePort", ports=many))
    assert [cause.field for cause in caught.value.details.causes] == ["spec.ports"]
    balanced = service("a", type="LoadBalancer", externalTrafficPolicy="Local", ports=many[:4])
    with pytest.raises(errors.Invalid, match="takes 5 node ports"):
        await api.post(SERVICES, balanced)
    assert (await api.post(SERVICES, service("a", type="NodePort", ports=many[:4]))).tree
    with pytest.raises(errors.InternalError) as full:
        await api.post(SERVICES, service("b", type="NodePort", ports=many[:1]))
    assert [cause.message for cause in full.value.details.causes] == ["failed to allocate a nodePort: range is full"]


async def test_load_balancer_gets_health_check_and_optional_ports(api) -> None:
    made = (await api.post(SERVICES, service("a", type="LoadBalancer", externalTrafficPolicy="Local"))).tree
    assert made["spec"]["healthCheckNodePort"] not in (0, *node_ports(made))
    kept = (await api.put(f"{SERVICES}/a", service("a", type="LoadBalancer", externalTrafficPolicy="Local"))).tree
    assert kept["spec"] == made["spec"]
    released = (await api.patch(f"{SERVICES}/a", {"spec": {"externalTrafficPolicy": "Cluster"}})).tree
    assert "healthCheckNodePort" not in released["spec"]
    bare = (await api.post(SERVICES, service("b", type="LoadBalancer", allocateLoadBalancerNodePorts=False))).tree
    assert node_ports(bare) == [None]


async def test_update_keeps_unmentioned_allocations(api) -> None:
    made = (await api.post(SERVICES, service("a", type="NodePort", ports=[port(80), port(81)]))).tree
    changed = (await api.put(f"{SERVICES}/a", service("a", type="NodePort", ports=[port(81), port(80), port(82)]))).tree
    assert changed["spec"]["clusterIPs"] == made["spec"]["clusterIPs"]
    assert node_ports(changed)[:2] == node_ports(made)[::-1]
    assert node_ports(changed)[2] not in (None, *node_ports(made))


@pytest.mark.parametrize(
    ("path", "address", "ports"),
    [
        (("ClusterIP", "NodePort"), True, True),
        (("NodePort", "ClusterIP"), True, False),
        (("NodePort", "LoadBalancer"), True, True),
        (("LoadBalancer", "ClusterIP"), True, False),
        (("NodePort", "ExternalName"), False, False),
        (("ExternalName", "LoadBalancer"), True, True),
        (("ClusterIP", "ExternalName", "ClusterIP"), True, False),
    ],
)
async def test_type_change_allocates_and_releases(api, path: tuple[str, ...], address: bool, ports: bool) -> None:
    first = {"externalName": "a.b"} if path[0] == "ExternalName" else {}
    await api.post(SERVICES, service("a", type=path[0], **first))
    for wanted in path[1:]:
        named = {"externalName": "a.b" if wanted == "ExternalName" else None}
        found = (await api.patch(f"{SERVICES}/a", {"spec": {"type": wanted, **named}})).tree
    assert ("clusterIP" in found["spec"], "clusterIPs" in found["spec"]) == (address, address)
    assert ("ipFamilies" in found["spec"], "ipFamilyPolicy" in found["spec"]) == (address, address)
    assert ("externalTrafficPolicy" in found["spec"]) is ports
    assert (None in node_ports(found)) is not ports
    spare = (await api.post(SERVICES, service("b", type="NodePort", ports=[port(n) for n in range(1, 4)]))).tree
    assert set(node_ports(spare)).isdisjoint({*node_ports(found)} - {None})


@pytest.mark.virtual
async def test_allocations_are_known_after_restart() -> None:
    async with Cluster(["--service-cluster-ip-range=10.0.0.0/29"]) as cluster:
        for number in range(4):
            await cluster.client.create(KIND, builders.service(f"s{number}"))
        await cluster.stop_api()
        await cluster.start_api()
        await cluster.client.create(KIND, builders.service("s4"))
        with pytest.raises(errors.InternalError, match="range is full"):
            await cluster.client.create(KIND, builders.service("s5"))


class FailingBackend(MemoryBackend):
    """Fails to write while `failing` is set."""

    failing = False

    def append(self, records: Sequence[Record], done: Done) -> None:
        if self.failing:
            asyncio.get_running_loop().call_later(0.01, done, OSError("no space left"))
        else:
            super().append(records, done)


async def test_failed_transaction_allocates_nothing(api, allocation) -> None:
    backend = FailingBackend()
    store = WatchCache(EmbeddedStorage(backend))
    await store.start()
    other = type(api)(store, api.kinds, allocation(store))
    await other.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    backend.failing = True

    async def lose(name: str) -> None:
        with pytest.raises(errors.ServiceUnavailable):
            await other.post(SERVICES, service(name, clusterIP="10.0.0.5"))

    await all_of(lose("a"), lose("b"))
    backend.failing = False
    assert (await other.post(SERVICES, service("b", clusterIP="10.0.0.5"))).tree
    with pytest.raises(errors.Invalid, match="already allocated"):
        await other.post(SERVICES, service("c", clusterIP="10.0.0.5"))
    await store.close()


class TestManyNodePorts:
    """A service may have as many node ports as the range; each row is read a few times, not once for each port."""

    @pytest.fixture
    def allocation(self) -> Any:
        return allocation_of(NETWORKS, range(30000, 30400))

    async def test_free_node_ports_are_found_in_linear_time(self, api, monkeypatch: pytest.MonkeyPatch) -> None:
        looked: list[object] = []
        usual = WatchCache.get

        def get(self: WatchCache, resource: str, key: str) -> Any:
            looked.append(key)
            return usual(self, resource, key)

        first = [port(number) for number in range(1, 301)]
        await api.post(SERVICES, service("a", type="NodePort", ports=first))
        monkeypatch.setattr(WatchCache, "get", get)
        second = (
            await api.post(SERVICES, service("b", type="NodePort", ports=[port(n) for n in range(1, 99)]))
        ).tree.copy()
        assert len(set(node_ports(second))) == 98
        assert len(looked) < 4 * 400

    async def test_given_node_ports_are_checked_in_linear_time(self, api, monkeypatch: pytest.MonkeyPatch) -> None:
        """The stored service is decoded once for all ports that have no row yet."""
        made = (await api.post(SERVICES, service("a", type="NodePort", ports=[port(n) for n in range(1, 101)]))).tree
        decoded: list[bytes] = []
        usual = allocations.items_of

        def items_of(data: bytes | None) -> Any:
            decoded.append(data or b"")
            return usual(data)

        monkeypatch.setattr(allocations, "items_of", items_of)
        free = sorted(set(range(30000, 30400)) - set(node_ports(made)))
        made["spec"]["ports"] = [port(n, free[n]) for n in range(1, 101)]
        changed = (await api.put(f"{SERVICES}/a", made)).tree
        assert node_ports(changed) == free[1:101]
        assert len(decoded) < 10
