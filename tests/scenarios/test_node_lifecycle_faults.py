"""The node lifecycle controller with failed requests, and with thousands of nodes."""

from collections.abc import Sequence
from typing import Any

import pytest

from apiserver_stub.storage.interface import Write, as_of
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import NODES
from controller_manager.common.api.model import PartialObject
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import Tasks
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.agents import Agents
from controllers.node_lifecycle import SPECS
from controllers.node_lifecycle.desired import status_of
from tests.scenarios.node_lifecycle import TaintTimes, cluster_of, manage

pytestmark = pytest.mark.virtual

# Seconds until a silent watch counts as broken, and until a node counts as silent.
WATCH_BREAKS, GRACE = 150, 55


async def contradictions(cluster: Cluster, agents: Agents) -> list[str]:
    """Return the nodes whose taints or conditions are wrong after recovery."""
    nodes = (await cluster.client.list(NODES)).items
    effects = ("NoExecute", "NoSchedule") if "True" in map(status_of, nodes) else ("NoSchedule",)
    found = []
    for one in nodes:
        name, status = one.metadata.name, status_of(one)
        wanted = "Unknown" if name in agents.silent else str(agents.readiness[name])
        keys = {"True": [], "False": ["not-ready"], "Unknown": ["unreachable"]}[status]
        shown = sorted((t.key.removeprefix("node.kubernetes.io/"), t.effect) for t in one.spec.taints)
        due = [(key, effect) for key in keys for effect in effects]
        if (status, shown) != (wanted, due):
            found.append(f"{name}: {status} {shown}, where {wanted} {due} should be")
    return found


class FaultRun:
    """Two managers on a bad network, and random faults of them and of nodes."""

    FLAGS = (
        "--node-eviction-rate=0.05",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=45s",
        "--leader-elect-retry-period=15s",
    )
    # Nodes with faults of their own; the others are affected by outages only.
    MORTAL = ("a", "b", "x", "y")
    FAULTS = ("silence", "not ready", "heal", "split", "blackout", "cut", "mend", "kill", "stop")

    def __init__(self, cluster: Cluster, agents: Agents) -> None:
        self.cluster = cluster
        self.agents = agents
        self.replicas: list[Replica] = []
        self.hurt: set[str] = set()
        """The nodes that were silent or not ready at any time."""

    async def start(self) -> None:
        """Restart managers that have exited, such as those that lost the lease."""
        self.replicas = [replica for replica in self.replicas if not replica.has_ended]
        while len(self.replicas) < 2:
            self.replicas.append(await self.cluster.manage(*self.FLAGS, specs=SPECS, faults=0.2, may_lose_lead=True))

    async def fail_something(self) -> None:
        """Run a random fault."""
        name, replica = pick(self.MORTAL), pick(self.replicas)
        match pick(self.FAULTS):
            case "silence":
                self.agents.silent.add(name)
            case "not ready":
                self.agents.say(name, ready=False)
            case "heal":
                self.agents.silent.clear()
                self.agents.say(name, ready=True)
            case "split":
                self.agents.silent |= {"a", "b"}
            case "blackout":
                self.agents.silent |= set(self.agents.readiness)
            case "cut":
                replica.network.cut()
            case "mend":
                replica.network.heal()
            case "kill":
                await replica.kill()
            case "stop":
                await replica.stop()
        self.hurt |= self.agents.silent | {name for name, ready in self.agents.readiness.items() if not ready}

    async def heal(self) -> None:
        """End all faults."""
        for replica in self.replicas:
            replica.network.heal()
            replica.network.rate = 0
        await self.cluster.sleep(45)
        await self.start()
        for replica in self.replicas:
            replica.network.rate = 0


@pytest.mark.virtual(seeds=200)
async def test_eviction_rates_and_healthy_nodes_hold_despite_faults() -> None:
    async with cluster_of("abc", "xyz", period=20) as (cluster, agents):
        taint_times, faulty = TaintTimes(cluster), FaultRun(cluster, agents)
        for _ in range(4):
            await faulty.start()
            await cluster.sleep(random_source().uniform(0, 80))
            await faulty.fail_something()
        await faulty.heal()
        await cluster.sleep(WATCH_BREAKS + GRACE + 3 * 20)
        assert set(taint_times.names) <= faulty.hurt
        assert min(taint_times.closest(":\0:abc"), taint_times.closest(":\0:xyz")) > 19.99
        assert await contradictions(cluster, agents) == []


def pick(choices: Sequence[Any]) -> Any:
    return choices[int(random_source().uniform(0, len(choices))) % len(choices)]


class ManyAgents(Agents):
    """Agents that write nodes straight to the store, which is cheap for thousands."""

    async def join_all(self, names: Sequence[str], zone: str) -> None:
        """Register these nodes as copies of the first one."""
        await self.join(names[0], zone)
        for name in names[1:]:
            await self._copy(NODES.name, names[0], name)
            await self._copy(LEASES.name, f"kube-node-lease/{names[0]}", f"kube-node-lease/{name}")
            self.readiness[name] = True

    async def _copy(self, resource: str, template: str, key: str) -> None:
        row = self.cluster.api.store.get(resource, template)
        assert row is not None
        name, copied = template.rpartition("/")[2], key.rpartition("/")[2]
        uid = PartialObject.decode(row.data).metadata.uid
        data = row.data.decode().replace(f'"{name}"', f'"{copied}"').replace(uid, f"uid-{copied}")
        await self.cluster.api.store.commit(Write(resource, key, 0, as_of(data.encode(), "")))


@pytest.mark.parametrize("hundreds", [1, pytest.param(10, marks=pytest.mark.long)])
async def test_zone_of_many_nodes_is_disconnected_and_recovers(hundreds: int) -> None:
    sizes = {"east": 200 * hundreds, "west": 100 * hundreds, "north": 200 * hundreds}
    zones = {zone: [f"{zone}-{number}" for number in range(size)] for zone, size in sizes.items()}
    async with Cluster() as cluster, Tasks() as tasks:
        agents = ManyAgents(cluster, period=40)
        for zone, names in zones.items():
            await agents.join_all(names, zone)
        taint_times = TaintTimes(cluster)
        tasks.start(agents.run(), name="agents")
        await manage(cluster, "--kube-api-qps=-1")
        await cluster.sleep(10)

        agents.silent |= set(zones["west"])
        await cluster.sleep(120)
        assert set(taint_times.by_zone) == {":\0:west"}, "only this zone"
        assert 4 <= len(taint_times.evicted) <= 11
        unknown = [n for n in (await cluster.client.list(NODES)).items if status_of(n) == "Unknown"]
        assert {n.metadata.name for n in unknown} == set(zones["west"])

        agents.silent.clear()
        await cluster.sleep(50)
        assert taint_times.closest(":\0:west") > 9.99
        assert [n.metadata.name for n in (await cluster.client.list(NODES)).items if n.spec.taints] == []
