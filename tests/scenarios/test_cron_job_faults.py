"""Cron jobs under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. No scheduled time has two jobs, at once or in sequence.
2. With the policy Forbid a job is created only when all others have finished.
3. After recovery each new time has its job, the status lists exactly the unfinished jobs, and no more finished jobs
   remain than the history limits allow.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.batch import CRON_JOBS, JOBS, Job, is_finished
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now, wall_seconds
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import Tasks
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from tests.scenarios.batch import cron_job
from tests.scenarios.faults import random_choice
from tests.scenarios.test_job_faults import wait

FLAGS = ("--leader-elect=false", "--controllers=cronjob")
READ = (JOBS.path(), CRON_JOBS.path())
ROUNDS = 10
# Time for silent watches, backoffs and some scheduled times.
BOUND = 8 * 60.0
# Maximum backoff of a key, in seconds.
LONGEST_BACKOFF = 1000.0
KEPT = 2
MADE = (
    cron_job("allow", "* * * * *", successfulJobsHistoryLimit=KEPT),
    cron_job("forbid", "* * * * *", successfulJobsHistoryLimit=KEPT, concurrencyPolicy="Forbid"),
)


class World:
    """The jobs of cron jobs in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.violations: list[str] = []
        self.jobs: dict[str, dict[str, Job]] = defaultdict(dict)
        self._made: set[str] = set()
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == JOBS.name:
                self._check(Job.decode(change.row.data), deleted=change.deleted)

    def _check(self, job: Job, *, deleted: bool) -> None:
        name, uid = job.metadata.name, job.metadata.uid
        there = self.jobs[name.rpartition("-")[0]]
        if uid not in there and not deleted:
            if name in self._made:
                self.violations.append(f"{name} was created twice")
            if name.startswith("forbid") and any(not is_finished(other) for other in there.values()):
                self.violations.append(f"{name} was created while another one is active")
            self._made.add(name)
        if deleted:
            there.pop(uid, None)
        else:
            there[uid] = job


class JobAgent:
    """Completes each job `work` seconds after its creation, as the job controller would."""

    def __init__(self, cluster: Cluster, work: float, tasks: Tasks) -> None:
        self._cluster = cluster
        self._work = work
        self._tasks = tasks
        self._seen: set[str] = set()
        cluster.api.store.subscribe(self._note)

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == JOBS.name:
                job = Job.decode(change.row.data)
                if job.metadata.uid not in self._seen:
                    self._seen.add(job.metadata.uid)
                    self._tasks.start(self._end(key_of(job)), name=f"end {job.metadata.name}")

    async def _end(self, key: Key) -> None:
        began = format_time(utc_now())
        await asyncio.sleep(self._work)
        now = format_time(utc_now())
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"conditions": conditions, "startTime": began, "completionTime": now, "succeeded": 1}
        with contextlib.suppress(NotFound):
            await self._cluster.client.patch(JOBS, key, {"status": status}, subresource="status")


@pytest.mark.virtual(seeds=200)
async def test_each_time_has_exactly_one_job_after_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        async with Tasks() as tasks:
            JobAgent(cluster, 10 + random_source().uniform(0, 100), tasks)
            for made in MADE:
                await cluster.client.create(CRON_JOBS, made)
            injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
            for _ in range(ROUNDS):
                await random_choice((injector.kill, injector.cut, injector.deafen))()
                await wait(cluster)
            await injector.heal()
            await cluster.sleep(BOUND)
            assert world.violations == []
            for made in MADE:
                try:
                    await check(cluster, world, made.metadata.name)
                except AssertionError:
                    await cluster.sleep(LONGEST_BACKOFF)
                    await check(cluster, world, made.metadata.name)


async def check(cluster: Cluster, world: World, name: str) -> None:
    """Raise AssertionError unless the cron job meets the invariants of this module."""
    there = await cluster.client.get(CRON_JOBS, Key("default", name))
    jobs = list(world.jobs[name].values())
    assert {one.uid for one in there.status.active} == {one.metadata.uid for one in jobs if not is_finished(one)}
    assert sum(map(is_finished, jobs)) <= KEPT
    if name == "allow":
        assert f"allow-{int(wall_seconds() - 5) // 60}" in {one.metadata.name for one in jobs}
