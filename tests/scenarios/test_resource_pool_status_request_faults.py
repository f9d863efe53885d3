"""Pool status requests under faults (changing slices and claims, failed requests, silent watches, lost managers), by
seed, in virtual time.

For every seed:

1. An answer never changes, and was correct for each pool at some time: its devices from its slices, its allocated
   devices from the claims.
2. A request lives an hour after its answer, or a day without one, unless a user deletes it.
3. After recovery each request has an answer, that of a new one is correct, and all are deleted in time.
"""

import contextlib
from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.devices import (
    RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS,
    RESOURCE_SLICES,
    PoolStatus,
    ResourceClaim,
    ResourcePoolStatusRequest,
    ResourceSlice,
)
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from tests.scenarios.devices import allocate, claim
from tests.scenarios.faults import advance_wall_clock, random_choice, run_random_actions
from tests.scenarios.test_resource_pool_status_request import FLAGS, SERVER, ask, get_request, publish

READ = tuple(kind.path() for kind in (RESOURCE_POOL_STATUS_REQUESTS, RESOURCE_SLICES, RESOURCE_CLAIMS))
ACTIONS = 25
POOLS = ("node-1", "shared")
SLICES, CLAIMS, ASKED = ("a", "b", "c"), ("s", "t", "u"), ("p", "q", "r")
KEPT, WAITED = 3600.0, 86400.0


class World:
    """Slices, claims and requests in the store, and random actions on them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.slices: dict[str, ResourceSlice] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.requests: dict[str, ResourcePoolStatusRequest] = {}
        # By pool, all past numbers of slices, devices and allocated devices.
        self.sizes: set[tuple[str, int, int]] = set()
        self.allocated: set[tuple[str, int]] = {(name, 0) for name in POOLS}
        self._dropped = ""
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            resource, name = change.row.resource, change.row.name
            if resource == RESOURCE_SLICES.name:
                self.slices.pop(name, None)
                if not change.deleted:
                    self.slices[name] = ResourceSlice.decode(change.row.data)
            elif resource == RESOURCE_CLAIMS.name:
                self.claims.pop(name, None)
                if not change.deleted:
                    self.claims[name] = ResourceClaim.decode(change.row.data)
            elif resource == RESOURCE_POOL_STATUS_REQUESTS.name:
                self._check(name, ResourcePoolStatusRequest.decode(change.row.data), deleted=change.deleted)
        self.sizes |= {(name, *self.size_of(name)) for name in POOLS}
        self.allocated |= {(name, self.allocated_of(name)) for name in POOLS}

    def size_of(self, pool: str) -> tuple[int, int]:
        """Return the numbers of slices and devices of the latest generation of a pool."""
        of_pool = [one.spec for one in self.slices.values() if one.spec.pool.name == pool]
        latest = max((one.pool.generation for one in of_pool), default=0)
        current = [one for one in of_pool if one.pool.generation == latest]
        return len(current), sum(len(one.devices) for one in current)

    def allocated_of(self, pool: str) -> int:
        given = (one.status.allocation for one in self.claims.values())
        return sum(device.pool == pool for one in given if one is not None for device in one.devices.results)

    def _check(self, name: str, found: ResourcePoolStatusRequest, *, deleted: bool) -> None:
        before = self.requests.pop(name, None)
        if not deleted:
            self.requests[name] = found
        if deleted and name != self._dropped and self.age(found) < (WAITED if found.status is None else KEPT):
            self.violations.append(f"{name} is deleted after {self.age(found):g} s")
        if before is not None and before.status is not None and before.status != found.status:
            self.violations.append(f"the answer to {name} changes")
        if found.status is not None:
            self.violations += [f"{name}: {one}" for one in found.status.pools if not self.was_so(one)]

    def age(self, found: ResourcePoolStatusRequest) -> float:
        """Return the seconds since a request was answered, or created if it was not."""
        since = found.metadata.creation_timestamp
        if found.status is not None:
            since = found.status.conditions[0].last_transition_time
        return (utc_now() - parse_time(since or "")).total_seconds()

    def was_so(self, get_request: PoolStatus) -> bool:
        if get_request.validation_error is not None:
            return get_request.total_devices is None
        size = (get_request.pool_name, get_request.resource_slice_count or 0, get_request.total_devices or 0)
        free = max((get_request.total_devices or 0) - (get_request.allocated_devices or 0), 0)
        given = (get_request.pool_name, get_request.allocated_devices or 0)
        return size in self.sizes and given in self.allocated and get_request.available_devices == free

    async def publish(self) -> None:
        made = {"generation": random_choice((1, 2, 3)), "resourceSliceCount": random_choice((1, 1, 2))}
        await publish(
            self.cluster, random_choice(SLICES), random_choice(POOLS), random_choice((0, 1, 2, 5)), pool_spec=made
        )

    async def withdraw(self) -> None:
        await self.cluster.client.delete(RESOURCE_SLICES, Key("", random_choice(SLICES)))

    async def give(self) -> None:
        await allocate(self.cluster, await self.cluster.client.create(RESOURCE_CLAIMS, claim(random_choice(CLAIMS))))

    async def take(self) -> None:
        key = Key("default", random_choice(CLAIMS))
        await self.cluster.client.patch(RESOURCE_CLAIMS, key, {"status": {"allocation": None}}, subresource="status")

    async def ask(self) -> None:
        await ask(self.cluster, random_choice(ASKED), **random_choice(({}, {"limit": 1}, {"poolName": "shared"})))

    async def drop(self, name: str = "") -> None:
        """Delete a request."""
        self._dropped = name or random_choice(ASKED)
        try:
            await self.cluster.client.delete(RESOURCE_POOL_STATUS_REQUESTS, Key("", self._dropped))
        finally:
            self._dropped = ""


@pytest.mark.virtual(seeds=200)
async def test_answers_are_correct_and_retained_despite_faults() -> None:
    async with Cluster(SERVER) as cluster:
        world = World(cluster)
        faults = FaultInjector(cluster, await cluster.manage(*FLAGS, strict=False, faults=RATE), FLAGS, READ)
        people = (world.publish, world.publish, world.withdraw, world.give, world.take, *(world.ask,) * 3, world.drop)

        async def renew() -> None:
            """Delete an expired request and create one with its name, while a manager deletes it."""
            advance_wall_clock(random_choice((KEPT, KEPT, WAITED)))
            await faults.kill()
            await cluster.sleep(random_source().uniform(0, 3))
            for name in ASKED:
                with contextlib.suppress(ApiError):
                    await world.drop(name)
                await ask(cluster, name)

        await run_random_actions(cluster, (*people, renew, renew, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await faults.heal()
        await cluster.sleep(600)
        assert [name for name, one in world.requests.items() if one.status is None] == []
        await ask(cluster, "last")
        await cluster.sleep(60)
        found = await get_request(cluster, "last")
        assert found is not None
        assert found.status is not None
        for one in found.status.pools:
            slices, devices = world.size_of(one.pool_name)
            if one.validation_error is None:
                numbers = (one.resource_slice_count, one.total_devices, one.allocated_devices)
                assert numbers == (slices, devices, world.allocated_of(one.pool_name))
        await cluster.sleep(KEPT + 600)
        assert world.requests == {}
        assert world.violations == []
