"""The garbage collector while everything goes wrong, by seed, in virtual time.

Whatever fails, whenever it is looked at:

1. nothing is collected that has a live owner, one that has never waited for its dependents to go;
2. nothing is collected for an owner that was deleted so that its dependents stay;
3. an owner that is deleted in the foreground goes after the dependents that hold it up.

And once it is quiet:

4. nothing is left whose owners are all gone;
5. nobody names an owner that orphaned its dependents;
6. nothing waits with a finalizer of ours.

2 and 3 are promised to dependents that were there for a while when their owner was deleted: for others the news may
come late.
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
from tests.scenarios.trials import SmallDiscovery, one_of

FAULTS = 0.2
ROUNDS = 6
OBJECTS = 12
HOLD = "example.org/hold"
POLICIES = ("Background", "Foreground", "Orphan")
DISCOVERY = SmallDiscovery(configmaps="ConfigMap", secrets="Secret")


class Witness:
    """Sees every write of the server, and holds the collector to its promises. `there` is what there is, by uid."""

    def __init__(self) -> None:
        self.there: dict[str, ObjectMeta] = {}
        # Whom people deleted, by uid, and whom, of those who were there for a while, that must not touch, by uid.
        self.deleted: set[str] = set()
        self.protected: dict[str, set[str]] = {}
        self.blocked: dict[str, set[str]] = {}
        # Who has waited for its dependents to go; if somebody else holds it then, that comes to light late.
        self.waited: set[str] = set()
        self.broken: list[str] = []

    def see(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == CONFIG_MAPS.name:
                meta = PartialObject.decode(change.row.data, keep=False).metadata
                if change.deleted:
                    self._gone(meta)
                else:
                    self._written(meta)

    def asked(self, uid: str, policy: str, dependents: set[str]) -> None:
        """Somebody deletes that object, on which those depend."""
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
                self.broken.append(f"{meta.name} did not wait for {holder.name}")

    def _collected(self, meta: ObjectMeta) -> None:
        """The deletion of an object begins, when it was like this."""
        if meta.uid in self.deleted:
            return
        for reference in meta.owner_references:
            owner = self.there.get(reference.uid)
            if owner is not None and reference.uid not in self.waited:
                self.broken.append(f"{meta.name} was collected although {owner.name} is there")
            if meta.uid in self.protected.get(reference.uid, ()):
                self.broken.append(f"{meta.name} was collected although {reference.name} orphaned it")


class World:
    """Config maps that own each other, a collector that is interrupted, and a server that is too."""

    def __init__(self, cluster: Cluster, witness: Witness) -> None:
        self.cluster = cluster
        self.witness = witness
        self.made: list[ObjectMeta] = []
        self.replica: Replica | None = None

    async def manage(self) -> None:
        self.replica = await self.cluster.manage("--leader-elect=false", specs=SPECS, faults=FAULTS)
        self.replica.network.intercept(DISCOVERY)

    async def make(self, owners: int) -> None:
        """An object that names some of those that were made before it, whether they are still there or not."""
        chosen = {meta.uid: meta for meta in (one_of(self.made) for _ in range(owners))} if self.made else {}
        references = tuple(_reference(meta) for meta in chosen.values())
        finalizers = (HOLD,) if random_source().uniform(0, 1) < 0.2 else ()
        name = f"c-{len(self.made)}"
        meta = ObjectMeta(namespace="default", name=name, owner_references=references, finalizers=finalizers)
        made = await self.cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))
        self.made.append(made.metadata)

    async def tie(self) -> None:
        """Somebody names an owner that was made after it: circles come about."""
        meta, owner = one_of(self.made), one_of(self.made)
        change = {"metadata": {"ownerReferences": [_reference(owner)]}}
        await self.cluster.client.patch(CONFIG_MAPS, Key("default", meta.name), change)

    async def delete(self, settled: frozenset[str]) -> None:
        meta, policy = one_of(self.made), one_of(POLICIES)
        found = self.witness.there.get(meta.uid)
        if found is None or found.deletion_timestamp:
            return
        dependents = {
            uid
            for uid, other in self.witness.there.items()
            if uid in settled and any(reference.uid == meta.uid for reference in other.owner_references)
        }
        self.witness.asked(meta.uid, policy, dependents)
        await self.cluster.client.delete(CONFIG_MAPS, Key("default", meta.name), propagation=policy, uid=meta.uid)

    async def trouble(self) -> None:
        assert self.replica is not None
        await one_of((self._lose_manager, self._cut_off, self._lose_server, self._nothing))()

    async def calm(self) -> None:
        """All faults end, and whoever held something lets go."""
        assert self.replica is not None
        self.replica.network.rate = 0
        await self.cluster.sleep(150)
        while held := [meta for meta in self.witness.there.values() if HOLD in meta.finalizers]:
            left = [name for name in held[0].finalizers if name != HOLD]
            change = {"metadata": {"finalizers": left or None}}
            with contextlib.suppress(ApiError):  # the collector may have taken its own away meanwhile
                await self.cluster.client.patch(CONFIG_MAPS, Key("default", held[0].name), change)
        await self.cluster.advance(300)

    async def _lose_manager(self) -> None:
        assert self.replica is not None
        await one_of((self.replica.kill, self.replica.stop))()
        await self.manage()

    async def _cut_off(self) -> None:
        assert self.replica is not None
        self.replica.network.cut()
        await self.cluster.sleep(random_source().uniform(0, 40))
        self.replica.network.heal()

    async def _lose_server(self) -> None:
        await one_of((self.cluster.stop_api, self.cluster.kill_api))()
        await self.cluster.sleep(random_source().uniform(0, 10))
        await self.cluster.start_api()
        self.cluster.api.store.subscribe(self.witness.see)

    async def _nothing(self) -> None:
        pass


def _reference(meta: ObjectMeta) -> OwnerReference:
    blocks = one_of((True, True, None))
    return OwnerReference(api_version="v1", kind="ConfigMap", name=meta.name, uid=meta.uid, block_owner_deletion=blocks)


def left_behind(there: dict[str, ObjectMeta], orphaning: Callable[[str], bool]) -> list[str]:
    """What is wrong with what is left, once it is quiet."""
    wrong = [f"{meta.name} still waits" for meta in there.values() if is_waiting(meta) or is_orphaning(meta)]
    for meta in there.values():
        owners = [reference.uid for reference in meta.owner_references]
        if owners and not any(uid in there for uid in owners):
            wrong.append(f"{meta.name} has lost all its owners")
        wrong += [f"{meta.name} still names {uid}, which orphaned it" for uid in owners if orphaning(uid)]
    return wrong


@pytest.mark.virtual(seeds=200)
async def test_the_promises_hold_whatever_goes_wrong() -> None:
    witness = Witness()
    async with Cluster(["--watch-cache-window=10s"]) as cluster:
        cluster.api.store.subscribe(witness.see)
        world = World(cluster, witness)
        await world.manage()
        for number in range(OBJECTS):
            await world.make(0 if number < 3 else one_of((1, 1, 2)))
        for _ in range(2):
            with contextlib.suppress(ApiError):
                await world.tie()
        await cluster.sleep(200)
        settled = frozenset(witness.there)
        for _ in range(ROUNDS):
            for action in (world.trouble, lambda: world.delete(settled), lambda: world.make(1)):
                with contextlib.suppress(ApiError):
                    await action()
                await cluster.sleep(random_source().uniform(0, 5))
        await world.calm()
        assert witness.broken == []
        assert left_behind(witness.there, lambda uid: uid in witness.protected and uid not in witness.there) == []
