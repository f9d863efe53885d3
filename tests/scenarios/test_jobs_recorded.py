"""Jobs and cron jobs behave as recorded from kube-controller-manager 1.36, step by step, in virtual time.

A line of `jobs.jsonl` and `cron_jobs.jsonl` has steps (`batch_steps.py`) and the state at a second after its start
(`at`), before the next step. The state is left out while the original delays the replacement of a failed pod: its
status then has no active pod, and is rejected if one is ready.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.testing import Cluster
from tests.scenarios.batch_steps import BatchSteps, CronJobSteps, JobSteps, Tree, sender_of

FLAGS = ("--leader-elect=false", "--controllers=job,cronjob,ttl-after-finished,garbagecollector")
CRON_BEGIN = 5
"""Second of the minute at which rows of cron jobs start."""


def recorded(name: str) -> Sequence[Tree]:
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text().splitlines()]


JOBS, CRON_JOBS = recorded("jobs.jsonl"), recorded("cron_jobs.jsonl")


async def replay(cluster: Cluster, steps: BatchSteps, row: Tree, begin: float) -> None:
    for step in row["steps"]:
        refused = await steps.take(*step["do"])
        await cluster.sleep(begin + step["at"] - monotonic())
        seen = await steps.seen()
        assert {name: seen[name] for name in seen if name in step} == {
            name: step[name] for name in seen if name in step
        }
        assert refused == step.get("refused", 0), step["do"]
        if "whole" in step:
            assert await steps.whole() == step["whole"], step["do"]


@pytest.mark.virtual
@pytest.mark.parametrize("row", JOBS, ids=[row["scenario"] for row in JOBS])
async def test_job_matches_recorded_steps(row: Tree) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await replay(cluster, JobSteps(sender_of(cluster), "default", utc_now), row, monotonic())


@pytest.mark.virtual
@pytest.mark.parametrize("row", CRON_JOBS, ids=[row["scenario"] for row in CRON_JOBS])
async def test_cron_job_matches_recorded_steps(row: Tree) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        now = utc_now()
        await cluster.sleep((CRON_BEGIN - now.second - now.microsecond / 1e6) % 60)
        steps = CronJobSteps(sender_of(cluster), "default", utc_now)
        await replay(cluster, steps, row, monotonic() - CRON_BEGIN)
