"""Taint eviction under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. A pod is deleted only when its time has run out: within the last `LATENESS` seconds its node had a NoExecute taint
   that it did not tolerate, or tolerated for the seconds since both existed. A pod with unlimited tolerations, or on a
   node without taints, is never deleted.
2. A deleted pod has a reason.
3. After recovery each pod whose time runs out is deleted within its seconds and `BOUND`.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from tests.scenarios.faults import random_choice

Tree = Mapping[str, Any]

FLAGS = ("--leader-elect=false", "--controllers=taint-eviction-controller")
READ = ("/api/v1/nodes", "/api/v1/pods")
ROUNDS = 16
# Seconds between the read that decides a deletion and the deletion: two requests, each delayed or repeated.
LATENESS = 20.0
# Time for silent watches and retries.
BOUND = 150.0
# Taint times have a resolution of a second; a taint replaced within it may count as the same.
RESOLUTION = 1.0
NODES_THERE = ("a", "b", "c")
TAINTS = ("k", "l")
PATIENCE = (5, 20, 60)


class World:
    """Nodes with taints, pods with tolerations, and a checker of deletions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # Taints of each node: key, start, end if it is removed, and time in the object.
        self.taints: dict[str, list[list[Any]]] = {name: [] for name in NODES_THERE}
        # Node, creation time, and tolerations with the end of former ones.
        self.pods: dict[str, tuple[str, float]] = {}
        self.tolerated: dict[str, list[tuple[float, dict[str, int | None]]]] = {}
        self.violations: list[str] = []
        self.deleted: set[str] = set()
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row = change.row
            if row.resource == "pods" and row.field("metadata.deletionTimestamp") and row.name not in self.deleted:
                self.deleted.add(row.name)
                if b"DeletionByTaintManager" not in row.data:
                    self.violations.append(f"{row.name} was deleted without a reason")
                if not self.was_condemned(row.name, monotonic()):
                    self.violations.append(f"{row.name} was deleted too early")

    def was_condemned(self, pod: str, now: float) -> bool:
        """Return whether the pod's time had run out at some moment within the last `LATENESS` seconds."""
        node, born = self.pods[pod]
        for taint, begun, over, _ in self.taints[node]:
            for index, (since, tolerated) in enumerate(self.tolerated[pod]):
                until = self.tolerated[pod][index + 1][0] if index + 1 < len(self.tolerated[pod]) else now
                seconds = tolerated.get(taint, 0)
                if seconds is None:
                    continue
                first = max(since, max(begun, born) + seconds)
                last = min(until, now if over is None else over)
                if first <= last + RESOLUTION and last >= now - LATENESS:
                    return True
        return False

    def is_condemned(self, pod: str) -> bool:
        """Return whether the pod's time runs out with the current taints."""
        node, _ = self.pods[pod]
        _, tolerated = self.tolerated[pod][-1]
        return any(over is None and tolerated.get(taint, 0) is not None for taint, _, over, _ in self.taints[node])

    async def taint(self) -> None:
        """Add a taint to a node, or remove it."""
        node, taint = random_choice(NODES_THERE[:2]), random_choice(TAINTS)
        there = [entry for entry in self.taints[node] if entry[2] is None]
        found = next((entry for entry in there if entry[0] == taint), None)
        if found is None:
            self.taints[node].append([taint, monotonic(), None, format_time(utc_now())])
        left = [entry for entry in self.taints[node] if entry[2] is None and entry is not found]
        taints = [{"key": entry[0], "effect": "NoExecute", "timeAdded": entry[3]} for entry in left]
        await self.cluster.client.patch(NODES, Key("", node), {"spec": {"taints": taints}})
        if found is not None:
            found[2] = monotonic()

    async def add_pod(self) -> None:
        """Create a pod."""
        name, node = f"p-{len(self.pods)}", random_choice(NODES_THERE)
        tolerated = {
            taint: random_choice((None, None, *PATIENCE)) for taint in TAINTS if random_source().uniform(0, 1) < 0.8
        }
        self.pods[name], self.tolerated[name] = (node, monotonic()), [(monotonic(), tolerated)]
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "tolerations": _tolerations(tolerated)}
        tree = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        await self.cluster.client.create(PODS, Pod.decode(msgspec.json.encode(tree)))

    async def retolerate(self) -> None:
        """Change the toleration seconds of a pod."""
        name = random_choice(tuple(self.pods))
        tolerated = {taint: random_choice((None, *PATIENCE)) for taint in self.tolerated[name][-1][1]}
        with contextlib.suppress(NotFound):
            change = {"spec": {"tolerations": _tolerations(tolerated)}}
            await self.cluster.client.patch(PODS, Key("default", name), change)
            self.tolerated[name].append((monotonic(), tolerated))


def _tolerations(tolerated: Mapping[str, int | None]) -> list[Tree]:
    for_good = [{"key": f"node.kubernetes.io/{sign}", "operator": "Exists"} for sign in ("not-ready", "unreachable")]
    return for_good + [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            **({} if limit is None else {"tolerationSeconds": limit}),
        }
        for key, limit in tolerated.items()
    ]


async def nothing() -> None:
    """Do nothing; random failures are enough."""


@pytest.mark.virtual(seeds=200)
async def test_pods_are_deleted_in_time_and_never_early_despite_faults() -> None:
    async with Cluster() as cluster:
        for name in NODES_THERE:
            await cluster.client.create(NODES, Node.decode(msgspec.json.encode({"metadata": {"name": name}})))
        world = World(cluster)
        for _ in range(6):
            await world.add_pod()
        injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
        people = (world.taint, world.taint, world.add_pod, world.retolerate)
        failures = (nothing, injector.kill, injector.cut, injector.deafen, *map(injector.unheard, people))
        for _ in range(ROUNDS):
            await random_choice((*people, *failures))()
            await cluster.sleep(random_source().uniform(0, 25))
        await injector.heal()
        await cluster.sleep(max(PATIENCE) + BOUND)
        assert world.violations == []
        assert {name for name in world.pods if world.is_condemned(name)} <= world.deleted
