"""Resource claims under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. A claim reserved for a pod that may still run stays reserved and allocated.
2. No entry of a pod ever has two claims.
3. After recovery each unfinished pod runs with its claims, unless one is being deleted; generated claims of finished
   pods are deleted, and others are allocated only while they are used.
"""

import contextlib

import pytest

from controller_manager.common.api.core import PODS
from controller_manager.common.api.devices import POD_CLAIM, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from controllers.shared.device_claims import is_over, known_claims
from tests.scenarios.devices import DeviceScheduler, Reservations, claim, claims, end, pod, template
from tests.scenarios.faults import random_choice

FLAGS = ("--leader-elect=false", "--controllers=resourceclaim-controller")
READ = ("/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims", "/apis/resource.k8s.io/v1/resourceclaimtemplates")
ROUNDS = 16
NAMES = ("a", "b", "c", "d")
SHARED = ("s", "t")
# Time for silent watches, retries and the cleanup of deleted pods.
BOUND = 240.0


class People:
    """Users who create, finish and delete pods and claims; names are reused, as by stateful sets."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def make(self) -> None:
        entries = {"one": random_choice(("template/gpus", *SHARED))}
        if random_choice((True, False)):  # without a scheduler it may be bound before caches have it
            entries["two"] = "template/gpus"
        await self.cluster.client.create(
            PODS, pod(random_choice(NAMES), node=random_choice(("", "", "", "node-1")), **entries)
        )

    async def share(self) -> None:
        await self.cluster.client.create(RESOURCE_CLAIMS, claim(random_choice(SHARED)))

    async def end(self) -> None:
        await end(self.cluster, random_choice(NAMES), random_choice(("Succeeded", "Failed")))

    async def delete(self) -> None:
        await self.cluster.client.delete(PODS, Key("default", random_choice(NAMES)), grace=random_choice((0, 30)))

    async def delete_claim(self) -> None:
        found = await claims(self.cluster)
        if found:
            await self.cluster.client.delete(RESOURCE_CLAIMS, Key("default", random_choice(found).metadata.name))


async def nothing() -> None:
    """Do nothing; random failures are enough."""


@pytest.mark.virtual(seeds=200)
async def test_used_claims_stay_and_each_is_unique_despite_faults() -> None:
    async with Cluster() as cluster:
        people, seen = People(cluster), Reservations(cluster)
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
        actions = (people.make, people.make, people.make, people.share, people.end, people.delete, people.delete_claim)
        missed = map(injector.unheard, (people.make, people.end, people.delete))
        failures = (nothing, injector.kill, injector.cut, injector.deafen, *missed)
        async with DeviceScheduler(cluster, collects=True):
            for _ in range(ROUNDS):
                with contextlib.suppress(ApiError):
                    await random_choice((*actions, *failures))()
                await cluster.sleep(random_source().uniform(0, 10))
            await injector.heal()
            for _ in range(2):  # a claim that is being deleted is removed first
                for name in SHARED:
                    with contextlib.suppress(ApiError):
                        await people.cluster.client.create(RESOURCE_CLAIMS, claim(name))
                await cluster.sleep(BOUND)
        assert seen.violations == []
        living = {one.metadata.uid: one for one in (await cluster.client.list(PODS)).items if not is_over(one)}
        ending = {one.metadata.name for one in await claims(cluster) if one.metadata.deletion_timestamp is not None}
        waiting = [one for one in living.values() if not one.spec.node_name]
        assert all(ending & {name for _, name in known_claims(one)} for one in waiting)
        for one in await claims(cluster):
            users = {consumer.uid for consumer in one.status.reserved_for}
            assert users <= living.keys()
            assert (one.status.allocation is not None) is bool(users) or POD_CLAIM in (one.metadata.annotations or {})
            assert all(owner.uid in living for owner in one.metadata.owner_references)
