"""A cluster of zones with fake node agents, and the times of NoExecute taints."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.resource import Key
from controller_manager.common.base import clock
from controller_manager.common.base.tasks import Tasks
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.agents import Agents
from controllers.node_lifecycle import SPECS
from controllers.node_lifecycle.desired import is_evicted, zone_of


class TaintTimes:
    """Records by zone when the store saw each node get a NoExecute taint."""

    def __init__(self, cluster: Cluster) -> None:
        self.by_zone: dict[str, list[float]] = defaultdict(list)
        self.names: list[str] = []
        self.evicted: set[str] = set()
        cluster.api.store.subscribe(self.note)

    def note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == NODES.name:
                node = Node.decode(change.row.data)
                name = node.metadata.name
                if not is_evicted(node):
                    self.evicted.discard(name)
                elif name not in self.evicted:
                    self.evicted.add(name)
                    self.names.append(name)
                    self.by_zone[zone_of(node)].append(clock.monotonic())

    def closest(self, zone: str) -> float:
        """Return the shortest time in seconds between two taints of a zone."""
        times = self.by_zone[zone]
        return min((b - a for a, b in pairwise(times)), default=float("inf"))


@asynccontextmanager
async def cluster_of(*zones: str, period: int = 10) -> AsyncIterator[tuple[Cluster, Agents]]:
    """Start a cluster with a node for each letter of each zone: `"abc"` has three nodes in the zone `abc`."""
    async with Cluster() as cluster:
        agents = Agents(cluster, period)
        for zone in zones:
            for letter in zone:
                await agents.join(letter, zone)
        async with Tasks() as tasks:
            tasks.start(agents.run(), name="agents")
            yield cluster, agents


async def manage(cluster: Cluster, *flags: str) -> Replica:
    return await cluster.manage("--leader-elect=false", *flags, specs=SPECS)


async def node(cluster: Cluster, name: str) -> Node:
    return await cluster.client.get(NODES, Key("", name))
