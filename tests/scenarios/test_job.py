"""Jobs in a cluster whose pods run and end, in virtual time."""

import itertools
from typing import Any

import pytest

from controller_manager.common.api.batch import JOBS, Job
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from controllers.job.indexes import COMPLETION_INDEX, index_of
from controllers.job.observation import is_tracked
from tests.scenarios.batch import active, codes, end, found, indexed, job, numbers, pods
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import events

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=job")
WORK = Key("default", "work")
DONE = ("Complete", "CompletionsReached")


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(JOBS, WORK, {"spec": spec})


def conditions(obj: Job) -> list[tuple[str, str]]:
    return [(one.type, one.status) for one in obj.status.conditions]


async def test_job_of_one_pod_completes_when_pod_succeeds() -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job())
        await cluster.advance(60)
        done = await found(cluster)
        assert end(done) == DONE
        assert numbers(done) == (0, 1, 0)
        assert conditions(done) == [("SuccessCriteriaMet", "True"), ("Complete", "True")]
        assert done.status.start_time
        assert done.status.completion_time
        assert (done.status.ready, done.status.terminating) == (0, 0)
        uncounted = done.status.uncounted_terminated_pods
        assert uncounted is not None
        assert not uncounted.succeeded
        [pod] = await pods(cluster)
        assert not is_tracked(pod)
        assert (pod.metadata.labels or {})["batch.kubernetes.io/job-name"] == "work"
        assert await events(cluster) == [("Normal", "SuccessfulCreate"), ("Normal", "Completed")]


async def test_parallelism_limits_active_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster, work=5, ends=lambda _: 0):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(completions=5, parallelism=2))
        await cluster.sleep(4)
        assert len(await active(cluster)) == 2
        await cluster.advance(60)
        assert numbers(await found(cluster)) == (0, 5, 0)
        assert end(await found(cluster)) == DONE


async def test_work_queue_completes_after_success_when_all_pods_ended() -> None:
    ended: dict[str, int] = {}
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda pod: ended.get(pod.metadata.name)) as agent:
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(parallelism=3))
        await cluster.advance(5)
        first, second, third = await active(cluster)
        await agent.end(first, 0)
        await cluster.advance(5)
        assert numbers(await found(cluster)) == (2, 1, 0)
        await agent.end(second, 0)
        await agent.end(third, 0)
        await cluster.advance(5)
        assert numbers(await found(cluster)) == (0, 3, 0)
        assert end(await found(cluster)) == DONE


async def test_failed_pods_are_replaced_with_backoff_until_limit() -> None:
    born: list[float] = []
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 1):
        cluster.api.store.subscribe(
            lambda changes: born.extend(
                monotonic() for one in changes if one.row.resource == "pods" and one.before is None
            )
        )
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(backoffLimit=3))
        await cluster.advance(300)
        failed = await found(cluster)
        assert end(failed) == ("Failed", "BackoffLimitExceeded")
        assert numbers(failed) == (0, 0, 4)
        assert conditions(failed) == [("FailureTarget", "True"), ("Failed", "True")]
        gaps = [later - earlier for earlier, later in itertools.pairwise(born)]
        assert [round(gap) for gap in gaps] == [12, 22, 42]  # two seconds of work, then 10, 20, 40
        assert ("Warning", "BackoffLimitExceeded") in await events(cluster)


async def test_each_index_has_a_pod_with_its_index() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, indexed(completions=3))
        await cluster.advance(5)
        there = sorted(await pods(cluster), key=lambda pod: index_of(pod) or 0)
        assert [index_of(pod) for pod in there] == [0, 1, 2]
        pod = there[1]
        assert (pod.metadata.labels or {})[COMPLETION_INDEX] == "1"
        assert pod.metadata.name.startswith("work-1-")
        assert pod.spec.hostname == "work-1"
        assert is_tracked(pod)
        assert b'"JOB_COMPLETION_INDEX"' in pod.raw
        assert b'"A"' in pod.raw


