"""The garbage collector under faults, by seed, in virtual time.

At any time:

1. no object is collected that has a live owner which never waited for its dependents;
2. no object is collected for an owner that was deleted with the policy Orphan;
3. an owner deleted in the foreground is removed after its blocking dependents.

After recovery:

4. no object is left whose owners are all deleted;
5. no object refers to an owner that orphaned its dependents;
6. no object waits with a finalizer of ours.

2 and 3 hold for dependents that existed for a while when their owner was deleted; of others the watch may report late.
"""

import contextlib
from collections.abc import Callable, Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta, OwnerReference, PartialObject
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, Replica
from controllers.garbage_collector import SPECS
from controllers.garbage_collector.graph import is_orphaning, is_waiting
from tests.scenarios.faults import SmallDiscovery, random_choice

FAULTS = 0.2
ROUNDS = 6
OBJECTS = 12
HOLD = "example.org/hold"
POLICIES = ("Background", "Foreground", "Orphan")
DISCOVERY = SmallDiscovery(configmaps="ConfigMap", secrets="Secret")


class DeletionChecker:
    """Checks every write of the server against the invariants; `there` has the existing objects by uid."""

    def __init__(self) -> None:
        self.there: dict[str, ObjectMeta] = {}
        # Deleted objects by uid, and by uid the older dependents that their deletion must not touch.
        self.deleted: set[str] = set()
        self.protected: dict[str, set[str]] = {}
        self.blocked: dict[str, set[str]] = {}
        # Owners that have waited for their dependents; a finalizer of a user delays when this is seen.
        self.waited: set[str] = set()
        self.violations: list[str] = []

    def see(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == CONFIG_MAPS.name:
                meta = PartialObject.decode(change.row.data, keep=False).metadata
                if change.deleted:
                    self._gone(meta)
                else:
                    self._written(meta)

    def asked(self, uid: str, policy: str, dependents: set[str]) -> None:
        """Record the deletion of an object and its dependents."""
        self.deleted.add(uid)
        if policy == "Orphan":
            self.protected[uid] = dependents
        if policy == "Foreground":
            self.blocked[uid] = dependents

    def _written(self, meta: ObjectMeta) -> None:
        before = self.there.get(meta.uid)
        self.there[meta.uid] = meta
        self.waited |= {meta.uid} if is_waiting(meta) else set()
        if before is not None and meta.deletion_timestamp and not before.deletion_timestamp:
            self._collected(before)

    def _gone(self, meta: ObjectMeta) -> None:
        before = self.there.pop(meta.uid)
        if not before.deletion_timestamp:
            self._collected(before)
        for uid in self.blocked.get(meta.uid, ()):
            holder = self.there.get(uid)
            if holder and any(r.uid == meta.uid and r.block_owner_deletion for r in holder.owner_references):
                self.violations.append(f"{meta.name} did not wait for {holder.name}")

    def _collected(self, meta: ObjectMeta) -> None:
        """Check an object when its deletion begins."""
        if meta.uid in self.deleted:
            return
        for reference in meta.owner_references:
            owner = self.there.get(reference.uid)
            if owner is not None and reference.uid not in self.waited:
                self.violations.append(f"{meta.name} was collected although {owner.name} is there")
            if meta.uid in self.protected.get(reference.uid, ()):
                self.violations.append(f"{meta.name} was collected although {reference.name} orphaned it")


class World:
    """Config maps that own each other, and a collector and a server that are interrupted."""

    def __init__(self, cluster: Cluster, checker: DeletionChecker) -> None:
        self.cluster = cluster
        self.checker = checker
        self.made: list[ObjectMeta] = []
        self.replica: Replica | None = None

    async def manage(self) -> None:
        self.replica = await self.cluster.manage("--leader-elect=false", specs=SPECS, faults=FAULTS)
        self.replica.network.intercept(DISCOVERY)

    async def make(self, owners: int) -> None:
        """Create an object that refers to some older ones, which may be deleted."""
        chosen = {meta.uid: meta for meta in (random_choice(self.made) for _ in range(owners))} if self.made else {}
        references = tuple(_reference(meta) for meta in chosen.values())
        finalizers = (HOLD,) if random_source().uniform(0, 1) < 0.2 else ()
        name = f"c-{len(self.made)}"
        meta = ObjectMeta(namespace="default", name=name, owner_references=references, finalizers=finalizers)
        made = await self.cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))
        self.made.append(made.metadata)

    async def tie(self) -> None:
        """Add a reference to a younger owner, which creates cycles."""
        meta, owner = random_choice(self.made), random_choice(self.made)
        change = {"metadata": {"ownerReferences": [_reference(owner)]}}
        await self.cluster.client.patch(CONFIG_MAPS, Key("default", meta.name), change)

    async def delete(self, settled: frozenset[str]) -> None:
        meta, policy = random_choice(self.made), random_choice(POLICIES)
        found = self.checker.there.get(meta.uid)
        if found is None or found.deletion_timestamp:
            return
        dependents = {
            uid
            for uid, other in self.checker.there.items()
            if uid in settled and any(reference.uid == meta.uid for reference in other.owner_references)
        }
        self.checker.asked(meta.uid, policy, dependents)
        await self.cluster.client.delete(CONFIG_MAPS, Key("default", meta.name), propagation=policy, uid=meta.uid)

    async def fail_something(self) -> None:
        assert self.replica is not None
        await random_choice((self._lose_manager, self._cut_off, self._lose_server, self._nothing))()

    async def heal(self) -> None:
        """End all faults and remove all finalizers of users."""
        assert self.replica is not None
        self.replica.network.rate = 0
        await self.cluster.sleep(150)
        while held := [meta for meta in self.checker.there.values() if HOLD in meta.finalizers]:
            left = [name for name in held[0].finalizers if name != HOLD]
            change = {"metadata": {"finalizers": left or None}}
            with contextlib.suppress(ApiError):  # the collector may have removed its finalizer meanwhile
                await self.cluster.client.patch(CONFIG_MAPS, Key("default", held[0].name), change)
        await self.cluster.advance(300)

    async def _lose_manager(self) -> None:
        assert self.replica is not None
        await random_choice((self.replica.kill, self.replica.stop))()
        await self.manage()

    async def _cut_off(self) -> None:
        assert self.replica is not None
        self.replica.network.cut()
        await self.cluster.sleep(random_source().uniform(0, 40))
        self.replica.network.heal()

    async def _lose_server(self) -> None:
        await random_choice((self.cluster.stop_api, self.cluster.kill_api))()
        await self.cluster.sleep(random_source().uniform(0, 10))
        await self.cluster.start_api()
        self.cluster.api.store.subscribe(self.checker.see)

    async def _nothing(self) -> None:
        pass


