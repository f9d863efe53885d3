"""Endpoints, slices and mirrored slices under faults, by seed, in virtual time.

After recovery:
- the ready addresses in Endpoints of a service with a selector are exactly those of its ready pods;
- its slices list the same ready addresses, and the unready ones, each once;
- each endpoint has the current zone of its node;
- no slice exceeds the limit, and each address family has at least one slice;
- slices of Endpoints that users manage list exactly their addresses;
- no slice of ours is without its service;
- nothing is written any more.
"""

import contextlib
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import (
    ENDPOINTS,
    NODES,
    PODS,
    SERVICES,
    ZONE,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    Node,
    Pod,
    Service,
    is_pod_ready,
)
from controller_manager.common.api.discovery import ENDPOINT_SLICES, EndpointSlice
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.wire import Request
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster, Replica, builders
from controllers.shared.slice_writer import service_of
from tests.scenarios.faults import random_choice

ACTIONS = 20
FAULTS = 0.2
LIMIT = 3
APPS = ("x", "y")
NODE_NAMES = ("n1", "n2")
ZONES = ("a", "b")
MIRRORED = "own"
MIRRORED_IPS = ("198.51.100.1", "198.51.100.2", "2001:db8::1")
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"clusterIP": "None"},
    {"publishNotReadyAddresses": True},
    {"trafficDistribution": "PreferClose"},
)
FLAGS = (
    "--leader-elect=false",
    "--controllers=endpoint,endpointslice,endpointslicemirroring",
    f"--max-endpoints-per-slice={LIMIT}",
)


