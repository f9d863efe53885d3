"""Unused token secrets under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. No secret is marked as invalid or deleted that was created or used within the period, according to its labels.
2. Nor one that a pod refers to, or that its account does not refer to, unless this changed within the last `LATENESS`
   seconds.
3. None is deleted that was not marked for the whole period.
4. After recovery unused secrets are marked and later deleted, and all others exist.
"""

import contextlib
from collections.abc import Sequence
from datetime import date, timedelta

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    ConfigMap,
    Pod,
    Secret,
    ServiceAccount,
)
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers import legacy_token_cleaner
from controllers.legacy_token_cleaner import INVALID_SINCE, LAST_USED, TRACKING, day_of, secrets_of
from tests.scenarios.faults import advance_wall_clock, random_choice
from tests.scenarios.test_service_account_tokens import account, day, secret
from tests.scenarios.volumes import pod

FLAGS = (
    "--leader-elect=false",
    "--controllers=legacy-serviceaccount-token-cleaner-controller",
    "--legacy-service-account-token-clean-up-period=24h",
)
READ = (SECRETS.path(), SERVICE_ACCOUNTS.path(), PODS.path())
PERIOD = timedelta(hours=24)
# Simulated days, each with this many seconds: one check of all secrets.
DAYS, LOOK_EVERY = 8, 300.0
NAMES = ("a", "b", "c", "d", "e")
OWNER = "ann"
# Seconds between the read without references and the write, which may be delayed or repeated.
LATENESS = 130.0


class World:
    """Secrets, pods and the account in the store, and random actions on them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.secrets: dict[str, Secret] = {}
        self.pods: dict[str, set[str]] = {}
        # For each secret, since when the account and no pod refers to it, or not.
        self._superfluous: dict[str, tuple[bool, float]] = {}
        self._referred: set[str] = set()
        self._ours = False
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name, resource = change.row.name, change.row.resource
            if resource == SERVICE_ACCOUNTS.name and name == OWNER:
                found = ServiceAccount.decode(change.row.data)
                self._referred = set() if change.deleted else {one.name for one in found.secrets}
            elif resource == PODS.name:
                self.pods.pop(name, None)
                if not change.deleted:
                    self.pods[name] = secrets_of(Pod.decode(change.row.data))
            elif resource == SECRETS.name:
                self._note_secret(Secret.decode(change.row.data), deleted=change.deleted)
        for name in NAMES:
            now = self.is_superfluous(name)
            if now is not self._superfluous.get(name, (None, 0.0))[0]:
                self._superfluous[name] = now, monotonic()

    def _note_secret(self, found: Secret, *, deleted: bool) -> None:
        name = found.metadata.name
        before = self.secrets.pop(name, None)
        if not deleted:
            self.secrets[name] = found
        is_marked = INVALID_SINCE in (found.metadata.labels or {})
        if deleted and before is not None:
            self._check(before, "deleted")
            since = day_of((before.metadata.labels or {}).get(INVALID_SINCE, ""))
            if since is None or since >= first_day():
                self.violations.append(f"{name} is deleted, and marked since {since}")
        elif is_marked and before is not None and INVALID_SINCE not in (before.metadata.labels or {}):
            self._check(before, "marked")

    def _check(self, found: Secret, what: str) -> None:
        name = found.metadata.name
        used = day_of((found.metadata.labels or {}).get(LAST_USED, ""))
        made = parse_time(found.metadata.creation_timestamp or "").date()
        if made >= first_day() or (used is not None and used >= first_day()):
            self.violations.append(f"{name} is {what}, made {made}, used {used}")
        superfluous, since = self._superfluous[name]
        if not superfluous and since < monotonic() - LATENESS:
            self.violations.append(f"{name} is {what}, but it is needed")

    def is_superfluous(self, name: str) -> bool:
        return name in self._referred and all(name not in named for named in self.pods.values())

    async def make(self) -> None:
        await self.cluster.client.create(SECRETS, secret(random_choice(NAMES), OWNER))

    async def use(self) -> None:
        change = {"metadata": {"labels": {LAST_USED: day(0), INVALID_SINCE: None}}}
        await self.cluster.client.patch(SECRETS, Key("default", random_choice(NAMES)), change)

    async def mount(self) -> None:
        name = random_choice(NAMES)
        await self.cluster.client.create(PODS, pod(f"p-{name}", {"name": "v", "secret": {"secretName": name}}))

    async def unmount(self) -> None:
        await self.cluster.client.delete(PODS, Key("default", random_choice(sorted(self.pods))), grace=0)

    async def refer(self) -> None:
        """Change the secrets that the account refers to."""
        there = [one for one in NAMES if random_source().uniform(0, 1) < 0.7]
        await self.cluster.client.patch(
            SERVICE_ACCOUNTS, Key("default", OWNER), {"secrets": [{"name": one} for one in there]}
        )


def first_day() -> date:
    return (utc_now() - PERIOD).date()


@pytest.mark.virtual(seeds=200)
async def test_only_unused_tokens_are_deleted_despite_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_token_cleaner, "EVERY", LOOK_EVERY)
    async with Cluster() as cluster:
        meta = ObjectMeta(namespace=TRACKING.namespace, name=TRACKING.name)
        await cluster.client.delete(CONFIG_MAPS, TRACKING)
        await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta, data={"since": day(5)}))
        world = World(cluster)
        await account(cluster, OWNER, *NAMES)
        for name in NAMES:
            await cluster.client.create(SECRETS, secret(name, OWNER))
        faults = FaultInjector(cluster, await cluster.manage(*FLAGS, strict=False, faults=RATE), FLAGS, READ)
        people = (world.make, world.use, world.mount, world.mount, world.unmount, world.refer)
        for _ in range(DAYS):
            advance_wall_clock(PERIOD.total_seconds())
            faults.replica.network.intercept(None)
            await cluster.sleep(random_source().uniform(0, LOOK_EVERY))
            with contextlib.suppress(ApiError, TransportError):
                await random_choice((faults.kill, faults.cut, faults.deafen, faults.deafen))()
            for _ in range(4):
                with contextlib.suppress(ApiError, TransportError):
                    await random_choice(people)()
                await cluster.sleep(random_source().uniform(0, LOOK_EVERY / 4))
        await faults.heal()
        left = {name for name in world.secrets if not world.is_superfluous(name)}
        for _ in range(5):
            advance_wall_clock(PERIOD.total_seconds())
            await cluster.sleep(3 * LOOK_EVERY)
        assert world.violations == []
        assert world.secrets.keys() == left
