"""In-memory state about jobs: our writes that the cache does not show yet, and consecutive failures.

It is lost when the process ends and dropped when a job has ended.
"""

from collections.abc import Iterable

import msgspec

from controller_manager.common.api.batch import JOBS, Job
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import time_of
from controller_manager.framework import Informer, Key
from controller_manager.framework.client.codec import WriteResult

from .backoff import NO_FAILURE, JobBackoff

# Seconds after creation in which no other process can have worked on a job with an untouched status.
_YOUNG = 30.0


class Memory(msgspec.Struct):
    """The state of one job, by its uid.

    `in_doubt` is true if the result of a write is unknown. `confirmed` is true once the job was read from the server
    or its status was written.
    """

    uid: str
    backoff: JobBackoff = NO_FAILURE
    confirmed: bool = False
    in_doubt: bool = False
    job: WriteResult | None = None
    pods: dict[Key, WriteResult] = {}

    def wrote_job(self, job: Job) -> None:
        """Record a status that was written."""
        self.job = WriteResult(JOBS, key_of(job), job.metadata.resource_version)
        self.confirmed = True

    def wrote_pod(self, pod: Pod) -> None:
        """Record a pod that was created or whose finalizer was removed."""
        self.pods[key_of(pod)] = WriteResult(PODS, key_of(pod), pod.metadata.resource_version)

    def read_from_server(self, job: Job, pods: Iterable[Pod]) -> None:
        """Record objects read from the server. Doubt is resolved, and the caches are stale until they show these
        versions.
        """
        self.wrote_job(job)
        for pod in pods:
            self.wrote_pod(pod)
        self.in_doubt = False

    def stale(self, jobs: Informer[Job], pods: Informer[Pod]) -> Iterable[str]:
        """Return the resources whose caches lack a recorded write."""
        if self.job is not None and jobs.has_seen(self.job):
            self.job = None
        self.pods = {key: write for key, write in self.pods.items() if not pods.has_seen(write)}
        return [*(["jobs"] if self.job is not None else []), *(["pods"] if self.pods else [])]


def is_fresh(job: Job, now: float) -> bool:
    """Return whether a job is so new, with an untouched status, that no other process can have worked on it."""
    created = time_of(job.metadata.creation_timestamp)
    untouched = job.status.start_time is None and not job.status.conditions
    return untouched and created is not None and now - created.timestamp() < _YOUNG
