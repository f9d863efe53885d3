"""The pod garbage collector under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. An unfinished pod counts as orphan only if its node was deleted at some time within the last `LATENESS` seconds,
   whatever the caches have and however new the manager is.
2. A pod has finished, or is Failed, before it is deleted; an orphan has a reason.
3. A pod whose node was never deleted is deleted only if it was once among the oldest finished pods beyond the
   threshold.
4. After recovery pods of deleted nodes are deleted within the quarantine and `BOUND`, and no more finished pods remain
   than the threshold allows; the newest remain.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from tests.scenarios.faults import random_choice

THRESHOLD = 3
FLAGS = ("--leader-elect=false", "--controllers=podgc", f"--terminated-pod-gc-threshold={THRESHOLD}")
READ = ("/api/v1/nodes", "/api/v1/pods")
ROUNDS = 16
# Seconds between the read without the node and the deletion of its pods: two requests, each delayed or rejected.
LATENESS = 20.0
# The quarantine, two passes, and a silent watch.
BOUND = 200.0
NODES_THERE = ("a", "b", "c")
ENDED = ("Succeeded", "Failed")


class World:
    """Nodes that are created and deleted, pods that finish, and a checker of deletions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        # When each node was last absent; the existing nodes.
        self.away: dict[str, float] = {}
        self.there: set[str] = set()
        # The current rows of pods.
        self.pods: dict[str, Row] = {}
        # Pods that were once beyond the threshold, or without a node.
        self.doomed: set[str] = set()
        self.born = 0
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == "nodes":
                self._moved(change)
            elif change.row.resource == "pods":
                self._check(change)

    def _moved(self, change: Change) -> None:
        name = change.row.name
        if change.deleted:
            self.there.discard(name)
            self.doomed.update(one.name for one in self.pods.values() if one.field("spec.nodeName") == name)
        elif name not in self.there:
            self.there.add(name)
            self.away[name] = monotonic()

    def _check(self, change: Change) -> None:
        row, before = change.row, self.pods.get(change.row.name)
        is_lost = not self._is_settled(row.field("spec.nodeName"))
        if row.field("spec.nodeName") not in self.there:
            self.doomed.add(row.name)
        if change.deleted:
            self.pods.pop(row.name)
            if row.name not in self.doomed:
                self.violations.append(f"{row.name} was deleted although few pods have ended")
            if row.field("status.phase") not in ENDED:
                self.violations.append(f"{row.name} was not marked as failed")
            return
        self.pods[row.name] = row
        ended = sorted(self._ended(), key=lambda one: (one.field("metadata.creationTimestamp"), one.name))
        self.doomed.update(one.name for one in ended[: max(0, len(ended) - THRESHOLD)])
        if b"DeletionByPodGC" in row.data and before is not None and b"DeletionByPodGC" not in before.data:
            if not is_lost:
                self.violations.append(f"{row.name} was deleted as an orphan, but its node exists")
            if row.field("status.phase") != "Failed":
                self.violations.append(f"{row.name} has a reason but did not fail")

    def _is_settled(self, node: str) -> bool:
        """Return whether the node has existed for a while."""
        return node in self.there and monotonic() - self.away[node] > LATENESS

    def _ended(self) -> list[Row]:
        return [row for row in self.pods.values() if row.field("status.phase") in ENDED]

    async def move(self) -> None:
        """Delete one of two nodes or create it again; the third one stays."""
        name = random_choice(NODES_THERE[:2])
        if name in self.there:
            await self.cluster.client.delete(NODES, Key("", name))
        else:
            await self.join(name)

    async def join(self, name: str) -> None:
        await self.cluster.client.create(NODES, Node.decode(msgspec.json.encode({"metadata": {"name": name}})))

    async def add_pod(self) -> None:
        """Create a pod that runs, or finishes soon."""
        self.born += 1
        tree: dict[str, Any] = {"metadata": {"name": f"p-{self.born}", "namespace": "default"}}
        tree["spec"] = {"nodeName": random_choice(NODES_THERE), "containers": [{"name": "c", "image": "i"}]}
        await self.cluster.client.create(PODS, Pod.decode(msgspec.json.encode(tree)))
        with contextlib.suppress(NotFound):
            phase = {"status": {"phase": random_choice(("Running", *ENDED))}}
            await self.cluster.client.patch(PODS, Key("default", f"p-{self.born}"), phase, subresource="status")


@pytest.mark.virtual(seeds=200)
async def test_exactly_the_garbage_is_collected_despite_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        for name in NODES_THERE:
            await world.join(name)
        for _ in range(6):
            await world.add_pod()
        injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
        people = (world.move, world.move, world.add_pod, world.add_pod, world.add_pod)
        missed = (injector.unheard(world.move), injector.unheard(world.add_pod))
        for _ in range(ROUNDS):
            await random_choice((*people, *missed, injector.kill, injector.cut, injector.deafen))()
            await cluster.sleep(random_source().uniform(0, 40))
        await injector.heal()
        await cluster.sleep(BOUND)
        assert world.violations == []
        left = (await cluster.client.list(PODS)).items
        assert {pod.spec.node_name for pod in left} <= world.there
        assert sum(pod.status.phase in ENDED for pod in left) <= THRESHOLD
