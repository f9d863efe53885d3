"""Cloud controllers with a slow, failing and forgetful cloud, failed requests and lost managers, by seed.

For every seed:

1. A deleted service leaves no load balancer, unless a user removed its finalizer.
2. No ready node is deleted, and none whose machine exists, unless the machine came back while the request was on its
   way.
3. After recovery each service of type LoadBalancer, and no other, has our finalizer and a load balancer with its
   address and eligible nodes; each node has a range, a route and the condition for it, and there are no other routes;
   unready nodes are deleted if their machine is gone, and tainted if it is shut down.
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
from tests.scenarios.cloud import add_node, add_service, manage, set_ready
from tests.scenarios.faults import random_choice

FLAGS = (
    "--controllers=node-ipam-controller,node-route-controller,service-lb-controller,cloud-node-lifecycle-controller",
    *("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16", "--concurrent-service-syncs=2"),
)
ROUNDS = 24
NAMES = ("a", "b", "c", "d", "e")
WEB = ("web-0", "web-1", "web-2")
SLOWEST = 20.0  # seconds until the cloud answers
ON_THE_WAY = SLOWEST + LONGEST_DELAY  # seconds between a call of the cloud and the write that follows from it


class World:
    """Users, machines and random faults."""

    def __init__(self, cluster: Cluster, cloud: SimulatedCloud) -> None:
        self.cluster, self.cloud = cluster, cloud
        self.replica: Replica | None = None
        self.violations: list[str] = []
        self._ours: set[str] = set()
        self._came: dict[str, float] = {}
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == "nodes" and change.deleted and change.row.name not in self._ours:
                if change.row.name in self.cloud.machines and monotonic() - self._came[change.row.name] > ON_THE_WAY:
                    self.violations.append(f"node {change.row.name} was deleted, but its machine exists")
                if is_ready(Node.decode(change.row.data)):
                    self.violations.append(f"node {change.row.name} was deleted while it was ready")

    async def join(self) -> None:
        name = random_choice(NAMES)
        if name not in self.cloud.machines:
            self.cloud.machines[name] = True
            self._came[name] = monotonic()
        await add_node(self.cluster, name, ready=random_choice((True, True, False)))

    async def change_machine(self) -> None:
        """Shut a machine down, start it or remove it; its node reports that soon."""
        name = random_choice(NAMES)
        if name not in self.cloud.machines:
            return
        state = random_choice((True, False, None))
        if state is None:
            await set_ready(self.cluster, name, ready="Unknown")
            del self.cloud.machines[name]
        else:
            self.cloud.machines[name] = state
            await set_ready(self.cluster, name, ready="True" if state else "Unknown")

    async def exclude(self) -> None:
        labels = {EXCLUDED: random_choice(("true", "false", None))}
        await self.cluster.client.patch(NODES, Key("", random_choice(NAMES)), {"metadata": {"labels": labels}})

    async def leave(self) -> None:
        name = random_choice(NAMES)
        self._ours.add(name)
        try:
            await self.cluster.client.delete(NODES, Key("", name))
        finally:
            self._ours.discard(name)

    async def serve(self) -> None:
        await add_service(self.cluster, random_choice(WEB))

    async def change_service(self) -> None:
        change = random_choice(
            ({"type": "ClusterIP"}, {"type": "LoadBalancer"}, {"ports": [{"port": random_choice((80, 81, 82))}]})
        )
        await self.cluster.client.patch(SERVICES, Key("default", random_choice(WEB)), {"spec": change})

    async def remove_service(self) -> None:
        await self.cluster.client.delete(SERVICES, Key("default", random_choice(WEB)))

    async def forget(self) -> None:
        """Delete a route in the cloud."""
        if self.cloud.table:
            self.cloud.table.remove(random_choice(self.cloud.table))

    async def slow(self) -> None:
        self.cloud.delay = random_choice((0.0, 0.5, SLOWEST))

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
        await self.cluster.sleep(900)  # longer than silent watches and retries take
        await self.cluster.settle()


@pytest.mark.virtual(seeds=200)
async def test_cloud_converges_to_wanted_state_after_faults() -> None:
    cloud = SimulatedCloud(rate=0.2)
    async with Cluster() as cluster:
        world = World(cluster, cloud)
        world.replica = await manage(cluster, cloud, *FLAGS, faults=RATE)
        people = (
            *(world.join, world.join, world.change_machine, world.exclude, world.leave),
            *(world.serve, world.change_service, world.remove_service),
        )
        failures = (world.forget, world.slow, world.kill, world.cut)
        for _ in range(ROUNDS):
            with contextlib.suppress(ApiError):
                await random_choice((*people, *people, *failures))()
            await cluster.sleep(random_source().uniform(0, 30))
        await world.heal()
        assert world.violations == []
        await check_services(cluster, cloud)
        await check_nodes(cluster, cloud)


async def check_services(cluster: Cluster, cloud: SimulatedCloud) -> None:
    nodes = tuple(node.metadata.name for node in backends((await cluster.client.list(NODES)).items))
    services = (await cluster.client.list(SERVICES)).items
    wanting = {service.metadata.uid: service for service in services if wants_load_balancer(service)}
    assert set(cloud.balancers) == set(wanting)
    for service in services:
        assert (FINALIZER in service.metadata.finalizers) is (service.metadata.uid in wanting)
        addresses = [one.ip for one in service.status.load_balancer.ingress]
        found = cloud.balancers.get(service.metadata.uid)
        assert addresses == ([] if found is None else [found.address])
        if found is not None:
            assert (found.nodes, found.ports) == (nodes, tuple(port.port for port in service.spec.ports))


async def check_nodes(cluster: Cluster, cloud: SimulatedCloud) -> None:
    nodes = (await cluster.client.list(NODES)).items
    routes = sorted((route.node, route.destination) for route in cloud.table)
    assert routes == sorted((node.metadata.name, one) for node in nodes for one in ranges_of(node))
    for node in nodes:
        condition = condition_of(node.status.conditions, "NetworkUnavailable")
        assert ranges_of(node)
        assert condition is not None
        assert condition.status == "False"
        if is_ready(node):
            assert not has_taint(node)
        else:
            assert node.metadata.name in cloud.machines
            assert has_taint(node) or cloud.machines[node.metadata.name]
