"""Ephemeral volumes and volume attributes classes under faults (failed requests, silent watches, lost managers), by
seed, in virtual time.

For every seed:

1. A generated claim is controlled by its pod only, and no foreign claim is taken over.
2. After recovery each pod has the claims of its volumes, except for names that are taken.
3. A deleted class exists exactly as long as a claim uses it.
"""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    VOLUME_ATTRIBUTES_CLASSES,
    PersistentVolumeClaim,
)
from controller_manager.common.base.random import random_source
from controller_manager.framework import controller_of
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from controllers.volume_attributes_class_protection import FINALIZER
from tests.scenarios.faults import random_choice
from tests.scenarios.volumes import UNPROTECTED, attributes_class, claim, ephemeral, pod

T = TypeVar("T")

FLAGS = ("--leader-elect=false", "--controllers=ephemeral-volume,volumeattributesclass-protection-controller")
READ = (PODS.path(), PERSISTENT_VOLUME_CLAIMS.path(), VOLUME_ATTRIBUTES_CLASSES.path())
ROUNDS = 12
NAMES = ("p", "q", "r")


class World:
    """Pods with a few names that are created and deleted, and the claims in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.violations: list[str] = []
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == PODS.name:
                found = Pod.decode(change.row.data)
                self._keep(self.pods, found.metadata.name, found, gone=change.deleted)
            elif change.row.resource == PERSISTENT_VOLUME_CLAIMS.name:
                new = PersistentVolumeClaim.decode(change.row.data)
                before = self.claims.get(new.metadata.name)
                if before is not None and before.metadata.owner_references != new.metadata.owner_references:
                    self.violations.append(f"{new.metadata.name} has another owner")
                self._keep(self.claims, new.metadata.name, new, gone=change.deleted)

    def _keep(self, kept: dict[str, T], name: str, found: T, *, gone: bool) -> None:
        if gone:
            kept.pop(name, None)
        else:
            kept[name] = found

    async def add(self) -> None:
        name = random_choice(NAMES)
        if name not in self.pods:
            await self.cluster.client.create(PODS, pod(name, ephemeral("a"), ephemeral("b")))

    async def delete(self) -> None:
        """Delete a pod and its claims, as the garbage collector does."""
        name = random_choice(NAMES)
        found = self.pods.get(name)
        if found is None:
            return
        await self.cluster.client.delete(PODS, key_of(found), grace=0)
        for one in list(self.claims.values()):
            owner = controller_of(one)
            if owner is not None and owner.uid == found.metadata.uid:
                await self.cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, key_of(one))

    async def take(self) -> None:
        """Create a foreign claim with the name of a generated one, if it is free."""
        name = f"{random_choice(NAMES)}-a"
        if name not in self.claims:
            await self.cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim(name))

    async def drop(self) -> None:
        """Delete a claim."""
        if self.claims:
            found = random_choice(sorted(self.claims.values(), key=key_of))
            await self.cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, key_of(found))

    def check(self) -> None:
        """Raise AssertionError unless each pod has its claims, or their names are taken."""
        assert self.violations == []
        for found in self.pods.values():
            for name in (f"{found.metadata.name}-a", f"{found.metadata.name}-b"):
                owner = controller_of(self.claims[name]) if name in self.claims else None
                if name in self.claims and (owner is None or owner.uid != found.metadata.uid):
                    break  # later changes wait
                assert name in self.claims, f"{name} is missing"


@pytest.mark.virtual(seeds=200)
async def test_pods_have_claims_and_used_classes_stay_despite_faults() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        world = World(cluster)
        await cluster.client.create(VOLUME_ATTRIBUTES_CLASSES, attributes_class("gold"))
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim("user", volumeAttributesClassName="gold"))
        injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
        while (
            FINALIZER not in (await cluster.client.get(VOLUME_ATTRIBUTES_CLASSES, Key("", "gold"))).metadata.finalizers
        ):
            await cluster.sleep(10)
        await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, Key("", "gold"))
        for _ in range(ROUNDS):
            await random_choice((world.add, world.add, world.delete, world.take))()
            missed = map(injector.unheard, (world.add, world.delete))
            await random_choice((injector.kill, injector.cut, injector.deafen, world.add, world.delete, *missed))()
            await cluster.sleep(random_source().uniform(0, 60))
        found = await cluster.client.get(VOLUME_ATTRIBUTES_CLASSES, Key("", "gold"))
        assert found.metadata.finalizers == (FINALIZER,)
        await injector.heal()
        await cluster.sleep(1800)
        world.check()
        await world.drop()
        await cluster.sleep(300)
        world.check()
        if "user" in world.claims:
            await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "user"))
        await cluster.sleep(300)
        with pytest.raises(NotFound):
            await cluster.client.get(VOLUME_ATTRIBUTES_CLASSES, Key("", "gold"))