def _reference(meta: ObjectMeta) -> OwnerReference:
    blocks = random_choice((True, True, None))
    return OwnerReference(api_version="v1", kind="ConfigMap", name=meta.name, uid=meta.uid, block_owner_deletion=blocks)


def left_behind(there: dict[str, ObjectMeta], orphaning: Callable[[str], bool]) -> list[str]:
    """Return violations of the invariants after recovery."""
    violations = [f"{meta.name} still waits" for meta in there.values() if is_waiting(meta) or is_orphaning(meta)]
    for meta in there.values():
        owners = [reference.uid for reference in meta.owner_references]
        if owners and not any(uid in there for uid in owners):
            violations.append(f"{meta.name} has no owner left")
        violations += [f"{meta.name} still names {uid}, which orphaned it" for uid in owners if orphaning(uid)]
    return violations


@pytest.mark.virtual(seeds=200)
async def test_collector_meets_invariants_despite_faults() -> None:
    checker = DeletionChecker()
    async with Cluster(["--watch-cache-window=10s"]) as cluster:
        cluster.api.store.subscribe(checker.see)
        world = World(cluster, checker)
        await world.manage()
        for number in range(OBJECTS):
            await world.make(0 if number < 3 else random_choice((1, 1, 2)))
        for _ in range(2):
            with contextlib.suppress(ApiError):
                await world.tie()
        await cluster.sleep(200)
        settled = frozenset(checker.there)
        for _ in range(ROUNDS):
            for action in (world.fail_something, lambda: world.delete(settled), lambda: world.make(1)):
                with contextlib.suppress(ApiError):
                    await action()
                await cluster.sleep(random_source().uniform(0, 5))
        await world.heal()
        assert checker.violations == []
        assert left_behind(checker.there, lambda uid: uid in checker.protected and uid not in checker.there) == []
