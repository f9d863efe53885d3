"""Type checking of admission policies under faults (failed requests, silent watches, lost managers), by seed, in
virtual time.

For every seed:

1. A status for a generation is what Kubernetes 1.36 reported for its spec.
2. After recovery each status is of the newest generation, and nothing is written any more.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.admissionregistration import VALIDATING_ADMISSION_POLICIES as POLICIES
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_custom_resources import DEFINITIONS, send
from tests.scenarios.test_validating_admission_policy_status import DEFINITION, NAME, PATH, ROWS

FLAGS = ("--leader-elect=false", f"--controllers={NAME}")
ACTIONS = 12
NAMES = ("a", "b", "c")


class World:
    """The policies in the store, and the recorded row of each of their generations."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.policies: dict[str, Any] = {}
        self._rows: dict[tuple[str, int], Any] = {}
        self._sent: dict[str, Any] = {}
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == POLICIES.name:
                self._check(json.loads(change.row.data))

    def _check(self, policy: Any) -> None:
        metadata, status = policy["metadata"], policy.get("status", {})
        uid, generation = metadata["uid"], metadata["generation"]
        self._rows.setdefault((uid, generation), self._sent[metadata["name"]])
        self.policies[metadata["name"]] = policy
        of = status.get("observedGeneration")
        if of is not None and status["typeChecking"] != self._rows[uid, of]["status"]["typeChecking"]:
            self.violations.append(f"{metadata['name']} {of}: {status} {self._rows[uid, of]['id']}")

    async def make(self) -> None:
        """Create a policy."""
        name = random_choice([name for name in NAMES if name not in self.policies])
        self._sent[name] = row = random_choice(ROWS)
        tree = {"kind": "ValidatingAdmissionPolicy", "apiVersion": POLICIES.api_version, "metadata": {"name": name}}
        await send(self.cluster, "POST", PATH, {**tree, "spec": row["spec"]})

    async def change(self) -> None:
        """Change a policy."""
        name = random_choice(sorted(self.policies))
        self._sent[name] = row = random_choice(ROWS)
        policy = await send(self.cluster, "GET", f"{PATH}/{name}")
        await send(self.cluster, "PUT", f"{PATH}/{name}", {**policy, "spec": row["spec"]})

    async def drop(self) -> None:
        """Delete a policy; its name may be reused."""
        name = random_choice(sorted(self.policies))
        await self.cluster.client.delete(POLICIES, Key("", name))
        del self.policies[name]


@pytest.mark.virtual(seeds=200)
async def test_policy_status_matches_its_generation_despite_faults() -> None:
    async with Cluster() as cluster:
        await send(cluster, "POST", DEFINITIONS, DEFINITION["definition"])
        world = World(cluster)
        replica = await cluster.manage(*FLAGS, faults=RATE)
        faults = FaultInjector(cluster, replica, FLAGS, (POLICIES.path(),))
        people = (world.make, world.make, world.change, world.change, world.drop)
        await run_random_actions(cluster, (*people, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        assert world.violations == [], world.violations[0]
        for name in world.policies:
            policy = await send(cluster, "GET", f"{PATH}/{name}")
            assert policy["status"]["observedGeneration"] == policy["metadata"]["generation"], name
        await assert_no_writes(cluster)
