"""Bootstrap tokens while requests fail, watches fall silent and managers are lost, by seed (virtual time).

What holds for every seed:

1. No token is deleted before its time but by people.
2. Once everything works again, tokens whose time is over are gone, and what is published is signed with each that is
   there, and with no other.
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
    """Tokens as the store has them, and what people do with them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.wrong: list[str] = []
        self.tokens: dict[str, Secret] = {}
        self._dropped = ""
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == SECRETS.name:
                found = Secret.decode(change.row.data)
                if change.deleted:
                    del self.tokens[found.metadata.name]
                    self._judge_end(found)
                else:
                    self.tokens[found.metadata.name] = found

    def _judge_end(self, found: Secret) -> None:
        ends = ends_at(found)
        if found.metadata.name != self._dropped and (ends is None or ends > utc_now()):
            self.wrong.append(f"{found.metadata.name} is deleted before its time")

    async def make(self) -> None:
        """Somebody makes a token, for a while or for good."""
        await self.cluster.client.create(
            SECRETS, token(random_choice(NAMES), lasts=random_choice(("", 20.0, 60.0, 5000.0)))
        )

    async def drop(self) -> None:
        """Somebody deletes a token."""
        self._dropped = f"bootstrap-token-{random_choice(NAMES)}"
        try:
            await self.cluster.client.delete(SECRETS, Key("kube-system", self._dropped))
        finally:
            self._dropped = ""

    async def change(self) -> None:
        """Something else is published."""
        change = {"data": {"kubeconfig": random_choice(("a: 1", "a: 2", "a: 3"))}}
        await self.cluster.client.patch(CONFIG_MAPS, CLUSTER_INFO, change)

    async def forge(self) -> None:
        """Somebody spoils a signature."""
        change = {"data": {f"jws-kubeconfig-{random_choice(NAMES)}": random_choice((None, "forged"))}}
        await self.cluster.client.patch(CONFIG_MAPS, CLUSTER_INFO, change)


@pytest.mark.virtual(seeds=200)
async def test_expired_tokens_go_and_others_sign_despite_faults() -> None:
    async with Cluster() as cluster:
        await publish(cluster, kubeconfig="a: 1")
        world = World(cluster)
        replica = await cluster.manage(*ON, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, ON, READ)
        people = (world.make, world.make, world.drop, world.change, world.forge)
        await run_random_actions(cluster, (*people, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        assert world.wrong == []
        keys = [signing_key(one, utc_now()) for one in world.tokens.values()]
        published = (await cluster.client.get(CONFIG_MAPS, CLUSTER_INFO)).data
        content = published["kubeconfig"]
        signed = {f"jws-kubeconfig-{key.identifier}": detached_signature(content, key) for key in keys if key}
        assert len(signed) == len(world.tokens)
        assert published == {"kubeconfig": content, **signed}
        await assert_no_writes(cluster)