class World:
    """A few services, pods and nodes, random changes of them, and one manager at a time."""

    def __init__(self, cluster: Cluster, manager: Replica) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.manager = manager

    async def run_random_actions(self) -> None:
        people = (
            *(self.make_service, self.make_service, self.turn_service, self.drop_service),
            *(
                self.make_pod,
                self.make_pod,
                self.make_pod,
                self.make_pod,
                self.flip_pod,
                self.relabel_pod,
                self.drop_pod,
            ),
            *(self.make_node, self.move_node, self.drop_node, self.spoil_slice, self.drop_slice, self.mirror),
            self.change_manager,
        )
        for _ in range(ACTIONS):
            # Actions fail if their object does not exist, or exists already.
            with contextlib.suppress(ApiError, TransportError):
                await random_choice(people)()
            if random_source().uniform(0, 1) < 0.5:
                await self.cluster.sleep(random_source().uniform(0, 3))

    async def heal(self) -> None:
        self.manager.network.rate = 0
        await self.cluster.sleep(300)  # longer than a silent watch lasts
        await self.cluster.settle()

    async def make_service(self) -> None:
        annotations = random_choice(({}, {"service.kubernetes.io/topology-mode": "Auto"}))
        spec = random_choice(
            ({}, {"clusterIP": "None"}, {"publishNotReadyAddresses": True}, {"trafficDistribution": "PreferClose"})
        )
        wanted = builders.service(random_choice(APPS), {"app": random_choice(APPS)}, **spec)
        await self.client.create(SERVICES, replace(wanted, metadata=replace(wanted.metadata, annotations=annotations)))

    async def turn_service(self) -> None:
        port = {"port": random_choice((80, 81)), "targetPort": random_choice((80, 8080))}
        change = {"spec": {"selector": {"app": random_choice(APPS)}, "ports": [port]}}
        await self.client.patch(SERVICES, Key("default", random_choice(APPS)), change)

    async def drop_service(self) -> None:
        await self.client.delete(SERVICES, Key("default", random_choice((*APPS, MIRRORED))))

    async def make_pod(self) -> None:
        number = int(random_source().uniform(1, 12))
        pod = builders.pod(f"p-{number}", labels={"app": random_choice(APPS)}, ip=f"10.0.0.{number}")
        pod = replace(pod, spec=replace(pod.spec, node_name=random_choice((*NODE_NAMES, ""))))
        made = await self.client.create(PODS, pod)
        await self.client.update(PODS, replace(made, status=pod.status), subresource="status")

    async def flip_pod(self) -> None:
        key = await self.some(PODS)
        status = {"status": builders.running(f"10.0.0.{key.name[2:]}", ready=random_choice((True, False)))}
        await self.client.patch(PODS, key, status, subresource="status")

    async def relabel_pod(self) -> None:
        await self.client.patch(PODS, await self.some(PODS), {"metadata": {"labels": {"app": random_choice(APPS)}}})

    async def drop_pod(self) -> None:
        await self.client.delete(PODS, await self.some(PODS), grace=0)

    async def make_node(self) -> None:
        node = Node(metadata=ObjectMeta(name=random_choice(NODE_NAMES), labels={ZONE: random_choice(ZONES)}))
        key = key_of(await self.client.create(NODES, node))
        ready = {"type": "Ready", "status": "True"}
        status = {"status": {"allocatable": {"cpu": random_choice(("1", "4"))}, "conditions": [ready]}}
        await self.client.patch(NODES, key, status, subresource="status")

    async def move_node(self) -> None:
        await self.client.patch(
            NODES, Key("", random_choice(NODE_NAMES)), {"metadata": {"labels": {ZONE: random_choice(ZONES)}}}
        )

    async def drop_node(self) -> None:
        await self.client.delete(NODES, Key("", random_choice(NODE_NAMES)))

    async def spoil_slice(self) -> None:
        change = random_choice(
            ({"endpoints": [{"addresses": ["192.0.2.9"]}]}, {"metadata": {"labels": {"spoilt": ""}}})
        )
        await self.client.patch(ENDPOINT_SLICES, await self.some(ENDPOINT_SLICES), change)

    async def drop_slice(self) -> None:
        await self.client.delete(ENDPOINT_SLICES, await self.some(ENDPOINT_SLICES))

    async def mirror(self) -> None:
        """Create Endpoints for a service without selector."""
        ips = (
            EndpointAddress(ip="198.51.100.1"),
            EndpointAddress(ip="198.51.100.2"),
            EndpointAddress(ip="2001:db8::1"),
        )
        subset = EndpointSubset(
            addresses=ips[: random_choice((1, 2, 3))], ports=(EndpointPort(port=random_choice((80, 81))),)
        )
        meta = ObjectMeta(namespace="default", name=MIRRORED)
        with contextlib.suppress(ApiError):
            await self.client.create(SERVICES, builders.service(MIRRORED))
        with contextlib.suppress(ApiError):
            await self.client.create(ENDPOINTS, Endpoints(metadata=meta))
        found = await self.client.get(ENDPOINTS, Key("default", MIRRORED))
        await self.client.update(ENDPOINTS, replace(found, subsets=(subset,)))

    async def change_manager(self) -> None:
        await self.manager.kill()
        self.manager = await self.cluster.manage(*FLAGS, faults=FAULTS)

    async def some(self, resource: Any) -> Key:
        found = (await self.client.list(resource, "default")).items
        return key_of(random_choice(found)) if found else Key("default", "p-0")


class Listed:
    """The state after recovery."""

    def __init__(
        self, services: list[Service], pods: list[Pod], nodes: list[Node], slices: list[EndpointSlice]
    ) -> None:
        self.services = {key_of(service): service for service in services if service.metadata.name != "kubernetes"}
        self.nodes = {node.metadata.name: (node.metadata.labels or {})[ZONE] for node in nodes}
        self.slices = [slice_ for slice_ in slices if slice_.metadata.owner_references]
        self.pods = pods

    def selected(self, service: Service) -> list[Pod]:
        selector = service.spec.selector or {}
        return [
            pod for pod in self.pods if pod.status.pod_ip and selector.items() <= (pod.metadata.labels or {}).items()
        ]

    def expected(self, service: Service) -> set[tuple[str, bool, str | None]]:
        """Return address, readiness and zone of each expected endpoint."""
        always = service.spec.publish_not_ready_addresses
        return {
            (pod.status.pod_ip, always or is_pod_ready(pod), self.nodes.get(pod.spec.node_name))
            for pod in self.selected(service)
            if always or not pod.spec.node_name or pod.spec.node_name in self.nodes
        }

    def of(self, service: Service) -> list[EndpointSlice]:
        return [slice_ for slice_ in self.slices if service_of(slice_) == key_of(service)]


