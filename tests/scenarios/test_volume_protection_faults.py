"""Protection of claims and volumes under faults (failed requests, silent watches, lost managers), by seed, in virtual
time.

For every seed:

1. No claim is removed while a scheduled pod uses it, and no volume while it is bound.
2. After recovery deleted claims and volumes without users are removed, and all others have their finalizer.
"""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import (
    BOUND,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PV_PROTECTION,
    PVC_PROTECTION,
    RELEASED,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.volume_protection import uses
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.storage import add, claim, pod, volume

T = TypeVar("T")

FLAGS = ("--leader-elect=false", "--controllers=pvc-protection,pv-protection")
READ = (PERSISTENT_VOLUME_CLAIMS.path(), PERSISTENT_VOLUMES.path(), PODS.path())
ACTIONS = 30
NAMES = ("a", "b", "c", "d")


class World:
    """The claims, volumes and pods in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self._made = 0
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name, data, gone = change.row.name, change.row.data, change.deleted
            match change.row.resource:
                case PODS.name:
                    _keep(self.pods, name, Pod.decode(data), gone=gone)
                case PERSISTENT_VOLUME_CLAIMS.name:
                    _keep(self.claims, name, PersistentVolumeClaim.decode(data), gone=gone)
                    if gone and self.is_used(PersistentVolumeClaim.decode(data)):
                        self.violations.append(f"claim {name} is gone and was used")
                case PERSISTENT_VOLUMES.name:
                    _keep(self.volumes, name, PersistentVolume.decode(data), gone=gone)
                    if gone and PersistentVolume.decode(data).status.phase == BOUND:
                        self.violations.append(f"volume {name} is gone and was bound")

    def is_used(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether a pod uses a claim."""
        return any(uses(pod, claim) for pod in self.pods.values())

    async def ask(self) -> None:
        """Create a claim."""
        await add(self.cluster, claim(random_choice(NAMES)))

    async def use(self) -> None:
        """Create a scheduled pod with a claim that is not being deleted."""
        there = [one.metadata.name for one in self.claims.values() if one.metadata.deletion_timestamp is None]
        self._made += 1
        await add(self.cluster, pod(f"p{self._made}", random_choice(there), nodeName="node-1"))

    async def stop(self) -> None:
        """Delete a pod."""
        await self.cluster.client.delete(PODS, Key("default", random_choice(sorted(self.pods))), grace=0)

    async def end(self) -> None:
        """Finish a pod."""
        change = {"status": {"phase": random_choice(("Succeeded", "Failed"))}}
        await self.cluster.client.patch(
            PODS, Key("default", random_choice(sorted(self.pods))), change, subresource="status"
        )

    async def drop(self) -> None:
        """Delete a claim."""
        await self.cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, key_of(random_choice(list(self.claims.values()))))

    async def offer(self) -> None:
        """Create a volume."""
        await add(self.cluster, volume(random_choice(NAMES)))

    async def turn(self) -> None:
        """Bind a volume, or release it."""
        change = {"status": {"phase": random_choice((BOUND, BOUND, RELEASED))}}
        key = Key("", random_choice(sorted(self.volumes)))
        await self.cluster.client.patch(PERSISTENT_VOLUMES, key, change, subresource="status")

    async def discard(self) -> None:
        """Delete a volume."""
        await self.cluster.client.delete(PERSISTENT_VOLUMES, Key("", random_choice(sorted(self.volumes))))


def _keep(there: dict[str, T], name: str, one: T, *, gone: bool) -> None:
    if gone:
        there.pop(name, None)
    else:
        there[name] = one


@pytest.mark.virtual(seeds=200)
async def test_only_unused_claims_and_volumes_go_despite_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, FLAGS, READ)
        people = (
            *(world.ask, world.use, world.use, world.stop, world.end, world.drop),
            *(world.offer, world.turn, world.turn, world.discard),
            *(faults.kill, faults.cut, faults.unheard(world.use), faults.unheard(world.drop), faults.deafen),
        )
        await run_random_actions(cluster, people, ACTIONS)
        await heal_and_settle(cluster, faults)
        assert world.violations == []
        for claim in world.claims.values():
            assert PVC_PROTECTION in claim.metadata.finalizers
            assert claim.metadata.deletion_timestamp is None or world.is_used(claim)
        for volume in world.volumes.values():
            assert PV_PROTECTION in volume.metadata.finalizers
            assert volume.metadata.deletion_timestamp is None or volume.status.phase == BOUND
        await assert_no_writes(cluster)
