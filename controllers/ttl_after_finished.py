"""Deletes finished jobs after their ttlSecondsAfterFinished."""

from controller_manager.common.api.batch import JOBS, Job, end_of
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.framework import Context, ControllerSpec, For, Int32, Key, Options, PolicyRule, Requeue, flag

_LATENCY = Family(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "Time from when a job might be deleted until it was.",
    "histogram",
    buckets=tuple(0.1 * 2**step for step in range(14)),
)


class TtlAfterFinishedOptions(Options):
    """TTL after finished controller"""

    concurrent_ttl_after_finished_syncs: Int32 = flag(5, "finished jobs looked at at the same time", minimum=1)


# Observed: a finished job with a TTL.
# Decided, by the time of its final condition:   Done:
#   not expired                                  requeue at the expiry
#   expired                                      delete the job in the foreground, if the server confirms it


class TtlAfterFinishedController:
    """Reconciles finished jobs."""

    def __init__(self, context: Context, _: TtlAfterFinishedOptions) -> None:
        self._client = context.client
        self._jobs = context.informers.get(JOBS)
        self._latency = Histograms(_LATENCY, context.runtime.registry).of()

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete job `key` if its TTL has expired on the server too."""
        job = self._jobs.get(key)
        left = seconds_left(job, clock.wall_seconds()) if job is not None else None
        if left is None:
            return None
        if left > 0:
            return Requeue(left)
        try:
            fresh = await self._client.get(JOBS, key)
            left = seconds_left(fresh, clock.wall_seconds())
            if left is None:
                return None
            if left > 0:
                return Requeue(left)
            await self._client.delete(JOBS, key, propagation="Foreground", uid=fresh.metadata.uid)
        except NotFound:
            return None
        self._latency.observe(-left)
        return None


SPECS = (
    ControllerSpec(
        name="ttl-after-finished-controller",
        sharded_by=JOBS,
        queue="ttl_jobs_to_delete",
        aliases=("ttl-after-finished",),
        reconciler=TtlAfterFinishedController,
        options=TtlAfterFinishedOptions,
        workers=lambda options: options.concurrent_ttl_after_finished_syncs,
        watches=(For(JOBS),),
        rbac=(PolicyRule(groups=("batch",), resources=("jobs",), verbs=("get", "list", "watch", "delete")),),
    ),
)


def seconds_left(job: Job, now: float) -> float | None:
    """Return the seconds until a job expires, or None if it has no TTL or is being deleted.

    `now` is in seconds since the Unix epoch.
    """
    end = end_of(job.status.conditions)
    ended = time_of(end.last_transition_time) if end is not None else None
    kept = job.spec.ttl_seconds_after_finished
    if ended is None or kept is None or job.metadata.deletion_timestamp is not None:
        return None
    return ended.timestamp() + kept - now