async def look(cluster: Cluster) -> Listed:
    client = cluster.client
    return Listed(
        (await client.list(SERVICES)).items,
        (await client.list(PODS)).items,
        (await client.list(NODES)).items,
        (await client.list(ENDPOINT_SLICES)).items,
    )


def check_slices(found: Listed) -> None:
    assert {service_of(slice_) for slice_ in found.slices} <= set(found.services)
    for service in found.services.values():
        slices = found.of(service)
        endpoints = [endpoint for slice_ in slices for endpoint in slice_.endpoints or ()]
        listed = [(e.addresses[0], e.conditions.ready, e.zone) for e in endpoints]
        if service.spec.selector:
            assert set(listed) == found.expected(service)
            assert {slice_.address_type for slice_ in slices} == set(service.spec.ip_families)
            assert all("spoilt" not in (slice_.metadata.labels or {}) for slice_ in slices)
        assert len({ip for ip, _, _ in listed}) == len(listed)
        assert all(len(slice_.endpoints or ()) <= LIMIT for slice_ in slices)


def check_endpoints(found: Listed, endpoints: list[Endpoints]) -> None:
    by_key = {key_of(one): one for one in endpoints if one.metadata.name != "kubernetes"}
    for key, service in found.services.items():
        listed = (
            {address.ip for subset in by_key[key].subsets for address in subset.addresses} if key in by_key else None
        )
        if service.spec.selector:
            always = service.spec.publish_not_ready_addresses
            assert listed == {pod.status.pod_ip for pod in found.selected(service) if always or is_pod_ready(pod)}
        else:
            ips = {endpoint.addresses[0] for slice_ in found.of(service) for endpoint in slice_.endpoints or ()}
            assert ips == (listed or set())


@pytest.mark.virtual(seeds=200)
async def test_endpoints_and_slices_are_correct_after_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster, await cluster.manage(*FLAGS, faults=FAULTS))
        await world.run_random_actions()
        await world.heal()
        found = await look(cluster)
        check_slices(found)
        check_endpoints(found, (await cluster.client.list(ENDPOINTS)).items)
        revision = cluster.api.store.revision
        await cluster.advance(60)
        assert cluster.api.store.revision == revision


@pytest.mark.virtual
@pytest.mark.parametrize("controller", ["endpoints-controller", "endpointslice-controller"])
async def test_pod_change_costs_one_reconcile_and_one_write(controller: str) -> None:
    async with Cluster() as cluster:
        flags = ("--leader-elect=false", f"--controllers={controller}", "--authorization-always-allow-paths=/metrics")
        replica = await cluster.manage(*flags)
        await cluster.client.create(SERVICES, builders.service("x", {"app": "x"}))
        made = await cluster.client.create(PODS, builders.pod("p-1", labels={"app": "x"}))
        await cluster.advance(30)
        before, revision = await reconciles(replica, controller), cluster.api.store.revision
        await cluster.client.patch(PODS, key_of(made), {"status": builders.running("10.0.0.1")}, subresource="status")
        await cluster.advance(30)
        assert await reconciles(replica, controller) == before + 1
        assert cluster.api.store.revision == revision + 2


async def reconciles(replica: Replica, controller: str) -> int:
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(page.body, bytes)
    mine = (line for line in page.body.decode().splitlines() if f'controller="{controller}"' in line)
    return sum(int(float(line.split()[-1])) for line in mine if line.startswith("controller_runtime_reconcile_total"))
