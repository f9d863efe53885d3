"""Cron jobs in a cluster with running pods, in virtual time from 2026-01-01 at 00:00 UTC."""

from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.batch import CRON_JOBS, JOBS, CronJob, Job
from controller_manager.common.api.core import NAMESPACES
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster, builders
from controller_manager.testing.pod_agent import PodAgent
from controllers.cron_job.decide import SCHEDULED_AT
from tests.scenarios.batch import cron_job
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import events

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=job,cronjob")
TICK = Key("default", "tick")
MIDNIGHT = 29453760  # 2026-01-01T00:00:00Z in minutes since the epoch


async def jobs(cluster: Cluster) -> list[Job]:
    return sorted((await cluster.client.list(JOBS, "default")).items, key=lambda job: job.metadata.name)


async def times(cluster: Cluster) -> list[int]:
    """Return the scheduled times of jobs, in minutes after midnight."""
    return [int(job.metadata.name.removeprefix("tick-")) - MIDNIGHT for job in await jobs(cluster)]


async def tick(cluster: Cluster) -> CronJob:
    return await cluster.client.get(CRON_JOBS, TICK)


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(CRON_JOBS, TICK, {"spec": spec})


async def test_job_is_created_each_time_and_history_is_limited() -> None:
    async with Cluster() as cluster, PodAgent(cluster, work=30, ends=lambda _: 0):
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="*/5 * * * *", successfulJobsHistoryLimit=2))
        await cluster.sleep(5 * 60 + 2)
        [made] = await jobs(cluster)
        assert (made.metadata.annotations or {})[SCHEDULED_AT] == "2026-01-01T00:05:00Z"
        there = await tick(cluster)
        assert [one.name for one in there.status.active] == [made.metadata.name]
        assert there.status.last_schedule_time == "2026-01-01T00:05:00Z"
        await cluster.sleep(15 * 60 + 100)
        assert await times(cluster) == [15, 20]
        there = await tick(cluster)
        assert there.status.active == ()
        assert there.status.last_successful_time is not None
        assert {reason for _, reason in await events(cluster)} >= {
            "SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete",
        }  # fmt: skip


async def test_schedule_uses_time_zone() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="15 9 * * *", timeZone="Asia/Tokyo"))
        await cluster.sleep(16 * 60)
        [made] = await jobs(cluster)
        assert (made.metadata.annotations or {})[SCHEDULED_AT] == "2026-01-01T09:15:00+09:00"


@pytest.mark.parametrize(
    ("policy", "there", "listed"),
    [("Allow", [1, 2, 3], [1, 2, 3]), ("Forbid", [1], [1]), ("Replace", [3], [3])],
)
async def test_concurrency_policy_decides_overlapping_jobs(policy: str, there: list[int], listed: list[int]) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage("--leader-elect=false", "--controllers=job,cronjob,garbagecollector")
        await cluster.client.create(CRON_JOBS, cron_job(schedule="* * * * *", concurrencyPolicy=policy))
        await cluster.sleep(3 * 60 + 30)
        assert await times(cluster) == there
        active = [int(one.name.removeprefix("tick-")) - MIDNIGHT for one in (await tick(cluster)).status.active]
        assert active == listed


async def test_forbidden_job_is_created_after_active_job_ends() -> None:
    async with Cluster() as cluster, PodAgent(cluster, work=90, ends=lambda _: 0):
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="* * * * *", concurrencyPolicy="Forbid"))
        await cluster.sleep(4 * 60)
        assert await times(cluster) == [1, 2]
        assert ("Normal", "JobAlreadyActive") in await events(cluster)


async def test_missed_times_create_one_job_within_deadline() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="*/10 * * * *"))
        await cluster.client.create(CRON_JOBS, cron_job("late", "*/10 * * * *", startingDeadlineSeconds=60))
        await cluster.sleep(60)
        await replica.stop()
        await cluster.sleep(35 * 60)
        await cluster.manage(*FLAGS)
        await cluster.sleep(60)
        assert [job.metadata.name for job in await jobs(cluster)] == [f"tick-{MIDNIGHT + 30}"]
        await cluster.sleep(4 * 60)
        assert len(await jobs(cluster)) == 3


