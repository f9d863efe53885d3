"""Expansion of a volume under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. The volume never shrinks and never exceeds the request of its claim; the claim's capacity never exceeds the volume.
2. After recovery claim and volume have the size that was requested last, and no old conditions.
"""

from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.persistent_volume_expander import finished
from controllers.shared.claims import size_of
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.storage import the_claim, the_volume
from tests.scenarios.test_persistent_volume_expander import FLEX, ON, make_bound

READ = (PERSISTENT_VOLUME_CLAIMS.path(), PERSISTENT_VOLUMES.path(), PODS.path())
ACTIONS = 12


class Sizes:
    """The requested and actual sizes of claim and volume in bytes, and violations of the invariants."""

    def __init__(self, cluster: Cluster) -> None:
        self.violations: list[str] = []
        self._asked = self._given = self._has = 0
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == PERSISTENT_VOLUME_CLAIMS.name:
                claim = PersistentVolumeClaim.decode(change.row.data)
                self._asked = max(self._asked, int(size_of(claim.spec.resources.requests)))
                self._has = int(size_of(claim.status.capacity))
            elif change.row.resource == PERSISTENT_VOLUMES.name:
                given = int(size_of(PersistentVolume.decode(change.row.data).spec.capacity))
                if given < self._given:
                    self.violations.append("the volume became smaller")
                self._given = given
            if self._given > self._asked:
                self.violations.append("the volume is larger than was asked for")
            if self._given and self._has > self._given:
                self.violations.append("the claim has more than the volume")


@pytest.mark.virtual(seeds=200)
async def test_volume_gets_requested_size_despite_faults() -> None:
    async with Cluster() as cluster:
        sizes = Sizes(cluster)
        await make_bound(cluster, mode=random_choice(("Filesystem", "Block")), **FLEX)
        replica = await cluster.manage(*ON, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, ON, READ)
        wanted = 1

        async def ask() -> None:
            nonlocal wanted
            wanted += 1
            change = {"spec": {"resources": {"requests": {STORAGE: f"{wanted}Gi"}}}}
            await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, key_of(await the_claim(cluster)), change)

        async def grow() -> None:
            """The node makes the file system as large as the volume."""
            claim, volume = await the_claim(cluster), await the_volume(cluster)
            if (claim.status.allocated_resource_statuses or {}).get(STORAGE) == "NodeResizePending":
                done = finished(claim, (volume.spec.capacity or {})[STORAGE])
                await cluster.client.update(PERSISTENT_VOLUME_CLAIMS, done, subresource="status")

        await run_random_actions(cluster, (ask, ask, grow, grow, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        for _ in range(2):  # an expansion that has begun may be to an earlier size
            await grow()
            await cluster.advance(60)
        claim, volume = await the_claim(cluster), await the_volume(cluster)
        assert sizes.violations == []
        assert volume.spec.capacity == claim.status.capacity == {STORAGE: f"{wanted}Gi"}
        assert not claim.status.conditions
        assert not volume.metadata.annotations
        await assert_no_writes(cluster)
