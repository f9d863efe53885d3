"""Jobs that have ended go after a while, in virtual time."""

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


async def test_a_job_goes_with_its_pods_so_long_after_its_end() -> None:
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


async def test_the_server_has_the_last_word() -> None:
    """The manager does not hear that the job is to be kept for longer."""
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(JOBS, job(ttlSecondsAfterFinished=100))
        await cluster.sleep(60)
        replica.network.intercept(_deaf)
        replica.network.cut()
        replica.network.heal()
        later = {"spec": {"ttlSecondsAfterFinished": 500}}
        await cluster.client.patch(JOBS, Key("default", "work"), later)
        await cluster.sleep(100)
        assert await names(cluster) == ["work"]
        replica.network.intercept(None)
        await cluster.sleep(500)
        assert await names(cluster) == []


def _deaf(request: Request) -> Response | None:
    return Response(500, {}, b"") if request.path == JOBS.path() else None


@pytest.mark.flag("concurrent-ttl-after-finished-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_so_many_jobs_are_looked_at_at_once(workers: int) -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        await cluster.manage("--leader-elect=false", "--controllers=job")
        for number in range(6):
            await cluster.client.create(JOBS, job(f"work-{number}", ttlSecondsAfterFinished=60))
        await cluster.sleep(30)
        slow = ("--leader-elect=false", "--controllers=ttl-after-finished", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-ttl-after-finished-syncs={workers}")
        await cluster.sleep(32)
        assert await most_in_work(cluster, replica, "ttl-after-finished-controller") == workers
