"""Binding of claims and volumes under faults (failed requests, silent watches, lost managers), by seed, in virtual
time.

For every seed:

1. A bound claim never changes its volume, and no two existing claims are bound to one volume.
2. No volume is released, recycled or deleted while its claim exists.
3. After recovery each claim is bound to a fitting volume that is bound to it, no volume is bound to a claim of another
   one, and the driver has no storage without a volume. A claim that names its volume may wait instead.
"""

import contextlib
from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import AlreadyExists
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.storage import (
    BOUND,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RELEASED,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.csi_driver import SimulatedDriver
from controller_manager.testing.fault_injector import FaultInjector
from controller_manager.testing.pod_agent import PodAgent
from controllers.shared.claims import size_of
from tests.scenarios.faults import random_choice
from tests.scenarios.storage import add, claim, storage_class, volume

FLAGS = ("--leader-elect=false", "--controllers=persistentvolume-binder,pvc-protection,pv-protection")
READ = (PERSISTENT_VOLUME_CLAIMS.path(), PERSISTENT_VOLUMES.path(), PODS.path())
ROUNDS = 8
# Time for backoffs, silent watches and several syncs.
BOUND_TIME = 400.0


class World:
    """Random claims and volumes, and a checker of all changes in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self._insisting: set[str] = set()  # uids of claims that name their volume
        self._made = 0
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == PERSISTENT_VOLUME_CLAIMS.name:
                self._check_claim(PersistentVolumeClaim.decode(change.row.data), gone=change.deleted)
            elif change.row.resource == PERSISTENT_VOLUMES.name:
                self._check_volume(PersistentVolume.decode(change.row.data), gone=change.deleted)

    def _check_claim(self, now: PersistentVolumeClaim, *, gone: bool) -> None:
        uid, name = now.metadata.uid, now.spec.volume_name
        if gone:
            self.claims.pop(uid, None)
            return
        before = self.claims.get(uid)
        if before is None and name:
            self._insisting.add(uid)
        if before is not None and before.spec.volume_name not in ("", name):
            self.violations.append(f"{now.metadata.name} changed its volume")
        others = [one for one in self.claims.values() if one.metadata.uid != uid and one.spec.volume_name == name]
        has_it = now.status.phase == BOUND or uid not in self._insisting
        if name and has_it and any(one.status.phase == BOUND for one in others):
            self.violations.append(f"{name} is bound twice")
        self.claims[uid] = now

    def _check_volume(self, now: PersistentVolume, *, gone: bool) -> None:
        name, reference = now.metadata.name, now.spec.claim_ref
        user = self.claims.get(reference.uid) if reference is not None else None
        before = self.volumes.get(name)
        has_it = user is not None and user.spec.volume_name in ("", name)
        fell = before is not None and before.status.phase != RELEASED and now.status.phase == RELEASED
        if has_it and (fell or (gone and now.status.phase == BOUND)):
            self.violations.append(f"{name} is taken from its claim")
        if gone:
            self.volumes.pop(name, None)
        else:
            self.volumes[name] = now

    async def make_claim(self) -> None:
        """Create a claim for a provisioned or an existing volume, sometimes with the name of a former claim."""
        self._made += 1
        size = f"{random_choice((1, 2, 3))}Gi"
        made = claim(f"c{random_choice(range(8))}", size, storageClassName=random_choice(("", "fast", "fast")))
        try:
            await add(self.cluster, made)
        except AlreadyExists:
            return

    async def make_claim_for_volume(self) -> None:
        """Create a claim that names a volume, which may be taken."""
        if self.volumes:
            wanted = random_choice(list(self.volumes.values()))
            name, kind = wanted.metadata.name, wanted.spec.storage_class_name
            with contextlib.suppress(AlreadyExists):
                await add(
                    self.cluster, claim(f"c{random_choice(range(8))}", "1Gi", storageClassName=kind, volumeName=name)
                )

    async def make_volume(self) -> None:
        """Create a volume with the policy Retain or Recycle."""
        self._made += 1
        policy = random_choice(("Retain", "Recycle"))
        size = f"{random_choice((1, 2, 3, 4))}Gi"
        await add(self.cluster, volume(f"v{self._made}", size, persistentVolumeReclaimPolicy=policy))

    async def delete_claim(self) -> None:
        """Delete a claim."""
        if self.claims:
            await self.cluster.client.delete(
                PERSISTENT_VOLUME_CLAIMS, key_of(random_choice(list(self.claims.values())))
            )

    async def check(self, driver: SimulatedDriver) -> None:
        """Raise AssertionError unless all claims and volumes are bound correctly."""
        for one in self.claims.values():
            if one.metadata.uid in self._insisting and one.status.phase != BOUND:
                continue
            assert one.status.phase == BOUND, one
            given = self.volumes[one.spec.volume_name]
            assert given.spec.claim_ref is not None
            assert given.spec.claim_ref.uid == one.metadata.uid
            assert given.status.phase == BOUND
            assert size_of(given.spec.capacity) >= size_of(one.spec.resources.requests)
        for given in self.volumes.values():
            reference = given.spec.claim_ref
            user = self.claims.get(reference.uid) if reference is not None else None
            assert user is None or user.spec.volume_name == given.metadata.name, given.metadata.name
        assert driver.storage == {name for name, one in self.volumes.items() if one.spec.csi is not None}


@pytest.mark.virtual(seeds=200)
async def test_volumes_are_bound_once_and_stay_bound_despite_faults() -> None:
    async with Cluster() as cluster, SimulatedDriver(cluster) as driver:
        world = World(cluster)
        async with PodAgent(cluster, ends=lambda _: int(random_source().uniform(0, 1) < 0.2)):
            await add(cluster, storage_class())
            injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
            make = (world.make_claim, world.make_claim, world.make_claim_for_volume, world.make_volume)
            actions = (*make, world.delete_claim)
            failures = (injector.kill, injector.cut, injector.deafen)
            for _ in range(ROUNDS):
                for _ in range(2):
                    await random_choice(actions)()
                await random_choice(failures)()
                await cluster.sleep(random_source().uniform(0, 40))
            await injector.heal()
            for number in range(len(world.claims)):
                await add(cluster, volume(f"enough-{number}", "5Gi"))
            await cluster.sleep(BOUND_TIME)
            assert world.violations == []
            await world.check(driver)
