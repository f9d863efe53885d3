"""The status of a deployment: sums over its replica sets, and conditions about the rollout; pure.

Progressing, if it has a deadline:                           status   reason
  the replica set of the template was created                True     NewReplicaSetCreated
  it existed already                                         True     FoundNewReplicaSet
  it cannot be created                                       False    ReplicaSetCreateError
  more pods are updated, ready or available, fewer are old   True     ReplicaSetUpdated
  all pods are updated and available, no others exist        True     NewReplicaSetAvailable
  no progress within the deadline                            False    ProgressDeadlineExceeded
  paused; resumed                                            Unknown  DeploymentPaused; DeploymentResumed
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from controller_manager.common.api.apps import Deployment, DeploymentStatus, ReplicaSet
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.timestamps import format_time, nonzero_time, time_of

from .limits import limits_of

PROGRESSING, AVAILABLE, REPLICA_FAILURE = "Progressing", "Available", "ReplicaFailure"

CREATED, FOUND, CREATE_ERROR = "NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetCreateError"
UPDATED, COMPLETE, TIMED_OUT = "ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"

_NO_LIMIT = (1 << 31) - 1


def has_deadline(deployment: Deployment) -> bool:
    """Return whether lack of progress is reported."""
    return deployment.spec.progress_deadline_seconds not in (None, _NO_LIMIT)


def has_history_limit(deployment: Deployment) -> bool:
    """Return whether old replica sets are deleted at all."""
    return deployment.spec.revision_history_limit not in (None, _NO_LIMIT)


def status_of(
    deployment: Deployment,
    newest: ReplicaSet | None,
    old: Sequence[ReplicaSet],
    now: datetime,
    *,
    terminating: bool = True,
) -> DeploymentStatus:
    """Return the status without the conditions of a rollout. `terminating` enables the count of terminating pods."""
    every = [*old, *([newest] if newest is not None else [])]
    available = sum(one.status.available_replicas for one in every)
    enough = available >= deployment.spec.replicas - limits_of(deployment).unavailable
    minimum = condition(
        AVAILABLE,
        "True" if enough else "False",
        "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "Deployment has minimum availability." if enough else "Deployment does not have minimum availability.",
        now,
    )
    return DeploymentStatus(
        replicas=sum(one.status.replicas for one in every),
        updated_replicas=newest.status.replicas if newest is not None else 0,
        ready_replicas=sum(one.status.ready_replicas for one in every),
        available_replicas=available,
        unavailable_replicas=max(0, sum(one.spec.replicas for one in every) - available),
        terminating_replicas=_terminating(every) if terminating else None,
        observed_generation=deployment.metadata.generation,
        collision_count=deployment.status.collision_count,
        conditions=with_reason(deployment.status.conditions, minimum),
    )


def _terminating(replica_sets: Iterable[ReplicaSet]) -> int | None:
    """Return the sum, or None if a set whose status was observed does not report it."""
    counted = [one.status for one in replica_sets if one.status.observed_generation != 0]
    if any(status.terminating_replicas is None for status in counted):
        return None
    return sum(status.terminating_replicas or 0 for status in counted)


def rollout_status(
    deployment: Deployment,
    newest: ReplicaSet | None,
    old: Sequence[ReplicaSet],
    status: DeploymentStatus,
    now: datetime,
) -> DeploymentStatus:
    """Return `status` with the conditions about progress and failures of a rollout."""
    conditions = status.conditions
    if not has_deadline(deployment):
        conditions = without(conditions, PROGRESSING)
    elif (progress := _progress(deployment, newest, status, now)) is not None:
        conditions = _with_progress(conditions, progress)
    failures = [
        failure
        for one in (newest, *old)
        if one is not None and (failure := condition_of(one.status.conditions, REPLICA_FAILURE)) is not None
    ]
    if not failures:
        return replace(status, conditions=without(conditions, REPLICA_FAILURE))
    failure = replace(failures[0], last_update_time=failures[0].last_transition_time)
    return replace(status, conditions=with_reason(conditions, failure))


def _progress(
    deployment: Deployment, newest: ReplicaSet | None, status: DeploymentStatus, now: datetime
) -> Condition | None:
    """Return the condition Progressing if it has changed."""
    known = condition_of(deployment.status.conditions, PROGRESSING)
    rested = status.replicas == status.updated_replicas and known is not None and known.reason == COMPLETE
    if rested:
        return None
    what = f'ReplicaSet "{newest.metadata.name}"' if newest is not None else f'Deployment "{deployment.metadata.name}"'
    if is_complete(deployment, status):
        return condition(PROGRESSING, "True", COMPLETE, f"{what} has successfully progressed.", now)
    if _has_progressed(deployment.status, status):
        return condition(PROGRESSING, "True", UPDATED, f"{what} is progressing.", now)
    if is_timed_out(deployment, known, now):
        return condition(PROGRESSING, "False", TIMED_OUT, f"{what} has timed out progressing.", now)
    return None


def _with_progress(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """Return the conditions with the new condition Progressing. Each sign of progress updates its time."""
    known = condition_of(conditions, PROGRESSING)
    if new.reason != UPDATED or known is None:
        return with_reason(conditions, new)
    turned = known.status != new.status
    since = new.last_transition_time if turned else known.last_transition_time
    return (*without(conditions, PROGRESSING), replace(new, last_transition_time=since))


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Return whether all replicas are updated and available and no other pods exist."""
    wanted = deployment.spec.replicas
    numbers = (status.updated_replicas, status.replicas, status.available_replicas)
    return numbers == (wanted,) * 3 and status.observed_generation >= deployment.metadata.generation


