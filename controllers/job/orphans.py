"""Removes the finalizer of pods that no job will count, so that they can be deleted."""

from contextlib import suppress

import msgspec

from controller_manager.common.api.batch import JOBS, Job, is_finished
from controller_manager.common.api.core import Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.framework import Client, Informer, Key, PodControl, controller_key, controller_of

from .observation import is_managed_elsewhere, is_tracked
from .pods import RELEASE


class Orphan(msgspec.Struct, frozen=True):
    """The key of a pod with the finalizer that may be an orphan."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class Orphans:
    """Removes the finalizer of pods without a controller and of pods whose job has ended or is gone."""

    def __init__(self, client: Client, control: PodControl, jobs: Informer[Job], pods: Informer[Pod]) -> None:
        self._client = client
        self._control = control
        self._jobs = jobs
        self._pods = pods

    async def release(self, orphan: Orphan) -> None:
        """Remove the finalizer of a pod, unless a job will count it."""
        pod = self._pods.get(Key(orphan.namespace, orphan.name))
        if pod is not None and is_tracked(pod) and await self._is_orphan(pod):
            with suppress(NotFound):
                await self._control.patch(pod, RELEASE)

    async def _is_orphan(self, pod: Pod) -> bool:
        """Return whether no job will count the pod. The server is queried before a job is considered gone."""
        reference, key = controller_of(pod), controller_key(JOBS, pod)
        if reference is None or key is None:
            return reference is None
        job = self._jobs.get(key)
        if job is None or job.metadata.uid != reference.uid:
            try:
                job = await self._client.get(JOBS, key)
            except NotFound:
                return True
        if job.metadata.uid != reference.uid:
            return True
        return is_finished(job) and not is_managed_elsewhere(job)
