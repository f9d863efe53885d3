"""Controllers migrate between two kinds of managers and never run in both at once (virtual time).

This is the upgrade path to a manager that takes over a controller: step by step, each replica of the old kind is
stopped before one of the new kind starts.
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
class MigrationRun:
    """Records which manager runs which controller."""

    folder: Path
    cluster: Cluster
    acting: dict[str, set[str]] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    async def manager(self, kind: str, owner: str = "") -> Replica:
        """Start a manager of kind `old` or `new`; with `owner` it takes part in the migration, where that kind owns the
        controller.
        """
        flags = [f"--leader-elect-resource-name={kind}-manager"]
        if owner:
            path = self.folder / f"{owner}.yaml"
            path.write_text(FILE.format(f"{owner}-manager"))
            flags += ["--enable-leader-migration", f"--leader-migration-config={path}"]
        specs = [self._spec(kind, "moving"), self._spec(kind, "staying")]
        chosen = specs if kind == "old" else specs[:1]
        return await self.cluster.manage(*flags, specs=chosen, name=f"{kind}-manager")

    def _spec(self, kind: str, name: str) -> ControllerSpec[Options]:
        acting, turns, violations = self.acting.setdefault(name, set()), self.turns, self.violations

        class Acts:
            def __init__(self, context: Context, options: Options) -> None:
                pass

            async def reconcile(self, key: Key) -> Requeue:
                violations.extend(f"{name}: {kind} acts beside {other}" for other in acting)
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
    """Start two old replicas, enable migration, roll in the new kind, and disable migration again."""
    async with Cluster() as cluster:
        migration = MigrationRun(folder, cluster)
        await cluster.client.create(PODS, builders.pod("a"))
        replicas: list[Replica] = [await migration.manager("old") for _ in range(2)]
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
            replicas.append(await migration.manager(kind, owner))
            for one in replicas:
                one.network.rate = 0
        await cluster.sleep(60)
        assert migration.violations == []
        return migration.turns


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.flag("enable-leader-migration", "leader-migration-config")
def test_migrated_controller_never_runs_in_two_managers(seed: int, tmp_path: Path) -> None:
    turns = run(upgrade(tmp_path, bad_network=seed % 2 == 1), seed=seed)
    assert turns[0] == "old"
    assert turns[-1] == "new"


@pytest.mark.virtual
async def test_migration_lock_is_acquired_after_main_lock(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        migration = MigrationRun(tmp_path, cluster)
        first = await migration.manager("old", "old")
        await cluster.sleep(3)
        second = await migration.manager("old", "old")
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
        migration = MigrationRun(tmp_path, cluster)
        replica = await migration.manager("old", "old")
        await cluster.sleep(5)
        await cluster.client.patch(LEASES, SHARED, {"spec": {"holderIdentity": "another"}})
        ending = await replica.ended()
        assert ending.status == 1
        assert "kube-system/hand-over" in ending.reason
        assert migration.acting == {"moving": set(), "staying": set()}
        main = await cluster.client.get(LEASES, Key("kube-system", "old-manager"))
        assert main.spec.holder_identity == ""


@pytest.mark.virtual
async def test_controller_of_other_component_is_not_run(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        migration = MigrationRun(tmp_path, cluster)
        replica = await migration.manager("old", "new")
        await cluster.sleep(5)
        states = {one.name: (str(one.phase), one.component) for one in replica.manager.state().controllers}
        assert states == {"moving-controller": ("elsewhere", "new-manager"), "staying-controller": ("running", "")}
        assert migration.turns == []
