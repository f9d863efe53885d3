"""Node ranges under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. No two existing nodes share addresses, nor a node and the services.
2. After recovery each node has a range of each family, as far as ranges are left.
"""

import contextlib
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.shared.node_ranges import ranges_of
from tests.scenarios.faults import random_choice

SERVICES = "10.0.0.0/28"
FLAGS = (
    *("--leader-elect=false", "--controllers=node-ipam-controller", "--allocate-node-cidrs"),
    *(
        "--cluster-cidr=10.0.0.0/26,fd00::/48",
        f"--service-cluster-ip-range={SERVICES}",
        "--node-cidr-mask-size-ipv4=28",
    ),
)
ROUNDS = 40
NAMES = tuple(f"n-{number}" for number in range(5))
ROOM = 3  # services have one of the four parts of the smaller range


class World:
    """The ranges of the existing nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ranges: dict[str, list[IPv4Network | IPv6Network]] = {"services": [ip_network(SERVICES)]}
        self.violations: list[str] = []
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource != "nodes":
                continue
            name = change.row.name
            self.ranges.pop(name, None)
            if change.deleted:
                continue
            mine = [ip_network(text) for text in ranges_of(Node.decode(change.row.data))]
            for other, theirs in self.ranges.items():
                if any(a.version == b.version and a.overlaps(b) for a in mine for b in theirs):
                    self.violations.append(f"{name} and {other} have addresses in common: {mine}, {theirs}")
            self.ranges[name] = mine

    async def join(self) -> None:
        with contextlib.suppress(ApiError):
            await self.cluster.client.create(NODES, Node(metadata=ObjectMeta(name=random_choice(NAMES))))

    async def leave(self) -> None:
        with contextlib.suppress(ApiError):
            await self.cluster.client.delete(NODES, Key("", random_choice(NAMES)))

    async def come_back(self) -> None:
        """Delete a node and create another one with its name."""
        name = random_choice(NAMES)
        with contextlib.suppress(ApiError):
            await self.cluster.client.delete(NODES, Key("", name))
            await self.cluster.client.create(NODES, Node(metadata=ObjectMeta(name=name)))


@pytest.mark.virtual(seeds=200)
async def test_ranges_are_unique_and_complete_despite_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        for _ in range(6):
            await world.join()
        faults = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=RATE), FLAGS, ("/api/v1/nodes",))
        people = (world.join, world.join, world.leave, world.come_back)
        missed = faults.unheard(world.come_back)
        for _ in range(ROUNDS):
            await random_choice((*people, *people, missed, faults.kill, faults.cut, faults.deafen))()
            if random_source().uniform(0, 1) < 0.6:
                await cluster.sleep(random_source().uniform(0, 10))
        await faults.heal()
        await cluster.sleep(1500)  # longer than silent watches and retries take
        await cluster.settle()
        assert world.violations == []
        given = sorted(len(ranges) for name, ranges in world.ranges.items() if name != "services")
        without = max(0, len(given) - ROOM)
        assert given == [0] * without + [2] * (len(given) - without)