def _has_progressed(before: DeploymentStatus, after: DeploymentStatus) -> bool:
    return (
        after.updated_replicas > before.updated_replicas
        or after.replicas - after.updated_replicas < before.replicas - before.updated_replicas
        or after.ready_replicas > before.ready_replicas
        or after.available_replicas > before.available_replicas
    )


def is_timed_out(deployment: Deployment, progress: Condition | None, now: datetime) -> bool:
    """Return whether the last sign of progress is older than the deadline."""
    if progress is None or progress.reason == COMPLETE:
        return False
    left = until_deadline(deployment, progress, now)
    return progress.reason == TIMED_OUT or (left is not None and left < 0)


def until_deadline(deployment: Deployment, progress: Condition, now: datetime) -> float | None:
    """Return the seconds until the progress deadline: negative if it has passed, None if there is no deadline."""
    since = time_of(nonzero_time(progress.last_update_time))
    if since is None or deployment.spec.progress_deadline_seconds is None:
        return None
    return (since + timedelta(seconds=deployment.spec.progress_deadline_seconds) - now).total_seconds()


def next_look(deployment: Deployment, status: DeploymentStatus, now: datetime) -> float | None:
    """Return the seconds until a rollout has to be checked for lack of progress, or None."""
    progress = condition_of(status.conditions, PROGRESSING)
    if not has_deadline(deployment) or progress is None:
        return None
    if progress.reason in (TIMED_OUT, COMPLETE) or is_complete(deployment, status):
        return None
    left = until_deadline(deployment, progress, now)
    # Times in conditions have a resolution of one second.
    return None if left is None else max(0.0, left) + 1.0


def pause_condition(deployment: Deployment, now: datetime) -> Condition | None:
    """Return the condition for a deployment that was just paused or resumed, or None. The deadline does not count in a
    pause.
    """
    known = condition_of(deployment.status.conditions, PROGRESSING)
    if not has_deadline(deployment) or (known is not None and known.reason == TIMED_OUT):
        return None
    was_paused = known is not None and known.reason == PAUSED
    if deployment.spec.paused == was_paused:
        return None
    if was_paused:
        return condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now)
    return condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)


def condition(kind: str, status: str, reason: str, message: str, now: datetime) -> Condition:
    """Return a condition with the present time."""
    at = format_time(now)
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_update_time=at, last_transition_time=at
    )


def with_reason(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """Return the conditions with `new`, unless its type has the same status and reason already."""
    known = condition_of(conditions, new.type)
    if known is not None and known.status == new.status:
        if known.reason == new.reason:
            return tuple(conditions)
        new = replace(new, last_transition_time=known.last_transition_time)
    return (*without(conditions, new.type), new)


def without(conditions: Iterable[Condition], kind: str) -> tuple[Condition, ...]:
    """Return the conditions of other types."""
    return tuple(one for one in conditions if one.type != kind)