async def test_indexed_job_retries_only_failed_indexes() -> None:
    by_index: dict[int | None, int | None] = {0: 0, 1: 1, 2: 0}
    async with Cluster() as cluster, PodAgent(cluster, ends=codes(by_index)):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, indexed(completions=3))
        await cluster.advance(8)
        assert (await found(cluster)).status.completed_indexes == "0,2"
        by_index[1] = 0
        await cluster.advance(30)
        done = await found(cluster)
        assert done.status.completed_indexes == "0-2"
        assert numbers(done) == (0, 3, 2)
        assert end(done) == DONE
        assert sorted(index_of(pod) or 0 for pod in await pods(cluster)) == [0, 1, 1, 1, 2]


async def test_backoff_limit_per_index_fails_only_that_index() -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=codes({0: 0, 1: 1, 2: 0})):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, indexed(completions=3, backoffLimitPerIndex=1))
        await cluster.advance(120)
        failed = await found(cluster)
        assert end(failed) == ("Failed", "FailedIndexes")
        assert (failed.status.completed_indexes, failed.status.failed_indexes) == ("0,2", "1")
        assert numbers(failed) == (0, 2, 2)
        counts = sorted(
            (pod.metadata.annotations or {})["batch.kubernetes.io/job-index-failure-count"]
            for pod in await pods(cluster)
            if index_of(pod) == 1
        )
        assert counts == ["0", "1"]


async def test_max_failed_indexes_ends_job_early() -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=codes({0: 1, 1: 1})):
        await cluster.manage(*FLAGS)
        spec = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}
        await cluster.client.create(JOBS, indexed(completions=4, **spec))
        await cluster.advance(60)
        failed = await found(cluster)
        assert end(failed) == ("Failed", "MaxFailedIndexesExceeded")
        assert failed.status.failed_indexes == "0,1"
        assert failed.status.active == 0


POLICY = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]
}


async def test_pod_failure_policy_rule_fails_job_at_once() -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 42):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(podFailurePolicy=POLICY))
        await cluster.advance(30)
        failed = await found(cluster)
        assert end(failed) == ("Failed", "PodFailurePolicy")
        assert numbers(failed) == (0, 0, 1)


async def test_pod_failure_policy_rule_ignores_failures() -> None:
    tries: list[str] = []

    def ends(pod: Pod) -> int:
        if pod.metadata.uid not in tries:
            tries.append(pod.metadata.uid)
        return 7 if tries.index(pod.metadata.uid) < 2 else 0

    async with Cluster() as cluster, PodAgent(cluster, ends=ends):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(podFailurePolicy=POLICY, backoffLimit=0))
        await cluster.advance(120)
        assert end(await found(cluster)) == DONE
        assert numbers(await found(cluster)) == (0, 1, 0)
        assert len(tries) == 3


async def test_success_policy_completes_job_early() -> None:
    policy = {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]}
    async with Cluster() as cluster, PodAgent(cluster, ends=codes({2: 0})):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, indexed(completions=3, successPolicy=policy))
        await cluster.advance(30)
        done = await found(cluster)
        assert end(done) == ("Complete", "SuccessPolicy")
        assert done.status.completed_indexes == "2"
        assert numbers(done) == (0, 1, 0)
        assert await active(cluster) == []


async def test_suspended_job_has_no_pods_until_resumed() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(suspend=True, completions=2, parallelism=2))
        await cluster.advance(5)
        waiting = await found(cluster)
        assert conditions(waiting) == [("Suspended", "True")]
        assert waiting.status.start_time is None
        assert await pods(cluster) == []
        await change(cluster, suspend=False)
        await cluster.advance(5)
        going = await found(cluster)
        assert conditions(going) == [("Suspended", "False")]
        assert going.status.start_time
        assert numbers(going) == (2, 0, 0)
        assert going.status.ready == 2
        await change(cluster, suspend=True)
        await cluster.advance(10)
        again = await found(cluster)
        assert await pods(cluster) == []
        assert numbers(again) == (0, 0, 0)
        assert again.status.start_time is None
        assert {("Normal", "Suspended"), ("Normal", "Resumed")} <= set(await events(cluster))


