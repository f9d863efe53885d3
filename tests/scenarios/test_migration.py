"""Controllers change from one kind of manager to another while both run, and never two act at once (virtual time).

It is the way people upgrade from a manager that has a controller to one that takes it over: step by step, each replica
of the old kind stopped before one of the new kind starts.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.common.options.flag import Options
from controller_manager.framework import Context, ControllerSpec, For, Requeue
from controller_manager.testing import Cluster, Replica, builders, run

SHARED = Key("kube-system", "hand-over")
FILE = """apiVersion: controllermanager.config.k8s.io/v1alpha1
kind: LeaderMigrationConfiguration
leaderName: hand-over
controllerLeaders:
- name: moving-controller
  component: {}
"""


@dataclass
class Stage:
    """Who acts for which controller right now."""

    folder: Path
    cluster: Cluster
    acting: dict[str, set[str]] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)

    async def manager(self, kind: str, owner: str = "") -> Replica:
        """A manager of the kind old or new; with an `owner` it takes part in the migration, in which that kind owns."""
        flags = [f"--leader-elect-resource-name={kind}-manager"]
        if owner:
            path = self.folder / f"{owner}.yaml"
            path.write_text(FILE.format(f"{owner}-manager"))
            flags += ["--enable-leader-migration", f"--leader-migration-config={path}"]
        specs = [self._spec(kind, "moving"), self._spec(kind, "staying")]
        chosen = specs if kind == "old" else specs[:1]
        return await self.cluster.manage(*flags, specs=chosen, name=f"{kind}-manager")

    def _spec(self, kind: str, name: str) -> ControllerSpec[Options]:
        acting, turns, clashes = self.acting.setdefault(name, set()), self.turns, self.clashes

        class Acts:
            def __init__(self, context: Context, options: Options) -> None:
                pass

            async def reconcile(self, key: Key) -> Requeue:
                clashes.extend(f"{name}: {kind} acts beside {other}" for other in acting)
                acting.add(kind)
                if name == "moving" and turns[-1:] != [kind]:
                    turns.append(kind)
                try:
                    await asyncio.sleep(random_source().uniform(0, 1))
                finally:
                    acting.discard(kind)
                return Requeue(0.2)

        return ControllerSpec(name=f"{name}-controller", reconciler=Acts, options=Options, watches=(For(PODS),))


async def upgrade(folder: Path, *, bad_network: bool) -> list[str]:
    """Two replicas of the old kind, then migration turned on, the new kind rolled in, migration turned off again."""
    async with Cluster() as cluster:
        stage = Stage(folder, cluster)
        await cluster.client.create(PODS, builders.pod("a"))
        replicas: list[Replica] = [await stage.manager("old") for _ in range(2)]
        steps = [("old", "old"), ("old", "old"), ("new", "new"), ("new", "new"), ("new", ""), ("new", "")]
        for number, (kind, owner) in enumerate(steps):
            await cluster.sleep(random_source().uniform(5, 40))
            if bad_network:
                replicas[1].network.rate = random_source().uniform(0, 0.5)
            leaving = replicas.pop(0)
            if number % 2 and bad_network:
                await leaving.kill()
            elif not leaving.has_ended:
                await leaving.stop()
            replicas.append(await stage.manager(kind, owner))
            for one in replicas:
                one.network.rate = 0
        await cluster.sleep(60)
        assert stage.clashes == []
        return stage.turns


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.flag("enable-leader-migration", "leader-migration-config")
def test_a_controller_moves_from_one_kind_of_manager_to_the_other_and_never_two_act(seed: int, tmp_path: Path) -> None:
    turns = run(upgrade(tmp_path, bad_network=seed % 2 == 1), seed=seed)
    assert turns[0] == "old"
    assert turns[-1] == "new"


@pytest.mark.virtual
async def test_the_second_lock_is_sought_once_the_first_is_held_and_both_are_told(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        stage = Stage(tmp_path, cluster)
        first = await stage.manager("old", "old")
        await cluster.sleep(3)
        second = await stage.manager("old", "old")
        await cluster.sleep(30)
        assert (await cluster.client.get(LEASES, SHARED)).spec.holder_identity == first.manager.state().identity
        assert [lock.leads for lock in first.manager.state().locks] == [True, True]
        assert [(lock.lease, lock.holder, lock.controllers) for lock in second.manager.state().locks] == [
            ("kube-system/old-manager", first.manager.state().identity, ("staying-controller",)),
            ("kube-system/hand-over", "", ("moving-controller",)),
        ]
        await first.stop()
        await cluster.sleep(5)
        assert [lock.leads for lock in second.manager.state().locks] == [True, True]


@pytest.mark.virtual
async def test_losing_either_lock_ends_the_process(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        stage = Stage(tmp_path, cluster)
        replica = await stage.manager("old", "old")
        await cluster.sleep(5)
        await cluster.client.patch(LEASES, SHARED, {"spec": {"holderIdentity": "somebody else"}})
        ending = await replica.ended()
        assert ending.status == 1
        assert "kube-system/hand-over" in ending.reason
        assert stage.acting == {"moving": set(), "staying": set()}
        main = await cluster.client.get(LEASES, Key("kube-system", "old-manager"))
        assert main.spec.holder_identity == ""


@pytest.mark.virtual
async def test_a_controller_of_the_other_component_is_not_run_and_named(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        stage = Stage(tmp_path, cluster)
        replica = await stage.manager("old", "new")
        await cluster.sleep(5)
        states = {one.name: (str(one.phase), one.component) for one in replica.manager.state().controllers}
        assert states == {"moving-controller": ("elsewhere", "new-manager"), "staying-controller": ("running", "")}
        assert stage.turns == []
