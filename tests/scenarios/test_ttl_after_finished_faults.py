"""TTL of finished jobs under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. No job is deleted that is unfinished or without TTL, or before its TTL, by its current spec or one of the last
   `LATENESS` seconds.
2. After recovery each job whose TTL is over is being deleted.
"""

from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.batch import JOBS, Job, end_of
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base.clock import utc_now, wall_seconds
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from tests.scenarios.batch import job
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions

FLAGS = ("--leader-elect=false", "--controllers=ttl-after-finished")
READ = (JOBS.path(),)
ACTIONS = 25
TIMES = (None, 0, 30, 200)
# Seconds between the read of a job whose TTL is over and its deletion, which may be delayed or repeated.
LATENESS = 20.0


class World:
    """The jobs in the store, now and in the last seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.jobs: dict[str, Job] = {}
        self._made = 0
        # By job its former TTL, and until when.
        self._before: dict[str, list[tuple[float, Job]]] = {}
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == JOBS.name:
                self._check(Job.decode(change.row.data))

    def _check(self, now: Job) -> None:
        name, before = now.metadata.name, self.jobs.get(now.metadata.name)
        if before is not None:
            self._before.setdefault(name, []).append((wall_seconds(), before))
            if before.metadata.deletion_timestamp is None and now.metadata.deletion_timestamp is not None:
                self._check_deletion(name)
        self.jobs[name] = now

    def _check_deletion(self, name: str) -> None:
        lately = [(until, job) for until, job in self._before[name] if until > wall_seconds() - LATENESS]
        if not any(is_over(job, until) for until, job in lately):
            self.violations.append(f"{name} is deleted too early")

    async def make(self) -> None:
        """Create a job."""
        self._made += 1
        await self.cluster.client.create(JOBS, job(f"j{self._made}", ttlSecondsAfterFinished=random_choice(TIMES)))

    async def end(self) -> None:
        """Finish a job."""
        now = format_time(utc_now())
        kinds = random_choice((("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")))
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
        status = {"conditions": conditions, "startTime": now}
        if "Complete" in kinds:
            status["completionTime"] = now
        await self.cluster.client.patch(JOBS, self._some(), {"status": status}, subresource="status")

    async def keep(self) -> None:
        """Extend, shorten or remove the TTL of a job."""
        change = {"spec": {"ttlSecondsAfterFinished": random_choice(TIMES)}}
        await self.cluster.client.patch(JOBS, self._some(ended=random_choice((True, False))), change)

    def _some(self, *, ended: bool = False) -> Key:
        there = [one for one in self.jobs.values() if one.metadata.deletion_timestamp is None]
        if ended:
            there = [one for one in there if end_of(one.status.conditions) is not None]
        return Key("default", random_choice(there).metadata.name)


def is_over(job: Job, now: float) -> bool:
    """Return whether a job may be deleted at a time, in seconds since the Unix epoch."""
    end, kept = end_of(job.status.conditions), job.spec.ttl_seconds_after_finished
    ended = time_of(end.last_transition_time) if end is not None else None
    if ended is None or kept is None or job.metadata.deletion_timestamp is not None:
        return False
    return ended.timestamp() + kept <= now


@pytest.mark.virtual(seeds=200)
async def test_jobs_are_deleted_in_time_and_never_early_despite_faults() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        faults = FaultInjector(cluster, replica, FLAGS, READ)
        keep_unheard = faults.unheard(world.keep)
        people = (world.make, world.make, world.end, world.end, world.keep, keep_unheard, keep_unheard)
        await run_random_actions(cluster, (*people, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        assert world.violations == []
        assert not [name for name, one in world.jobs.items() if is_over(one, wall_seconds())]
        await assert_no_writes(cluster)