async def test_too_many_missed_times_are_reported() -> None:
    async with Cluster() as cluster:
        await cluster.client.create(CRON_JOBS, cron_job(schedule="* * * * *"))
        await cluster.sleep(200 * 60 + 5)
        await cluster.manage(*FLAGS)
        await cluster.sleep(10)
        assert await times(cluster) == [200]
        assert ("Warning", "TooManyMissedTimes") in await events(cluster)


async def test_suspended_cron_job_creates_no_jobs() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="* * * * *", suspend=True))
        await cluster.sleep(150)
        assert await jobs(cluster) == []
        await change(cluster, suspend=False)
        await cluster.sleep(1)
        assert await times(cluster) == [2]


async def test_changed_schedule_applies_to_future_times() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="0 12 * * *"))
        await cluster.sleep(7 * 60)
        await change(cluster, schedule="*/5 * * * *")
        await cluster.sleep(60)
        assert await jobs(cluster) == []
        await cluster.sleep(2 * 60 + 5)
        assert await times(cluster) == [10]


async def test_schedule_without_any_date_is_reported() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="0 0 30 2 *"))
        await cluster.advance(60)
        assert ("Warning", "InvalidSchedule") in await events(cluster)


async def test_job_missing_from_status_is_not_created_twice() -> None:
    """The manager is killed between creating the job and updating the status."""
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="*/5 * * * *"))
        await cluster.sleep(60)
        refusal = InternalError("lost").status().encode()
        path = CRON_JOBS.path("default", "tick", "status")
        replica.network.intercept(lambda request: _refused(request, path, refusal))
        await cluster.sleep(4 * 60 + 5)
        assert await times(cluster) == [5]
        await replica.kill()
        await cluster.manage(*FLAGS)
        await cluster.sleep(5)
        assert await times(cluster) == [5]
        assert [one.name for one in (await tick(cluster)).status.active] == [f"tick-{MIDNIGHT + 5}"]


def _refused(request: Request, path: str, body: bytes) -> Response | None:
    return Response(500, {}, body) if request.path == path and request.method == "PUT" else None


async def test_deleted_job_is_removed_from_active_list() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(CRON_JOBS, cron_job(schedule="*/5 * * * *"))
        await cluster.sleep(5 * 60 + 2)
        [made] = await jobs(cluster)
        await cluster.client.delete(JOBS, Key("default", made.metadata.name), propagation="Background")
        await cluster.advance(5)
        assert (await tick(cluster)).status.active == ()
        assert ("Normal", "MissingJob") in await events(cluster)


async def test_unmodelled_template_fields_reach_the_job() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        wanted = cron_job(schedule="* * * * *")
        template = wanted.spec.job_template
        meta = replace(template.metadata, labels={"a": "b"}, annotations={"c": "d"})
        spec = replace(wanted.spec, job_template=replace(template, metadata=meta))
        await cluster.client.create(CRON_JOBS, replace(wanted, spec=spec))
        await cluster.sleep(62)
        [made] = await jobs(cluster)
        assert (made.metadata.labels or {})["a"] == "b"
        assert (made.metadata.annotations or {})["c"] == "d"
        assert b'"env":[{"name":"A","value":"b"}]' in made.raw
        assert made.metadata.owner_references[0].controller


@pytest.mark.flag("concurrent-cron-job-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_cron_job_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=cronjob", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-cron-job-syncs={workers}")
        for number in range(6):
            await cluster.client.create(CRON_JOBS, cron_job(f"tick-{number}", "*/5 * * * *"))
        await cluster.sleep(5 * 60)
        assert await most_in_work(cluster, replica, "cronjob-controller") == workers


async def test_terminating_namespace_gets_no_jobs_and_no_errors() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(NAMESPACES, builders.namespace("ending"))
        ticking = cron_job(schedule="* * * * *")
        moved = replace(ticking, metadata=replace(ticking.metadata, namespace="ending"))
        await cluster.client.create(CRON_JOBS, moved)
        await cluster.sleep(30)
        await cluster.client.delete(NAMESPACES, Key("", "ending"))
        await cluster.sleep(32)
        assert (await cluster.client.list(JOBS, "ending")).items == []
