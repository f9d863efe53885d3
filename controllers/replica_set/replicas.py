"""What a replica set decides: how many pods are missing, which are too many, and what its status says; pure."""

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
# Pods that one look creates or deletes at most.
BURST = 500


class ReplicaChanges(NamedTuple):
    """How many pods to create, or which ones to delete."""

    create: int = 0
    delete: Sequence[Pod] = ()


def decide(
    owner: Replicated, active: Sequence[Pod], related: Callable[[], Iterable[Pod]], now: datetime, burst: int = BURST
) -> ReplicaChanges:
    """Return what brings the `active` pods of `owner` to the number that it says; `related` is as in `first_to_go`."""
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
    """Return the status of `owner`; `failure` is why pods could not be created or deleted, if that is so."""
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
    """Return the seconds until the next pod that is ready becomes available; None if all of them are."""
    min_ready = owner.spec.min_ready_seconds
    if min_ready <= 0 or status.ready_replicas == status.available_replicas:
        return None
    # That there is no time when a pod became ready is no reason not to look again.
    return until_next_available(active, min_ready, now) or float(min_ready)


def _conditions(
    owner: Replicated, active: int, failure: ApiError | OSError | None, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions; a failure that is told already stays as it is told."""
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
