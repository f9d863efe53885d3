"""Attaching and detaching of volumes under faults, by seed, in virtual time.

Requests fail, watches fall silent, managers are killed, nodes stop reporting and drivers fail. For every seed:

1. A single-node volume has VolumeAttachments of one node only.
2. A mounted volume is detached only from an unready node where no pod has wanted it for six minutes; pods that came and
   went while the node was silent do not count.
3. A volume that a node mounts because its status lists it is attached.
4. After recovery exactly the volumes that pods need are attached and listed.
5. From then on nodes list the volumes that they have mounted, however long an unmount takes.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.storage import VOLUME_ATTACHMENTS, VolumeAttachment
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import Tasks
from controller_manager.testing import Cluster
from controller_manager.testing.csi_driver import SimulatedDriver
from controller_manager.testing.fault_injector import FaultInjector
from controller_manager.testing.faults import LONGEST_DELAY
from controllers.attach_detach.decide import FORCE_AFTER
from tests.scenarios.faults import random_choice
from tests.scenarios.volumes import (
    DRIVER,
    UNPROTECTED,
    add_node,
    attachments,
    bind,
    listed,
    of_claim,
    pod,
    set_ready,
    unique,
    use,
)

FLAGS = ("--leader-elect=false", "--controllers=attachdetach")
READ = (NODES.path(), PODS.path(), VOLUME_ATTACHMENTS.path())
NODES_MADE = ("a", "b", "c")
ALONE, SHARED = ("v", "w", "x"), ("shared",)
ROUNDS = 12
# Seconds between a read of a node and its pods and the write that follows from it.
ON_THE_WAY = 4 * LONGEST_DELAY


class World:
    """Fake nodes that mount the listed volumes of their pods, and a checker of all changes in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.silent: set[str] = set()
        self.spoke: dict[str, float] = {}
        # Nodes that block unmounts.
        self.busy: set[str] = set()
        self.mounted: dict[str, set[str]] = defaultdict(set)
        self.pods: dict[str, Pod] = {}
        self.came: dict[str, float] = {}
        self.made = 0
        # VolumeAttachments by volume and node; time of the last pod that wanted a volume, by volume and node.
        self.there: dict[str, dict[str, VolumeAttachment]] = defaultdict(dict)
        self.wanted: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        self._changed.set()
        for change in changes:
            if change.row.resource == VOLUME_ATTACHMENTS.name:
                self._check(VolumeAttachment.decode(change.row.data), deleted=change.deleted)
            elif change.row.resource == PODS.name:
                self._note(Pod.decode(change.row.data), deleted=change.deleted)

    def _note(self, found: Pod, *, deleted: bool) -> None:
        name, node = found.metadata.name, found.spec.node_name
        came = self.came.setdefault(name, monotonic())
        if node not in self.silent and monotonic() - came >= ON_THE_WAY:  # others may have been missed
            for volume in self._volumes(found):
                self.wanted[volume, node] = monotonic()
        if deleted:
            self.pods.pop(name, None)
        else:
            self.pods[name] = found

    def _check(self, found: VolumeAttachment, *, deleted: bool) -> None:
        volume, node = found.spec.source.persistent_volume_name or "", found.spec.node_name
        before = self.there[volume].get(node)
        going = deleted or found.metadata.deletion_timestamp is not None
        if going and before is not None and before.metadata.deletion_timestamp is None:
            self._check_detachment(volume, node)
        if deleted:
            self.there[volume].pop(node, None)
        else:
            self.there[volume][node] = found
        if volume in ALONE and len(self.there[volume]) > 1:
            self.violations.append(f"{volume} is attached to {sorted(self.there[volume])}")

    def _check_detachment(self, volume: str, node: str) -> None:
        if volume not in self.mounted[node]:
            return
        age = round(monotonic() - self.wanted.get((volume, node), 0.0), 6)  # sums of seconds are inexact
        silent = node in self.silent or monotonic() - self.spoke.get(node, -math.inf) <= ON_THE_WAY
        if not silent or age < FORCE_AFTER or self._wants(volume, node, since=ON_THE_WAY):
            self.violations.append(f"{volume} is detached from {node}, which has it mounted, after {age:.0f} s")

    def _volumes(self, found: Pod) -> set[str]:
        return {one.persistent_volume_claim.claim_name for one in found.spec.volumes if one.persistent_volume_claim}

    def _wants(self, volume: str, node: str, since: float = 0.0) -> bool:
        """Return whether a pod created at least `since` seconds ago wants a volume on a node."""
        latest = monotonic() - since
        return any(
            one.spec.node_name == node and volume in self._volumes(one) and self.came[name] <= latest
            for name, one in self.pods.items()
        )

    async def run(self) -> None:
        """Mount and unmount on all nodes, in steps of a second while anything changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for name in NODES_MADE:
                if name not in self.silent:
                    await self._sync(name)
            await asyncio.sleep(1)

    async def _sync(self, name: str) -> None:
        row = self.cluster.api.store.get(NODES.name, name)
        assert row is not None
        status, mounted = Node.decode(row.data).status, self.mounted[name]
        wanted = {one for one in (*ALONE, *SHARED) if self._wants(one, name)}
        offered = {one for one in wanted if unique(one) in {it.name for it in status.volumes_attached}}
        used = {one for one in (*ALONE, *SHARED) if unique(one) in status.volumes_in_use}
        if name not in self.busy:
            mounted &= wanted
        for one in (offered & used) - mounted:
            found = self.there[one].get(name)
            if found is None or not found.status.attached:
                self.violations.append(f"{name} mounts {one}, which is not attached")
            mounted.add(one)
        if mounted | offered != used:
            await use(self.cluster, name, *sorted(mounted | offered))

    async def add(self) -> None:
        """Create a pod on a node."""
        self.made += 1
        volumes = [of_claim(name) for name in sorted({random_choice(ALONE), random_choice((*ALONE, *SHARED))})]
        await self.cluster.client.create(PODS, pod(f"p{self.made}", *volumes, node=random_choice(NODES_MADE)))

    async def delete(self) -> None:
        """Delete a pod."""
        if self.pods:
            found = random_choice(sorted(self.pods.values(), key=key_of))
            await self.cluster.client.delete(PODS, key_of(found), grace=0)

    async def silence(self) -> None:
        """Silence a node, or end its silence."""
        name = random_choice(NODES_MADE)
        ready = name in self.silent
        await set_ready(self.cluster, name, ready=ready)
        if ready:
            self.spoke[name] = monotonic()
        (self.silent.discard if ready else self.silent.add)(name)
        self._changed.set()

    async def hold(self) -> None:
        """Let a node block unmounts, or unblock it."""
        self.busy ^= {random_choice(NODES_MADE)}
        self._changed.set()

    def hold_all(self, *, busy: bool) -> None:
        """Let all nodes block unmounts, or unblock them."""
        self.busy = set(NODES_MADE) if busy else set()
        self._changed.set()

    async def speak(self) -> None:
        """End the silence of all nodes."""
        for name in sorted(self.silent):
            await set_ready(self.cluster, name, ready=True)
            self.spoke[name] = monotonic()
        self.silent.clear()
        self._changed.set()


async def wait(cluster: Cluster) -> None:
    await cluster.sleep(random_choice((0.2, 5.0, 30.0, 200.0)) * random_source().uniform(0.5, 1.0))


@pytest.mark.virtual(seeds=200)
async def test_only_volumes_of_pods_are_attached_despite_faults() -> None:
    broken: set[str] = set()

    def fails(step: str, _: Object) -> str:
        return "broken" if step in broken and random_source().uniform(0, 1) < 0.7 else ""

    async with Cluster((UNPROTECTED,)) as cluster, SimulatedDriver(cluster, DRIVER, fails=fails) as driver:
        for name in NODES_MADE:
            await add_node(cluster, name)
        for name in ALONE:
            await bind(cluster, name)
        for name in SHARED:
            await bind(cluster, name, modes=("ReadWriteMany",))
        world = World(cluster)
        async with Tasks() as tasks:
            kubelets = tasks.start(world.run(), name="nodes")
            injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
            for _ in range(ROUNDS):
                driver.delay = random_choice((0.1, 1.0, 20.0))
                broken ^= {random_choice(("attach", "detach"))}
                await random_choice((world.add, world.delete))()
                await random_choice(
                    (
                        injector.kill,
                        injector.cut,
                        injector.deafen,
                        world.silence,
                        world.hold,
                        world.add,
                        world.add,
                        world.delete,
                    )
                )()
                await wait(cluster)
            await injector.heal()
            broken.clear()
            driver.delay = 0.5
            await world.speak()
            world.hold_all(busy=False)
            await cluster.sleep(900)
            await check(cluster, world)
            world.hold_all(busy=True)
            for found in list(world.pods.values()):
                await cluster.client.delete(PODS, key_of(found), grace=0)
            await cluster.sleep(450)
            for name in NODES_MADE:
                held = {one for one in world.mounted[name] if name in world.there[one]}  # not if force detached
                assert await listed(cluster, name) == {unique(one) for one in held}
            world.hold_all(busy=False)
            await cluster.sleep(450)
            await check(cluster, world)
            assert await attachments(cluster) == {}
            kubelets.cancel()
        assert world.violations == [], world.violations


async def check(cluster: Cluster, world: World) -> None:
    """Raise AssertionError unless exactly the needed volumes are attached and listed."""
    there = await attachments(cluster)
    needed = {(name, node) for node in NODES_MADE for name in (*ALONE, *SHARED) if world._wants(name, node)}
    for name in ALONE:
        places = [node for volume, node in needed if volume == name]
        found = [node for volume, node in there if volume == name]
        assert len(found) == min(len(places), 1)
        assert set(found) <= set(places)
    assert {one for one in there if one[0] in SHARED} == {one for one in needed if one[0] in SHARED}
    assert all(one.status.attached for one in there.values())
    for node in NODES_MADE:
        assert await listed(cluster, node) == {unique(name) for name, place in there if place == node}
