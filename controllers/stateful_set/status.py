"""The status of a stateful set; pure."""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from controller_manager.common.api.apps import ROLLING_UPDATE, StatefulSet, StatefulSetStatus
from controller_manager.common.api.core import Pod

from ..shared.pods import is_available, until_next_available
from .decide import is_running
from .identity import revision_of
from .revisions import Recorded


def status_of(owner: StatefulSet, pods: Iterable[Pod], recorded: Recorded, now: datetime) -> StatefulSetStatus:
    """Return the status of a set with these pods, including those just deleted.

    Once all pods are updated and ready, the update revision becomes the current one.
    """
    pods = list(pods)
    running = [pod for pod in pods if is_running(pod)]
    revisions = [revision_of(pod) for pod in pods if pod.metadata.deletion_timestamp is None]
    status = replace(
        owner.status,
        replicas=len(pods),
        ready_replicas=len(running),
        available_replicas=sum(is_available(pod, owner.spec.min_ready_seconds, now) for pod in running),
        current_replicas=revisions.count(recorded.current),
        updated_replicas=revisions.count(recorded.update),
        current_revision=recorded.current,
        update_revision=recorded.update,
        collision_count=recorded.collisions,
        observed_generation=owner.metadata.generation,
    )
    numbers = {status.replicas, status.ready_replicas, status.updated_replicas, owner.spec.replicas}
    if owner.spec.update_strategy.type == ROLLING_UPDATE and len(numbers) == 1:
        return replace(status, current_replicas=status.updated_replicas, current_revision=recorded.update)
    return status


def next_look(owner: StatefulSet, pods: Iterable[Pod], now: datetime) -> float | None:
    """Return the seconds until the next ready pod becomes available, or None if all are."""
    return until_next_available(filter(is_running, pods), owner.spec.min_ready_seconds, now)
