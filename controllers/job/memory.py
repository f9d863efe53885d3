"""The knowledge that this process has of jobs beyond the local copies: how far these lag behind its own writes, and the
failures in a row. It is lost with the process, and of no use once a job has ended.
"""

from collections.abc import Iterable

import msgspec

from controller_manager.common.api.batch import JOBS, Job
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import time_of
from controller_manager.framework.client import WriteResult
from controller_manager.framework.controller import Informer, Key

from .backoff import NO_FAILURE, JobBackoff

# Seconds after its creation in which nobody else can have worked on a job that shows no trace of it.
_YOUNG = 30.0


class Memory(msgspec.Struct):
    """One job, by its uid. It is `in_doubt` once a write may have been made or not, and `confirmed` once the server was
    asked how it is, or took a write of its status.
    """

    uid: str
    backoff: JobBackoff = NO_FAILURE
    confirmed: bool = False
    in_doubt: bool = False
    job: WriteResult | None = None
    pods: dict[Key, WriteResult] = {}

    def wrote_job(self, job: Job) -> None:
        """Note a status that the server took."""
        self.job = WriteResult(JOBS, key_of(job), job.metadata.resource_version)
        self.confirmed = True

    def wrote_pod(self, pod: Pod) -> None:
        """Note a pod that was created, or lost its finalizer."""
        self.pods[key_of(pod)] = WriteResult(PODS, key_of(pod), pod.metadata.resource_version)

    def was_told(self, job: Job, pods: Iterable[Pod]) -> None:
        """Note what the server has: what was in doubt is settled, and the local copies are stale until they show it."""
        self.wrote_job(job)
        for pod in pods:
            self.wrote_pod(pod)
        self.in_doubt = False

    def stale(self, jobs: Informer[Job], pods: Informer[Pod]) -> Iterable[str]:
        """Return the resources whose local copies lack a write that was noted."""
        if self.job is not None and jobs.has_seen(self.job):
            self.job = None
        self.pods = {key: write for key, write in self.pods.items() if not pods.has_seen(write)}
        return [*(["jobs"] if self.job is not None else []), *(["pods"] if self.pods else [])]


def is_fresh(job: Job, now: float) -> bool:
    """Return whether a job is so young, and so untouched, that no other process can have worked on it."""
    created = time_of(job.metadata.creation_timestamp)
    untouched = job.status.start_time is None and not job.status.conditions
    return untouched and created is not None and now - created.timestamp() < _YOUNG
