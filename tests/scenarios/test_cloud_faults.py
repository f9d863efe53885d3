"""Clouds that are slow, refuse, forget and lose answers, while requests fail and managers are lost, by seed.

What holds for every seed:

1. A service that is gone leaves no load balancer behind, unless somebody took its finalizer away.
2. No node is deleted whose machine is there, but for one that came while the request was on its way, and none that says
   it is ready.
3. Once everything works again: each service that wants one has a load balancer, which leads to the nodes that count and
   whose address it tells, and no other service has one or our finalizer; each node has a range and a route to it and
   says so, and there are no other routes; of the nodes that are not ready those are gone whose machines are, and those
   tainted whose machines are shut down.
"""

import contextlib
from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES, SERVICES, Node
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.cloud import SimulatedCloud
from controller_manager.testing.fault_injector import RATE
from controller_manager.testing.faults import LONGEST_DELAY
from controllers.cloud_node_lifecycle import has_taint, is_ready
from controllers.service_load_balancers import FINALIZER, wants_load_balancer
from controllers.shared.cloud import EXCLUDED, backends
from controllers.shared.node_ranges import ranges_of
from tests.scenarios.clouds import add_node, add_service, manage, say
from tests.scenarios.trials import one_of

FLAGS = (
    "--controllers=node-ipam-controller,node-route-controller,service-lb-controller,cloud-node-lifecycle-controller",
    *("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16", "--concurrent-service-syncs=2"),
)
ROUNDS = 24
NAMES = ("a", "b", "c", "d", "e")
WEB = ("web-0", "web-1", "web-2")
SLOWEST = 20.0  # seconds until the cloud answers
ON_THE_WAY = SLOWEST + LONGEST_DELAY  # seconds from when the cloud is asked until what follows reaches the server


class World:
    """People, machines and what goes wrong."""

    def __init__(self, cluster: Cluster, cloud: SimulatedCloud) -> None:
        self.cluster, self.cloud = cluster, cloud
        self.replica: Replica | None = None
        self.wrong: list[str] = []
        self._ours: set[str] = set()
        self._came: dict[str, float] = {}
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == "nodes" and change.deleted and change.row.name not in self._ours:
                if change.row.name in self.cloud.machines and monotonic() - self._came[change.row.name] > ON_THE_WAY:
                    self.wrong.append(f"node {change.row.name} was deleted, and its machine is there")
                if is_ready(Node.decode(change.row.data)):
                    self.wrong.append(f"node {change.row.name} was deleted while it was ready")

    async def join(self) -> None:
        name = one_of(NAMES)
        if name not in self.cloud.machines:
            self.cloud.machines[name] = True
            self._came[name] = monotonic()
        await add_node(self.cluster, name, ready=one_of((True, True, False)))

    async def change_machine(self) -> None:
        """A machine is shut down, starts, or is gone; its node says so soon."""
        name = one_of(NAMES)
        if name not in self.cloud.machines:
            return
        state = one_of((True, False, None))
        if state is None:
            await say(self.cluster, name, ready="Unknown")
            del self.cloud.machines[name]
        else:
            self.cloud.machines[name] = state
            await say(self.cluster, name, ready="True" if state else "Unknown")

    async def exclude(self) -> None:
        labels = {EXCLUDED: one_of(("true", "false", None))}
        await self.cluster.client.patch(NODES, Key("", one_of(NAMES)), {"metadata": {"labels": labels}})

    async def leave(self) -> None:
        name = one_of(NAMES)
        self._ours.add(name)
        try:
            await self.cluster.client.delete(NODES, Key("", name))
        finally:
            self._ours.discard(name)

    async def serve(self) -> None:
        await add_service(self.cluster, one_of(WEB))

    async def change_service(self) -> None:
        change = one_of(({"type": "ClusterIP"}, {"type": "LoadBalancer"}, {"ports": [{"port": one_of((80, 81, 82))}]}))
        await self.cluster.client.patch(SERVICES, Key("default", one_of(WEB)), {"spec": change})

    async def remove_service(self) -> None:
        await self.cluster.client.delete(SERVICES, Key("default", one_of(WEB)))

    async def forget(self) -> None:
        """The cloud loses a route."""
        if self.cloud.table:
            self.cloud.table.remove(one_of(self.cloud.table))

    async def slow(self) -> None:
        self.cloud.delay = one_of((0.0, 0.5, SLOWEST))

    async def kill(self) -> None:
        assert self.replica is not None
        await self.replica.kill()
        self.replica = await manage(self.cluster, self.cloud, *FLAGS, faults=RATE)

    async def cut(self) -> None:
        assert self.replica is not None
        self.replica.network.cut()
        await self.cluster.sleep(random_source().uniform(0, 30))
        self.replica.network.heal()

    async def heal(self) -> None:
        assert self.replica is not None
        self.replica.network.rate = self.cloud.rate = self.cloud.delay = 0.0
        await self.cluster.sleep(900)  # longer than a silent watch goes unnoticed, and than what failed waits
        await self.cluster.settle()


@pytest.mark.virtual(seeds=200)
async def test_whatever_goes_wrong_the_cloud_is_as_wanted_in_the_end() -> None:
    cloud = SimulatedCloud(rate=0.2)
    async with Cluster() as cluster:
        world = World(cluster, cloud)
        world.replica = await manage(cluster, cloud, *FLAGS, faults=RATE)
        people = (
            *(world.join, world.join, world.change_machine, world.exclude, world.leave),
            *(world.serve, world.change_service, world.remove_service),
        )
        troubles = (world.forget, world.slow, world.kill, world.cut)
        for _ in range(ROUNDS):
            with contextlib.suppress(ApiError):
                await one_of((*people, *people, *troubles))()
            await cluster.sleep(random_source().uniform(0, 30))
        await world.heal()
        assert world.wrong == []
        await check_services(cluster, cloud)
        await check_nodes(cluster, cloud)


async def check_services(cluster: Cluster, cloud: SimulatedCloud) -> None:
    nodes = tuple(node.metadata.name for node in backends((await cluster.client.list(NODES)).items))
    services = (await cluster.client.list(SERVICES)).items
    wanting = {service.metadata.uid: service for service in services if wants_load_balancer(service)}
    assert set(cloud.balancers) == set(wanting)
    for service in services:
        assert (FINALIZER in service.metadata.finalizers) is (service.metadata.uid in wanting)
        told = [one.ip for one in service.status.load_balancer.ingress]
        found = cloud.balancers.get(service.metadata.uid)
        assert told == ([] if found is None else [found.address])
        if found is not None:
            assert (found.nodes, found.ports) == (nodes, tuple(port.port for port in service.spec.ports))


async def check_nodes(cluster: Cluster, cloud: SimulatedCloud) -> None:
    nodes = (await cluster.client.list(NODES)).items
    routes = sorted((route.node, route.destination) for route in cloud.table)
    assert routes == sorted((node.metadata.name, one) for node in nodes for one in ranges_of(node))
    for node in nodes:
        told = condition_of(node.status.conditions, "NetworkUnavailable")
        assert ranges_of(node)
        assert told is not None
        assert told.status == "False"
        if is_ready(node):
            assert not has_taint(node)
        else:
            assert node.metadata.name in cloud.machines
            assert has_taint(node) or cloud.machines[node.metadata.name]
