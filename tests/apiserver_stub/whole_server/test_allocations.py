"""Cluster IPs and node ports are allocated once by either of two servers, and released."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.admission.services.allocations import ADDRESSES, NODE_PORTS, Allocations, items_of
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from tests.apiserver_stub.lagging_storage import LaggingStorage
from tests.apiserver_stub.memory_backend import MemoryBackend

SERVICES = "/api/v1/namespaces/default/services"
IPS = "/apis/networking.k8s.io/v1/ipaddresses"
MERGE = {"content_type": "application/merge-patch+json"}
FLAG_TEXTS = (
    *("--storage-backend=memory", "--advertise-address=192.0.2.1"),
    *("--service-cluster-ip-range=10.0.0.0/28", "--service-node-port-range=30000-30009"),
)

pytestmark = pytest.mark.virtual


class Servers:
    """Administrators of two servers on one storage; the second sees changes late."""

    def __init__(self, servers: list[ApiServer], late: LaggingStorage, speak: Any) -> None:
        self.servers = servers
        self.late = late
        self.apis = [speak(server) for server in servers]

    def rows(self) -> dict[str | int, str]:
        """The owner of each allocation, by the rows of the first server."""
        store = self.servers[0].store
        ips = {row.key: f"{row.field('spec.parentRef.namespace')}/{row.field('spec.parentRef.name')}" for row in
               store.snapshot(ADDRESSES).items()}  # fmt: skip
        return {**ips, **{int(row.key): row.field("spec.service") for row in store.snapshot(NODE_PORTS).items()}}

    def services(self) -> dict[str | int, str]:
        """The owner of each allocation, by the services of the first server; fails for duplicates."""
        held: dict[str | int, str] = {}
        for row in self.servers[0].store.snapshot("services").items():
            for item in items_of(row.data):
                assert held.setdefault(item, row.key) == row.key
        return held


@pytest.fixture
async def two(admin_of: Any) -> AsyncIterator[Servers]:
    flags, storage = FLAGS.parse(FLAG_TEXTS), embedded_storage(MemoryBackend())
    late = LaggingStorage(storage)
    servers = [build(flags, Runtime("one"), storage), build(flags, Runtime("other"), late)]
    for server in servers:
        await server.start()
    yield Servers(servers, late, admin_of)
    for server in servers:
        await server.stop()


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lag", [0.0, 0.1])
async def test_allocations_are_unique_and_complete(two: Servers, seed: int, lag: float) -> None:
    chance = random.Random(seed)  # names and addresses of a test

    async def be_late() -> None:
        while lag:
            two.late.held = True
            await asyncio.sleep(lag)
            two.late.release()
            await asyncio.sleep(lag)

    async def work(api: Any) -> None:
        for _ in range(12):
            name = f"s{chance.randrange(5)}"
            spec: dict[str, Any] = {"type": chance.choice(["ClusterIP", "NodePort"])}
            match chance.randrange(5):
                case 0:
                    await api("DELETE", f"{SERVICES}/{name}")
                case 1:
                    await api("PATCH", f"{SERVICES}/{name}", {"spec": spec}, **MERGE)
                case 2:
                    await api("PATCH", f"{SERVICES}/{name}", {"metadata": {"finalizers": ["a.b/c"]}}, **MERGE)
                    await api("DELETE", f"{SERVICES}/{name}")
                    await api("PATCH", f"{SERVICES}/{name}", {"metadata": {"finalizers": None}}, **MERGE)
                case 3:
                    asked = f"10.0.0.{chance.randrange(2, 6)}"
                    await api("POST", SERVICES, service(name, clusterIP=asked, **spec))
                case _:
                    await api("POST", SERVICES, service(name, **spec))

    async with asyncio.TaskGroup() as group:
        lagging = group.create_task(be_late())
        await all_of(*(work(api) for api in two.apis for _ in range(3)))
        lagging.cancel()
    two.late.release()
    assert two.rows() == two.services()


async def test_concurrent_requests_for_one_address_conflict(two: Servers) -> None:
    one, other = two.apis
    two.late.held = True
    assert (await one("POST", SERVICES, service("a", clusterIP="10.0.0.7")))[0] == 201
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(other("POST", SERVICES, service("b", clusterIP="10.0.0.7")))
        await asyncio.sleep(1)
        two.late.release()
    code, told = asked.result()
    assert (code, told["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs")


async def test_terminating_service_keeps_its_allocations(two: Servers) -> None:
    api = two.apis[0]
    made = (
        await api("POST", SERVICES, service("a", type="NodePort") | {"metadata": {"name": "a", "finalizers": ["x/y"]}})
    )[1]
    held = {made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]}
    await api("DELETE", f"{SERVICES}/a")
    assert held <= two.rows().keys()
    await api("PATCH", f"{SERVICES}/a/status", {"metadata": {"finalizers": None}}, **MERGE)
    assert (await api("GET", f"{SERVICES}/a"))[0] == 404
    assert held.isdisjoint(two.rows())


async def test_address_changes_with_its_service_in_one_revision(two: Servers) -> None:
    api = two.apis[0]
    version = (await api("GET", IPS))[1]["metadata"]["resourceVersion"]
    made = (await api("POST", SERVICES, service("a")))[1]
    await api("DELETE", f"{SERVICES}/a")
    told = await api.watch(f"timeoutSeconds=1&resourceVersion={version}", IPS)
    name = made["spec"]["clusterIP"]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in told] == [
        ("ADDED", name),
        ("DELETED", name),
    ]
    came = int(told[0]["object"]["metadata"]["resourceVersion"])
    assert came == int(made["metadata"]["resourceVersion"]) - 1
    assert told[0]["object"]["metadata"]["managedFields"][0]["manager"] == "kube-apiserver"


async def test_missing_allocation_rows_are_created_at_start(two: Servers) -> None:
    api, store = two.apis[0], two.servers[0].store
    made = (await api("POST", SERVICES, service("a", type="NodePort")))[1]
    number = made["spec"]["ports"][0]["nodePort"]
    for write in Allocations(store).writes("default/a", [number, made["spec"]["clusterIP"]], ()):
        await store.commit(write)
    assert number not in two.rows()
    again = build(FLAGS.parse(FLAG_TEXTS), Runtime("again"), store.storage)
    await again.open()
    assert two.rows()[number] == "default/a"
    await again.stop()


async def test_allocation_row_without_service_is_removed(two: Servers) -> None:
    store = two.servers[0].store
    for write in Allocations(store).writes("default/ghost", (), ["10.0.0.9", 30003]):
        await store.commit(write)
    assert {"10.0.0.9", 30003} <= two.rows().keys()
    await two.servers[0].settle(6443)
    assert two.rows() == two.services()
