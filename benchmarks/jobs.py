"""Jobs through the HTTP API: jobs of one pod a second, from their creation to their end, and cron jobs that are due.

The ceiling is a bare client that makes the same calls, those of the manager and of the kubelet: for a job, it and its
pod are created, the pod ends and loses its finalizer, the status is written three times, and two events tell of it. The
kubelet here ends every pod at once. Changes of pods are gathered for a second, as by the Go original.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.processes import Api, api_at, create, manager_of, patch

NAMESPACES = "/api/v1/namespaces"
NAMESPACE = f"{NAMESPACES}/many"
PODS, EVENTS = f"{NAMESPACE}/pods", f"{NAMESPACE}/events"
JOBS = "/apis/batch/v1/namespaces/many/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/many/cronjobs"
COUNT = 1000
# An hour that is long over for every time of which a cron job is asked.
LONG_AGO = "2026-01-01T00:00:00Z"


async def run() -> list[Result]:
    """Jobs to their end, and cron jobs of one minute, each with an API server of its own."""
    found: list[Result] = []
    for measure in (of_jobs, of_cron_jobs):
        with tempfile.TemporaryDirectory() as name:
            async with api_at(Path(name)) as api:
                await api.send([create(NAMESPACES, {"metadata": {"name": "many"}})])
                found += await measure(api)
    return found


async def of_jobs(api: Api) -> list[Result]:
    """1,000 jobs of one pod are created and come to their end."""

    async def ended() -> bool:
        waiting = (await api.read(f"{PODS}?fieldSelector=status.phase=Pending"))["items"]
        if waiting:
            await api.send(_end(one["metadata"]["name"]) for one in waiting)
        jobs = (await api.read(JOBS))["items"]
        return sum("completionTime" in one["status"] for one in jobs) == COUNT

    async def act() -> None:
        await api.send(create(JOBS, _job(f"job-{number}")) for number in range(COUNT))
        await api.until(ended, every=0.2)

    async with manager_of(api, "--controllers=job-controller", "--concurrent-job-syncs=16") as manager:
        work = await manager.measure(COUNT, act)
    top = await _by_a_bare_client(api, _calls_of_job)
    return work.results("jobs of one pod, to their end", top, aim=0.3, cpu_ms=10.0, of="aim")


async def of_cron_jobs(api: Api) -> list[Result]:
    """1,000 cron jobs are due at the same time."""
    await api.send(create(CRON_JOBS, _cron_job(f"cron-{number}")) for number in range(COUNT))
    await api.send(_went_on(f"cron-{number}") for number in range(COUNT))

    async def made() -> bool:
        found = (await api.read(CRON_JOBS))["items"]
        return all(one["status"].get("active") for one in found)

    async def act() -> None:
        await api.send(patch(f"{CRON_JOBS}/cron-{number}", {"spec": {"suspend": False}}) for number in range(COUNT))
        await api.until(made, every=0.2)

    async with manager_of(api, "--controllers=cronjob-controller", "--concurrent-cron-job-syncs=16") as manager:
        work = await manager.measure(COUNT, act)
    top = await _by_a_bare_client(api, _calls_of_cron_job)
    return work.results("cron jobs due at one time", top, aim=0.4, cpu_ms=5.0, of="aim")


async def _by_a_bare_client(api: Api, calls_of: Callable[[int], Iterator[bytes]]) -> float:
    """Return how many objects a second get all their calls; the first one of each is made before any second one."""
    rounds = zip(*map(calls_of, range(COUNT)), strict=True)
    return COUNT / sum([COUNT / await api.send(calls) for calls in rounds])


def _calls_of_job(number: int) -> Iterator[bytes]:
    job, pod = f"bare-{number}", f"bare-{number}"
    yield create(JOBS, _job(job, suspend=True))
    yield create(PODS, {**_template(), "metadata": {"name": pod, "finalizers": ["batch.kubernetes.io/job-tracking"]}})
    yield _end(pod)
    yield patch(f"{PODS}/{pod}", {"metadata": {"finalizers": None}})
    for active in (1, 2, 3):
        yield patch(f"{JOBS}/{job}/status", {"status": {"active": active}})
    yield from (create(EVENTS, _event("Job", f"{job}.{word}", job)) for word in ("created", "completed"))


def _calls_of_cron_job(number: int) -> Iterator[bytes]:
    name = f"cron-{number}"
    yield patch(f"{CRON_JOBS}/{name}", {"spec": {"suspend": True}})
    yield create(JOBS, _job(f"made-{number}"))
    yield _went_on(name)
    yield create(EVENTS, _event("CronJob", f"{name}.created", name))


def _template() -> dict[str, Any]:
    environment = [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(12)]
    container = {"name": "main", "image": "registry.example/app:1", "env": environment}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _job(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"template": _template(), **spec}}


def _cron_job(name: str) -> dict[str, Any]:
    work = {"spec": {"template": _template()}}
    spec = {"schedule": "0 * * * *", "suspend": True, "jobTemplate": work}
    return {"metadata": {"name": name}, "spec": spec}


def _went_on(name: str) -> bytes:
    """The status of a cron job whose next times are over."""
    return patch(f"{CRON_JOBS}/{name}/status", {"status": {"lastScheduleTime": LONG_AGO}})


def _end(pod: str) -> bytes:
    return patch(f"{PODS}/{pod}/status", {"status": {"phase": "Succeeded"}})


def _event(kind: str, name: str, of: str) -> dict[str, Any]:
    about = {"kind": kind, "namespace": "many", "name": of}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "Told", "message": "it was done"}
