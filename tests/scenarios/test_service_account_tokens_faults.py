"""Service account token secrets under faults (failed requests, silent watches, lost managers), by seed, in virtual
time.

For every seed:

1. A secret is deleted only by users, or after its account was absent within the last `LATENESS` seconds.
2. After recovery each secret belongs to an existing account, and its token names that account.
"""

from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import SECRETS, SERVICE_ACCOUNTS, Secret, ServiceAccount
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base.clock import monotonic
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_service_account_tokens import NAME, UID, account, claims_of, flags, secret

__all__ = ["flags"]  # a fixture

ON = "--controllers=serviceaccount-token"
READ = (SECRETS.path(), SERVICE_ACCOUNTS.path())
ACTIONS = 25
NAMES = ("a", "b", "c")
# Seconds between the read without the account and the deletion, which may be delayed or repeated.
LATENESS = 20.0


class World:
    """Accounts and secrets in the store, and random actions on them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.secrets: dict[str, Secret] = {}
        self.accounts: dict[str, ServiceAccount] = {}
        self._since: dict[str, float] = {}
        self._dropped = ""
        self._made = 0
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name = change.row.name
            if change.row.resource == SERVICE_ACCOUNTS.name:
                if change.deleted:
                    del self.accounts[name]
                else:
                    if name not in self.accounts:
                        self._since[name] = monotonic()
                    self.accounts[name] = ServiceAccount.decode(change.row.data)
            elif change.row.resource == SECRETS.name:
                found = Secret.decode(change.row.data)
                if change.deleted:
                    del self.secrets[name]
                    self._check_deletion(found)
                else:
                    self.secrets[name] = found

    def _check_deletion(self, found: Secret) -> None:
        notes = found.metadata.annotations or {}
        there = self.accounts.get(notes[NAME])
        if there is None or found.metadata.name == self._dropped or notes.get(UID, "") not in ("", there.metadata.uid):
            return
        if self._since[notes[NAME]] < monotonic() - LATENESS:
            self.violations.append(f"{found.metadata.name} is deleted, but its account exists")

    async def join(self) -> None:
        """Create an account."""
        await account(self.cluster, random_choice(NAMES))

    async def leave(self) -> None:
        """Delete an account."""
        await self.cluster.client.delete(SERVICE_ACCOUNTS, key_of(random_choice(list(self.accounts.values()))))

    async def ask(self) -> None:
        """Create a token secret for an account."""
        self._made += 1
        await self.cluster.client.create(SECRETS, secret(f"s{self._made}", random_choice(NAMES)))

    async def drop(self) -> None:
        """Delete a secret."""
        self._dropped = random_choice(sorted(self.secrets))
        try:
            await self.cluster.client.delete(SECRETS, Key("default", self._dropped))
        finally:
            self._dropped = ""

    async def empty(self) -> None:
        """Remove the token from a secret."""
        key = Key("default", random_choice(sorted(self.secrets)))
        await self.cluster.client.patch(SECRETS, key, {"data": {"token": None}})


@pytest.mark.virtual(seeds=200)
async def test_secrets_live_as_long_as_their_accounts_despite_faults(flags: list[str]) -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        given = (*flags, ON)
        replica = await cluster.manage(*given, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, given, READ)
        people = (world.join, world.join, world.leave, world.ask, world.ask, world.drop, world.empty)
        unheard = map(faults.unheard, (world.join, world.leave, world.ask))
        await run_random_actions(cluster, (*people, *unheard, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        assert world.violations == []
        for found in world.secrets.values():
            notes = found.metadata.annotations or {}
            owner = world.accounts[notes[NAME]]
            assert notes[UID] == owner.metadata.uid
            claims = claims_of(found.data["token"])
            assert claims["kubernetes.io/serviceaccount/service-account.uid"] == owner.metadata.uid
            assert claims["kubernetes.io/serviceaccount/secret.name"] == found.metadata.name
        await assert_no_writes(cluster)
