"""Decides how many pods of a replica set to create, which ones to delete, and its status; pure."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.apps import ReplicaSet, ReplicaSetStatus, ReplicationController
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.core import Pod, is_pod_ready
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.timestamps import format_time
from controller_manager.framework.controller.pod_control import FAILED_CREATE, FAILED_DELETE

from ..shared.pod_ranking import first_to_go
from ..shared.pods import is_available, until_next_available

Replicated = ReplicaSet | ReplicationController

REPLICA_FAILURE = "ReplicaFailure"
# Maximum number of pods that one sync creates or deletes.
BURST = 500


class ReplicaChanges(NamedTuple):
    """How many pods to create, or which ones to delete."""

    create: int = 0
    delete: Sequence[Pod] = ()


def decide(
    owner: Replicated, active: Sequence[Pod], related: Callable[[], Iterable[Pod]], now: datetime, burst: int = BURST
) -> ReplicaChanges:
    """Return the changes that bring the `active` pods of `owner` to its replicas; `related` is as in `first_to_go`."""
    if owner.metadata.deletion_timestamp is not None:
        return ReplicaChanges()
    surplus = len(active) - owner.spec.replicas
    if surplus <= 0:
        return ReplicaChanges(create=min(-surplus, burst))
    count = min(surplus, burst)
    return ReplicaChanges(delete=first_to_go(active, count, related() if count < len(active) else (), now))


def status_of(
    owner: Replicated,
    active: Sequence[Pod],
    terminating: int | None,
    failure: ApiError | OSError | None,
    now: datetime,
) -> ReplicaSetStatus:
    """Return the status of `owner`. `failure` is the error of a create or delete, if any."""
    labels = (owner.spec.template.metadata.labels or {}).items()
    return replace(
        owner.status,
        replicas=len(active),
        fully_labeled_replicas=sum(1 for pod in active if labels <= (pod.metadata.labels or {}).items()),
        ready_replicas=sum(map(is_pod_ready, active)),
        available_replicas=sum(is_available(pod, owner.spec.min_ready_seconds, now) for pod in active),
        terminating_replicas=terminating,
        observed_generation=owner.metadata.generation,
        conditions=_conditions(owner, len(active), failure, now),
    )


def next_look(owner: Replicated, active: Iterable[Pod], status: ReplicaSetStatus, now: datetime) -> float | None:
    """Return the seconds until the next ready pod becomes available, or None if all are."""
    min_ready = owner.spec.min_ready_seconds
    if min_ready <= 0 or status.ready_replicas == status.available_replicas:
        return None
    # Requeue even if the Ready condition has no transition time.
    return until_next_available(active, min_ready, now) or float(min_ready)


def _conditions(
    owner: Replicated, active: int, failure: ApiError | OSError | None, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions. An existing failure condition is kept as it is."""
    known = owner.status.conditions
    if failure is None:
        return tuple(one for one in known if one.type != REPLICA_FAILURE)
    if condition_of(known, REPLICA_FAILURE) is not None:
        return known
    new = Condition(
        type=REPLICA_FAILURE,
        status="True",
        last_transition_time=format_time(now),
        reason=FAILED_DELETE if active > owner.spec.replicas else FAILED_CREATE,
        message=failure.message if isinstance(failure, ApiError) else str(failure),
    )
    return (*known, new)