async def test_active_deadline_fails_job_and_deletes_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster, stop=20):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(activeDeadlineSeconds=30))
        await cluster.sleep(29)
        assert end(await found(cluster)) == ("", "")
        await cluster.sleep(10)
        ending = await found(cluster)
        assert conditions(ending) == [("FailureTarget", "True")]
        assert (ending.status.active, ending.status.terminating) == (0, 1)
        await cluster.advance(30)
        failed = await found(cluster)
        assert end(failed) == ("Failed", "DeadlineExceeded")
        assert numbers(failed) == (0, 0, 1)
        assert await pods(cluster) == []


async def test_indexed_job_is_resized_while_it_runs() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, indexed(completions=4))
        await cluster.advance(5)
        await change(cluster, completions=2, parallelism=2)
        await cluster.advance(10)
        assert sorted(index_of(pod) or 0 for pod in await active(cluster)) == [0, 1]
        await change(cluster, completions=5, parallelism=5)
        await cluster.advance(10)
        assert sorted(index_of(pod) or 0 for pod in await active(cluster)) == [0, 1, 2, 3, 4]


async def test_pod_replacement_policy_decides_when_pod_is_replaced() -> None:
    async with Cluster() as cluster, PodAgent(cluster, stop=20):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job("work"))
        await cluster.client.create(JOBS, job("patient", podReplacementPolicy="Failed"))
        await cluster.advance(5)
        for pod in await active(cluster):
            await cluster.client.delete(PODS, key_of(pod))
        await cluster.sleep(10)
        assert numbers(await found(cluster)) == (1, 0, 1) or numbers(await found(cluster)) == (0, 0, 1)
        assert numbers(await found(cluster, "patient")) == (0, 0, 0)
        assert (await found(cluster, "patient")).status.terminating == 1
        await cluster.advance(30)
        assert numbers(await found(cluster)) == (1, 0, 1)
        assert (await found(cluster, "patient")).status.active == 1


async def test_pods_of_deleted_job_lose_tracking_finalizer() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job())
        await cluster.advance(5)
        assert [is_tracked(pod) for pod in await pods(cluster)] == [True]
        await cluster.client.delete(JOBS, WORK, propagation="Orphan")
        await cluster.client.patch(JOBS, WORK, {"metadata": {"finalizers": None}})
        await cluster.advance(5)
        assert [is_tracked(pod) for pod in await pods(cluster)] == [False]


async def test_job_managed_by_other_controller_is_left_alone() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(managedBy="example.org/queue"))
        await cluster.advance(5)
        assert await pods(cluster) == []
        assert (await found(cluster)).status == Job().status


async def test_container_restarts_count_for_backoff_limit() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(restart="OnFailure", backoffLimit=2))
        await cluster.advance(5)
        [pod] = await active(cluster)
        status = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 2, "state": {}}
        await cluster.client.patch(PODS, key_of(pod), {"status": {"containerStatuses": [status]}}, subresource="status")
        await cluster.advance(10)
        assert end(await found(cluster)) == ("Failed", "BackoffLimitExceeded")
        assert numbers(await found(cluster)) == (0, 0, 1)


@pytest.mark.flag("concurrent-job-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_job_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=job", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-job-syncs={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(JOBS, job(f"work-{number}"))
        assert await most_in_work(cluster, replica, "job-controller") == workers


async def test_lost_create_and_status_answers_make_no_second_pod() -> None:
    """The manager reads the result of the create from the server, because its caches lack the pod for a while."""
    refused = Response(500, {}, b"")
    async with Cluster() as cluster, Tasks() as tasks:
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.settle()
        asked: list[str] = []

        def spoil(request: Request) -> Response | None:
            asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
            if request.path == PODS.path():  # which only informers send
                return refused
            if asked[-1] == "POST pods" and asked.count("POST pods") == 1:
                kind = request.headers["content-type"]
                made = cluster.client.raw(Call("POST", request.path, body=request.body, content_type=kind))
                tasks.start(made, name="the creation whose answer is lost")
                return refused
            return refused if asked[-1] == "PUT status" and asked.count("PUT status") in (2, 3) else None

        replica.network.intercept(spoil)
        replica.network.cut()
        replica.network.heal()
        await cluster.client.create(JOBS, job())
        await cluster.sleep(30)
        assert asked.count("POST pods") == 1
        assert len(await pods(cluster)) == 1
