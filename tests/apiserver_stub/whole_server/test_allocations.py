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
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from tests.apiserver_stub.running_server import FLAGS_OF_ALL, TwoServers, two_servers

SERVICES = "/api/v1/namespaces/default/services"
IPS = "/apis/networking.k8s.io/v1/ipaddresses"
RANGES = ("--service-cluster-ip-range=10.0.0.0/28", "--service-node-port-range=30000-30009")

pytestmark = pytest.mark.virtual


def rows(server: ApiServer) -> dict[str | int, str]:
    """The owner of each allocation, by its row."""
    ips = {row.key: f"{row.field('spec.parentRef.namespace')}/{row.field('spec.parentRef.name')}" for row in
           server.store.snapshot(ADDRESSES).items()}  # fmt: skip
    return {**ips, **{int(row.key): row.field("spec.service") for row in server.store.snapshot(NODE_PORTS).items()}}


def services(server: ApiServer) -> dict[str | int, str]:
    """The owner of each allocation, by the services; fails for duplicates."""
    held: dict[str | int, str] = {}
    for row in server.store.snapshot("services").items():
        for item in items_of(row.data):
            assert held.setdefault(item, row.key) == row.key
    return held


@pytest.fixture
async def two() -> AsyncIterator[TwoServers]:
    async with two_servers(*RANGES) as found:
        yield found


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lag", [0.0, 0.1])
async def test_allocations_are_unique_and_complete(two: TwoServers, seed: int, lag: float) -> None:
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
                    await api.delete(f"{SERVICES}/{name}")
                case 1:
                    await api.patch(f"{SERVICES}/{name}", {"spec": spec})
                case 2:
                    await api.patch(f"{SERVICES}/{name}", {"metadata": {"finalizers": ["a.b/c"]}})
                    await api.delete(f"{SERVICES}/{name}")
                    await api.patch(f"{SERVICES}/{name}", {"metadata": {"finalizers": None}})
                case 3:
                    asked = f"10.0.0.{chance.randrange(2, 6)}"
                    await api.post(SERVICES, service(name, clusterIP=asked, **spec))
                case _:
                    await api.post(SERVICES, service(name, **spec))

    async with asyncio.TaskGroup() as group:
        lagging = group.create_task(be_late())
        await all_of(*(work(api) for api in (two.one, two.other) for _ in range(3)))
        lagging.cancel()
    two.late.release()
    assert rows(two.one.server) == services(two.one.server)


async def test_concurrent_requests_for_one_address_conflict(two: TwoServers) -> None:
    one, other = two.one, two.other
    two.late.held = True
    assert (await one.post(SERVICES, service("a", clusterIP="10.0.0.7"))).status == 201
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(other.post(SERVICES, service("b", clusterIP="10.0.0.7")))
        await asyncio.sleep(1)
        two.late.release()
    answer = asked.result()
    assert (answer.status, answer.tree["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs")


async def test_terminating_service_keeps_its_allocations(two: TwoServers) -> None:
    api = two.one
    made = (
        await api.post(SERVICES, service("a", type="NodePort") | {"metadata": {"name": "a", "finalizers": ["x/y"]}})
    ).tree
    held = {made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]}
    await api.delete(f"{SERVICES}/a")
    assert held <= rows(two.one.server).keys()
    await api.patch(f"{SERVICES}/a/status", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{SERVICES}/a")).status == 404
    assert held.isdisjoint(rows(two.one.server))


async def test_address_changes_with_its_service_in_one_revision(two: TwoServers) -> None:
    api = two.one
    version = (await api.get(IPS)).tree["metadata"]["resourceVersion"]
    made = (await api.post(SERVICES, service("a"))).tree
    await api.delete(f"{SERVICES}/a")
    events = await api.watch(f"timeoutSeconds=1&resourceVersion={version}", IPS)
    name = made["spec"]["clusterIP"]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", name),
        ("DELETED", name),
    ]
    came = int(events[0]["object"]["metadata"]["resourceVersion"])
    assert came == int(made["metadata"]["resourceVersion"]) - 1
    assert events[0]["object"]["metadata"]["managedFields"][0]["manager"] == "kube-apiserver"


async def test_missing_allocation_rows_are_created_at_start(two: TwoServers) -> None:
    api, store = two.one, two.one.server.store
    made = (await api.post(SERVICES, service("a", type="NodePort"))).tree
    number = made["spec"]["ports"][0]["nodePort"]
    for write in Allocations(store).writes("default/a", [number, made["spec"]["clusterIP"]], ()):
        await store.commit(write)
    assert number not in rows(two.one.server)
    again = build(FLAGS.parse((*FLAGS_OF_ALL, *RANGES)), Runtime("again"), store.storage)
    await again.open()
    assert rows(two.one.server)[number] == "default/a"
    await again.stop()


async def test_allocation_row_without_service_is_removed(two: TwoServers) -> None:
    store = two.one.server.store
    for write in Allocations(store).writes("default/ghost", (), ["10.0.0.9", 30003]):
        await store.commit(write)
    assert {"10.0.0.9", 30003} <= rows(two.one.server).keys()
    await two.one.server.settle(6443)
    assert rows(two.one.server) == services(two.one.server)
