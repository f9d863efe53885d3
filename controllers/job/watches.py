"""Maps changes to jobs, and to pods that may be orphans; pure."""

from collections.abc import Hashable, Iterator

from controller_manager.common.api.batch import JOBS, Job, is_finished
from controller_manager.common.api.core import PODS, Pod
from controller_manager.framework import Change, Informers, Key, controller_key, controller_of

from ..shared.controlled import controlled_by, owners_concerned
from .observation import is_tracked
from .orphans import Orphan


def keys_of_new_state(informers: Informers, change: Change[Job]) -> Iterator[Hashable]:
    """Yield a job that is new, has a new spec or is gone. If it has ended, its tracked pods follow."""
    before, after = change.before, change.after
    if before is None or after is None or before.metadata.generation != after.metadata.generation:
        yield change.key
    if after is None or (is_finished(after) and (before is None or not is_finished(before))):
        yield from _tracked_pods(informers, change.object)


def keys_of_status(_: Informers, change: Change[Job]) -> Iterator[Key]:
    """Yield a job whose metadata or status has changed without its spec."""
    before, after = change.before, change.after
    if before is not None and after is not None and before.metadata.generation == after.metadata.generation:
        yield change.key


def jobs_of_pod(informers: Informers, change: Change[Pod]) -> Iterator[Hashable]:
    """Yield the jobs that control a pod or may adopt it, and the pod itself if it may be an orphan."""
    yield from _jobs_concerned(informers, change)
    pod = change.after
    if pod is not None and is_tracked(pod) and _may_be_orphan(informers, pod):
        yield Orphan(pod.metadata.namespace, pod.metadata.name)


def _may_be_orphan(informers: Informers, pod: Pod) -> bool:
    reference, key = controller_of(pod), controller_key(JOBS, pod)
    if reference is None or key is None:
        return reference is None
    job = informers.get(JOBS).get(key)
    return job is None or job.metadata.uid != reference.uid or is_finished(job)


def _tracked_pods(informers: Informers, job: Job) -> Iterator[Orphan]:
    for pod in controlled_by(informers.get(PODS), job.metadata.uid):
        if is_tracked(pod):
            yield Orphan(pod.metadata.namespace, pod.metadata.name)


def _selects(job: Job, pod: Pod) -> bool:
    selector = job.spec.selector
    return selector is not None and not is_finished(job) and selector.selector().matches(pod.metadata.labels)


def _facts(pod: Pod) -> object:
    """Return the facts of a pod that its job depends on."""
    meta, status = pod.metadata, pod.status
    conditions = [(one.type, one.status) for one in status.conditions]
    ended = (status.container_statuses, status.init_container_statuses)
    owned = (meta.uid, meta.owner_references, meta.labels, meta.annotations)
    return (*owned, meta.deletion_timestamp is None, meta.finalizers, status.phase, conditions, *ended)


_jobs_concerned = owners_concerned(JOBS, _selects, _facts)
