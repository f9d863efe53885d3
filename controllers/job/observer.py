"""Observes jobs from the cache, or from the server if the cache is not reliable."""

from collections.abc import Sequence

from controller_manager.common.api.batch import JOB_TRACKING, JOBS, Job, is_finished
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.base import clock
from controller_manager.framework import Client, ControllerRefManager, Informer, key_of

from ..shared.controlled import claimable_by
from .decide import plan
from .memory import Memory, is_fresh
from .metrics import JobMetrics
from .observation import Observation, observe


class Observer:
    """Returns the state of a job; adopts and releases its pods first."""

    def __init__(self, client: Client, jobs: Informer[Job], pods: Informer[Pod], metrics: JobMetrics) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._metrics = metrics

    async def observe(self, job: Job, memory: Memory) -> Observation | None:
        """Return the state of a job, or None if the job is gone or has ended.

        The server is queried if the cache is not reliable.
        """
        stale = memory.stale(self._jobs, self._pods)
        for resource in stale:
            self._metrics.stale(resource)
        if not memory.confirmed and is_fresh(job, clock.wall_seconds()):
            memory.confirmed = True
        if not stale and not memory.in_doubt:
            mine = claimable_by(self._pods, job)
            seen = await self._claimed(job, memory, mine)
            is_idle = not (seen.fresh_succeeded or seen.fresh_failed or plan(seen).create)
            if memory.confirmed or is_idle:
                return seen
        return await self._observe_server(job, memory)

    async def _observe_server(self, known: Job, memory: Memory) -> Observation | None:
        try:
            job = await self._client.get(JOBS, key_of(known))
        except NotFound:
            return None
        if job.metadata.uid != memory.uid or is_finished(job):
            return None
        pods = (await self._client.list(PODS, job.metadata.namespace, labels=str(_selector(job)))).items
        seen = await self._claimed(job, memory, pods)
        memory.read_from_server(job, pods)
        return seen

    async def _claimed(self, job: Job, memory: Memory, pods: Sequence[Pod]) -> Observation:
        """Return the state of a job with those of `pods` that it controls or adopts."""
        selector = _selector(job)
        manager = ControllerRefManager(self._client, JOBS, job, finalizer=JOB_TRACKING)
        claimed = await manager.claim(PODS, pods, lambda pod: selector.matches(pod.metadata.labels))
        return observe(job, claimed, memory.backoff, clock.utc_now())


def _selector(job: Job) -> LabelSelector:
    return job.spec.selector.selector() if job.spec.selector is not None else LabelSelector()
