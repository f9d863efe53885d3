"""Jobs under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed:

1. A job never has more active pods than its parallelism.
2. An index that is complete in the status, or has a counted succeeded pod, never gets another pod.
3. The succeeded and failed counts never decrease, and a finished job has no uncounted pod.
4. Each finished or deleted pod is counted once: the counts are those of the pods that lost their finalizer.
5. After recovery all jobs finish as their pods did.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.batch import JOB_TRACKING, JOBS, Job, end_of
from controller_manager.common.api.core import PODS, Pod, is_pod_terminal
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base.random import random_source
from controller_manager.framework import controller_of
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from controller_manager.testing.pod_agent import PodAgent
from controllers.job.indexes import Indexes, index_of
from tests.scenarios.batch import end, found, indexed, job
from tests.scenarios.faults import random_choice

FLAGS = ("--leader-elect=false", "--controllers=job")
READ = (JOBS.path(), PODS.path())
ROUNDS = 12
# Time for all backoffs of failing indexes and for silent watches.
BOUND = 3 * 3600.0
JOBS_MADE = (
    job("plain", completions=4, parallelism=2, backoffLimit=1000),
    job("patient", completions=3, parallelism=3, backoffLimit=1000, podReplacementPolicy="Failed"),
    indexed("indexed", completions=5, parallelism=3, backoffLimit=1000),
    indexed("limited", completions=4, parallelism=2, backoffLimitPerIndex=1),
)


class World:
    """Jobs whose pods finish or are deleted, and a checker of all changes in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.violations: list[str] = []
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, Job] = {}
        # Results of the pods that lost their finalizer, by job.
        self.counted: dict[str, Counter[str]] = defaultdict(Counter)
        self.done: dict[str, set[int | None]] = defaultdict(set)  # indexes of succeeded ones, by job
        self.codes: dict[str, int] = {}
        cluster.api.store.subscribe(self._watch)

    def ends(self, pod: Pod) -> int | None:
        """Return a random exit code; most pods succeed."""
        uid = pod.metadata.uid
        if uid not in self.codes:
            self.codes[uid] = int(random_source().uniform(0, 1) < 0.3)
        return self.codes[uid]

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == JOBS.name:
                self._check_job(Job.decode(change.row.data))
            elif change.row.resource == PODS.name:
                self._check_pod(Pod.decode(change.row.data), deleted=change.deleted)

    def _check_pod(self, pod: Pod, *, deleted: bool) -> None:
        owner, before = controller_of(pod), self.pods.get(pod.metadata.uid)
        if owner is None:
            return
        if before is None:
            self._check_new_pod(owner.name, pod)
        elif JOB_TRACKING in before.metadata.finalizers and JOB_TRACKING not in pod.metadata.finalizers:
            self.counted[owner.name]["Succeeded" if pod.status.phase == "Succeeded" else "Failed"] += 1
            if pod.status.phase == "Succeeded":
                self.done[owner.name].add(index_of(pod))
        if deleted:
            self.pods.pop(pod.metadata.uid)
        else:
            self.pods[pod.metadata.uid] = pod
        active = sum(map(is_active, self.of(owner.name)))
        if active > self.jobs[owner.name].spec.parallelism:
            self.violations.append(f"{owner.name} has {active} active pods")

    def _check_new_pod(self, name: str, pod: Pod) -> None:
        status, index = self.jobs[name].status, index_of(pod)
        completed = Indexes.parse(status.completed_indexes, 1000)
        if index is not None and (index in completed or index in self.done[name]):
            self.violations.append(f"{name} runs index {index} again")
        if end_of(status.conditions) is not None:
            self.violations.append(f"{name} has ended and makes pods")

    def _check_job(self, new: Job) -> None:
        name, old = new.metadata.name, self.jobs.get(new.metadata.name)
        self.jobs[name] = new
        fell = old is not None and (
            new.status.succeeded < old.status.succeeded or new.status.failed < old.status.failed
        )
        if fell:
            self.violations.append(f"{name} counts less than before")
        if end_of(new.status.conditions) is not None and any(
            JOB_TRACKING in pod.metadata.finalizers for pod in self.of(name)
        ):
            self.violations.append(f"{name} has ended before all was counted")

    def of(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if (owner := controller_of(pod)) is not None and owner.name == name]

    async def delete(self) -> None:
        """Delete a pod."""
        active = [pod for pod in self.pods.values() if is_active(pod)]
        if active:
            await self.cluster.client.delete(PODS, key_of(random_choice(active)))


def is_active(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not is_pod_terminal(pod)


async def wait(cluster: Cluster) -> None:
    await cluster.sleep(random_source().uniform(0, 60))


@pytest.mark.virtual(seeds=200)
async def test_pods_are_counted_once_and_indexes_complete_once() -> None:
    async with Cluster() as cluster:
        world = World(cluster)
        first = random_choice(range(len(JOBS_MADE)))
        chosen = (JOBS_MADE[first], JOBS_MADE[first - random_choice((1, 2, 3))])
        async with PodAgent(cluster, start=2, stop=3, work=8, ends=world.ends):
            for made in chosen:
                await cluster.client.create(JOBS, made)
            injector = FaultInjector(cluster, await cluster.manage(*FLAGS, faults=0.2), FLAGS, READ)
            for _ in range(ROUNDS):
                await random_choice(
                    (injector.kill, injector.cut, injector.deafen, injector.unheard(world.delete), world.delete)
                )()
                await wait(cluster)
                assert world.violations == []
            await injector.heal()
            await cluster.sleep(BOUND)
        assert world.violations == []
        for made in chosen:
            await check(cluster, world, made.metadata.name)


async def check(cluster: Cluster, world: World, name: str) -> None:
    """Raise AssertionError unless the job has finished with the counts of its pods."""
    done, counted = await found(cluster, name), world.counted[name]
    indexes = Indexes.parse(done.status.completed_indexes, 1000)
    failed = Indexes.parse(done.status.failed_indexes or "", 1000)
    assert done.status.failed == counted["Failed"]
    if done.spec.completion_mode == "Indexed":
        assert done.status.succeeded == len(indexes)
        assert len(indexes) + len(failed) == done.spec.completions
        assert end(done)[0] == ("Failed" if failed.ranges else "Complete")
    else:
        assert done.status.succeeded == counted["Succeeded"] >= (done.spec.completions or 0)
        assert end(done)[0] == "Complete"
    assert await cluster.client.get(JOBS, Key("default", name)) == done
