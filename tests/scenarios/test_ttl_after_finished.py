"""Finished jobs are deleted after their TTL, in virtual time."""

import pytest

from controller_manager.common.api.batch import JOBS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.batch import end, found, job, pods
from tests.scenarios.test_manager_flags import most_in_work

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=job,ttl-after-finished,garbagecollector")


async def names(cluster: Cluster) -> list[str]:
    return [one.metadata.name for one in (await cluster.client.list(JOBS, "default")).items]


async def test_finished_job_and_pods_are_deleted_after_ttl() -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(ttlSecondsAfterFinished=100))
        await cluster.client.create(JOBS, job("kept"))
        await cluster.sleep(60)
        assert end(await found(cluster))[0] == "Complete"
        await cluster.sleep(40)
        assert await names(cluster) == ["kept", "work"]
        await cluster.sleep(20)
        assert await names(cluster) == ["kept"]
        assert len(await pods(cluster)) == 1


async def test_ttl_extended_on_server_is_respected() -> None:
    """The manager's watch misses that the TTL was extended."""
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(ttlSecondsAfterFinished=100))
        await cluster.sleep(60)
        replica.network.intercept(_break_watch)
        replica.network.cut()
        replica.network.heal()
        later = {"spec": {"ttlSecondsAfterFinished": 500}}
        await cluster.client.patch(JOBS, Key("default", "work"), later)
        await cluster.sleep(100)
        assert await names(cluster) == ["work"]
        replica.network.intercept(None)
        await cluster.sleep(500)
        assert await names(cluster) == []


def _break_watch(request: Request) -> Response | None:
    return Response(500, {}, b"") if request.path == JOBS.path() else None


@pytest.mark.flag("concurrent-ttl-after-finished-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_ttl_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        await cluster.manage("--leader-elect=false", "--controllers=job")
        for number in range(6):
            await cluster.client.create(JOBS, job(f"work-{number}", ttlSecondsAfterFinished=60))
        await cluster.sleep(30)
        slow = ("--leader-elect=false", "--controllers=ttl-after-finished", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-ttl-after-finished-syncs={workers}")
        await cluster.sleep(32)
        assert await most_in_work(cluster, replica, "ttl-after-finished-controller") == workers
