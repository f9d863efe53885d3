"""Evictions for device taints under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. A pod is deleted only when its time has run out: within the last `LATENESS` seconds its device had a NoExecute taint
   that was as old as the pod tolerates. A pod with an unlimited toleration is never deleted.
2. A deleted pod has a reason.
3. After recovery each pod whose time runs out is deleted within its seconds and `BOUND`.
"""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import PODS
from controller_manager.common.api.devices import RESOURCE_CLAIMS, RESOURCE_SLICES
from controller_manager.common.api.errors import ApiError
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from tests.scenarios.faults import random_choice
from tests.scenarios.test_device_taint_eviction import FLAGS, Tree, publish, taint, toleration, use

READ = (PODS.path(), RESOURCE_CLAIMS.path(), RESOURCE_SLICES.path())
ROUNDS = 16
# Seconds between the read that decides a deletion and the deletion: a few requests, each delayed, rejected or repeated.
LATENESS = 30.0
BOUND = 150.0
DEVICES = ("gpu-0", "gpu-1")
TROUBLES = ("k", "l")
PATIENCE = (None, None, 5, 20, 60)


class World:
    """Devices with taints, the pods that use them, and a checker of deletions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # Taints of each device: when one was added, and when it was removed.
        self.taints: dict[str, list[tuple[str, float, float | None]]] = {name: [] for name in DEVICES}
        self.pods: dict[str, tuple[str, dict[str, int | None]]] = {}
        self.violations: list[str] = []
        self.deleted: set[str] = set()
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row = change.row
            if row.resource == "pods" and row.field("metadata.deletionTimestamp") and row.name not in self.deleted:
                self.deleted.add(row.name)
                if b"DeletionByDeviceTaintManager" not in row.data:
                    self.violations.append(f"{row.name} was deleted without a reason")
                if not self.was_condemned(row.name, wall_seconds()):
                    self.violations.append(f"{row.name} was deleted too early, or tolerates the taint")

    def was_condemned(self, pod: str, now: float) -> bool:
        """Return whether the pod's time had run out at some moment within the last `LATENESS` seconds."""
        device, tolerated = self.pods[pod]
        for key, added, over in self.taints[device]:
            seconds = tolerated.get(key, 0)
            # Taint times have a resolution of a second.
            if seconds is not None and int(added) + seconds <= now and (over is None or over >= now - LATENESS):
                return True
        return False

    def is_condemned(self, pod: str) -> bool:
        device, tolerated = self.pods[pod]
        return any(over is None and tolerated.get(key, 0) is not None for key, _, over in self.taints[device])

    def there(self, device: str) -> list[str]:
        return [key for key, _, over in self.taints[device] if over is None]

    async def taint(self) -> None:
        """Add a taint to a device, or remove it."""
        device, key = random_choice(DEVICES), random_choice(TROUBLES)
        now = wall_seconds()
        if key in self.there(device):
            kept = [entry for entry in self.taints[device] if entry[0] != key or entry[2] is not None]
            await self.write({device: [one for one in self.there(device) if one != key]})
            added = next(entry[1] for entry in self.taints[device] if entry not in kept)
            self.taints[device] = [*kept, (key, added, wall_seconds())]
        else:
            self.taints[device].append((key, now, None))
            await self.write({})

    async def write(self, instead: dict[str, list[str]]) -> None:
        """Publish the devices, those of `instead` with other taints."""
        shown: dict[str, list[Tree]] = {}
        for device in DEVICES:
            keys = instead.get(device, self.there(device))
            added = {key: added for key, added, over in self.taints[device] if over is None}
            shown[device] = [taint(key, timeAdded=_time(added[key])) for key in keys]
        await publish(self.cluster, shown)

    async def add_pod(self) -> None:
        """Create a running pod that uses a device."""
        name, device = f"p-{len(self.pods)}", random_choice(DEVICES)
        tolerated = {key: random_choice(PATIENCE) for key in TROUBLES if random_source().uniform(0, 1) < 0.8}
        self.pods[name] = (device, tolerated)
        with contextlib.suppress(ApiError):  # it is evicted once it is bound
            await use(self.cluster, *(toleration(s, key) for key, s in tolerated.items()), name=name, device=device)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def nothing() -> None:
    """Do nothing; random failures are enough."""


@pytest.mark.virtual(seeds=200)
async def test_only_pods_without_toleration_are_evicted_despite_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        await world.write({})
        for _ in range(6):
            await world.add_pod()
        injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
        people = (world.taint, world.taint, world.add_pod)
        failures = (nothing, injector.kill, injector.cut, injector.deafen, *map(injector.unheard, people))
        for _ in range(ROUNDS):
            await random_choice((*people, *failures))()
            await cluster.sleep(random_source().uniform(0, 25))
        await injector.heal()
        await cluster.sleep(60 + BOUND)
        assert world.violations == []
        assert {name for name in world.pods if world.is_condemned(name)} <= world.deleted
