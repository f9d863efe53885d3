"""A day of a cluster of 100 nodes in virtual time, and an hour of small clusters for many seeds: seconds of one core.

In the day ten deployments of ten pods roll out in turn, one each hour, a cron job makes a job every quarter of an hour,
and every three hours a node falls silent for a quarter of an hour. The ceilings are what the clock allows: a minute for
the day, and 0.12 s for a seed, which is a thousand of them a minute on two cores. The seeds go without housekeeping, as
`Cluster.advance` has it; what it takes is told beside.
"""

import asyncio
import resource
import time
from typing import Any

import msgspec

from benchmarks.harness import Result
from controller_manager.common.api.apps import DEPLOYMENTS, Deployment
from controller_manager.common.api.batch import CRON_JOBS, CronJob
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import Key
from controller_manager.common.base.runtime import collect_garbage_seldom
from controller_manager.testing import Cluster
from controller_manager.testing import run as run_virtually
from controller_manager.testing.agents import Agents
from controller_manager.testing.pod_agent import PodAgent

NODES, WORKLOADS, REPLICAS, HOURS = 100, 10, 10, 24
DAY_SECONDS = 60.0
SEEDS, SEED_SECONDS = 20, 0.12
_ALONE = "--leader-elect=false"  # one manager: nobody looks at its lease


def run() -> list[Result]:
    """A day, and an hour of each of some seeds."""
    collect_garbage_seldom()  # as the plugin of the kit does
    began = time.process_time()
    run_virtually(_day())
    day = time.process_time() - began
    each, kept = _seconds_of_hours(housekeeping=False), _seconds_of_hours(housekeeping=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Result(f"a day of {NODES} nodes", f"{day:.1f} s", f"{DAY_SECONDS:.0f} s", day / DAY_SECONDS, 1, at_most=True),
        Result(
            "an hour of a small cluster", f"{each:.3f} s", f"{SEED_SECONDS} s", each / SEED_SECONDS, 1, at_most=True
        ),
        Result("  with housekeeping", f"{kept:.3f} s", f"{SEED_SECONDS} s", kept / SEED_SECONDS, 4, at_most=True),
        Result("  memory of both", f"{memory:.0f} MB", "300 MB", memory / 300, 1, at_most=True),
    ]


def _seconds_of_hours(*, housekeeping: bool) -> float:
    """Return the seconds of a core that an hour takes, by several seeds."""
    began = time.process_time()
    for seed in range(SEEDS):
        run_virtually(_hour(housekeeping), seed=seed)
    return (time.process_time() - began) / SEEDS


async def _day() -> None:
    async with Cluster() as cluster:
        agents = Agents(cluster, 40, together=True)
        for number in range(NODES):
            await agents.join(f"node-{number}", zone=f"zone-{number % 3}")
        await cluster.manage(_ALONE)
        beating = asyncio.ensure_future(agents.run())
        async with PodAgent(cluster, nodes=sorted(agents.readiness), ends=_ends):
            for number in range(WORKLOADS):
                await cluster.client.create(DEPLOYMENTS, _deployment(f"web-{number}", REPLICAS))
            await cluster.client.create(CRON_JOBS, _cron_job("report", "*/15 * * * *"))
            for hour in range(HOURS):
                image = {"containers": [{"name": "main", "image": f"example.org/web:{hour}"}]}
                change = {"spec": {"template": {"spec": image}}}
                await cluster.client.patch(DEPLOYMENTS, Key("default", f"web-{hour % WORKLOADS}"), change)
                if hour % 3 == 0:
                    agents.silent.add(f"node-{hour}")
                await cluster.advance(minutes=15)
                agents.silent.clear()
                await cluster.advance(minutes=45)
            await _all_run(cluster, WORKLOADS * REPLICAS)
        beating.cancel()


async def _hour(housekeeping: bool) -> None:
    async with Cluster() as cluster:
        agents = Agents(cluster, 40, together=True)
        await agents.join("node-1")
        beating = asyncio.ensure_future(agents.run())
        await cluster.manage(_ALONE, faults=0.05)
        async with PodAgent(cluster):
            await cluster.client.create(DEPLOYMENTS, _deployment("web", 3))
            await cluster.advance(hours=1, housekeeping=housekeeping)
            await _all_run(cluster, 3)
        beating.cancel()


async def _all_run(cluster: Cluster, count: int) -> None:
    pods = (await cluster.client.list(PODS, labels="app")).items
    running = sum(pod.status.phase == "Running" for pod in pods)
    if running != count:
        raise RuntimeError(f"{running} pods run instead of {count}")


def _ends(pod: Pod) -> int | None:
    """Return the exit code of the pods of jobs; the others run for ever."""
    return 0 if "app" not in (pod.metadata.labels or {}) else None


def _template(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example.org/web:1"}]}}


def _deployment(name: str, replicas: int) -> Deployment:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": _template(app=name)}
    tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default", "name": name}}
    return Deployment.decode(msgspec.json.encode({**tree, "spec": spec}))


def _cron_job(name: str, schedule: str) -> CronJob:
    template = _template(job=name)
    template["spec"]["restartPolicy"] = "Never"
    spec = {"schedule": schedule, "jobTemplate": {"spec": {"template": template}}}
    tree = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": "default", "name": name}}
    return CronJob.decode(msgspec.json.encode({**tree, "spec": spec}))
