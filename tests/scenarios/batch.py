"""Builders of jobs and cron jobs, and readers of their state."""

from collections.abc import Callable
from typing import Any

import msgspec

from controller_manager.common.api.batch import CRON_JOBS, JOBS, CronJob, Job, end_of
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controllers.job.indexes import index_of

Tree = dict[str, Any]


def template(**spec: Any) -> Tree:
    """Return a pod template with a field that no controller models."""
    container = {"name": "main", "image": "example.org/app:1", "env": [{"name": "A", "value": "b"}]}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def job(name: str = "work", *, restart: str = "Never", **spec: Any) -> Job:
    return Job.decode(_json(JOBS, name, {"template": template(restartPolicy=restart), **spec}))


def indexed(name: str = "work", completions: int = 3, **spec: Any) -> Job:
    given = {"completions": completions, "parallelism": completions, **spec}
    return job(name, completionMode="Indexed", **given)


def cron_job(name: str = "tick", schedule: str = "*/5 * * * *", **spec: Any) -> CronJob:
    work = {"spec": {"template": template()}}
    return CronJob.decode(_json(CRON_JOBS, name, {"schedule": schedule, "jobTemplate": work, **spec}))


def _json(kind: Any, name: str, spec: Tree) -> bytes:
    meta = {"name": name, "namespace": "default"}
    return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec})


async def found(cluster: Cluster, name: str = "work") -> Job:
    return await cluster.client.get(JOBS, Key("default", name))


async def pods(cluster: Cluster) -> list[Pod]:
    return (await cluster.client.list(PODS, "default")).items


async def active(cluster: Cluster) -> list[Pod]:
    """Return the pods that have not finished and are not being deleted."""
    return [
        pod
        for pod in await pods(cluster)
        if pod.metadata.deletion_timestamp is None and pod.status.phase in ("Pending", "Running")
    ]


def end(obj: Job) -> tuple[str, str]:
    """Return type and reason of the condition that finished a job, or two empty strings."""
    last = end_of(obj.status.conditions)
    return (last.type, last.reason) if last is not None else ("", "")


def numbers(obj: Job) -> tuple[int, int, int]:
    """Return the numbers of active, succeeded and failed pods of a job."""
    return obj.status.active, obj.status.succeeded, obj.status.failed


def codes(by_index: dict[int | None, int | None]) -> Callable[[Pod], int | None]:
    """Return a function that gives a pod the exit code of its index."""
    return lambda pod: by_index.get(index_of(pod))
