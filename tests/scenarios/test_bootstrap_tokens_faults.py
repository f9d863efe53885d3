"""Bootstrap tokens under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. Only users delete tokens before they expire.
2. After recovery expired tokens are deleted, and cluster-info has the signatures of exactly the existing tokens.
"""

from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import CONFIG_MAPS, SECRETS, Secret
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import utc_now
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.bootstrap_tokens import CLUSTER_INFO, detached_signature, ends_at, signing_key
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_bootstrap_tokens import ON, publish, token

READ = (SECRETS.path(), CONFIG_MAPS.path())
ACTIONS = 25
NAMES = ("aaaaaa", "bbbbbb", "cccccc", "dddddd")


class World:
    """The tokens in the store, and random actions on them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.tokens: dict[str, Secret] = {}
        self._dropped = ""
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == SECRETS.name:
                found = Secret.decode(change.row.data)
                if change.deleted:
                    del self.tokens[found.metadata.name]
                    self._check_deletion(found)
                else:
                    self.tokens[found.metadata.name] = found

    def _check_deletion(self, found: Secret) -> None:
        ends = ends_at(found)
        if found.metadata.name != self._dropped and (ends is None or ends > utc_now()):
            self.violations.append(f"{found.metadata.name} is deleted before its time")

    async def make(self) -> None:
        """Create a token that expires or not."""
        await self.cluster.client.create(
            SECRETS, token(random_choice(NAMES), lasts=random_choice(("", 20.0, 60.0, 5000.0)))
        )

    async def drop(self) -> None:
        """Delete a token."""
        self._dropped = f"bootstrap-token-{random_choice(NAMES)}"
        try:
            await self.cluster.client.delete(SECRETS, Key("kube-system", self._dropped))
        finally:
            self._dropped = ""

    async def change(self) -> None:
        """Change the published kubeconfig."""
        change = {"data": {"kubeconfig": random_choice(("a: 1", "a: 2", "a: 3"))}}
        await self.cluster.client.patch(CONFIG_MAPS, CLUSTER_INFO, change)

    async def overwrite_signature(self) -> None:
        """Overwrite a signature."""
        change = {"data": {f"jws-kubeconfig-{random_choice(NAMES)}": random_choice((None, "forged"))}}
        await self.cluster.client.patch(CONFIG_MAPS, CLUSTER_INFO, change)


@pytest.mark.virtual(seeds=200)
async def test_expired_tokens_go_and_others_sign_despite_faults() -> None:
    async with Cluster() as cluster:
        await publish(cluster, kubeconfig="a: 1")
        world = World(cluster)
        replica = await cluster.manage(*ON, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, ON, READ)
        people = (world.make, world.make, world.drop, world.change, world.overwrite_signature)
        await run_random_actions(cluster, (*people, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        assert world.violations == []
        keys = [signing_key(one, utc_now()) for one in world.tokens.values()]
        published = (await cluster.client.get(CONFIG_MAPS, CLUSTER_INFO)).data
        content = published["kubeconfig"]
        signed = {f"jws-kubeconfig-{key.identifier}": detached_signature(content, key) for key in keys if key}
        assert len(signed) == len(world.tokens)
        assert published == {"kubeconfig": content, **signed}
        await assert_no_writes(cluster)
