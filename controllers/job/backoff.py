"""The delay before a job replaces a failed pod: 10 s, doubled per consecutive failure, at most 10 min; pure.

The consecutive failures of a job are kept in memory. With a backoff limit per index they are annotations of the pods.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import ContainerStatus, Pod
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import time_of

FIRST, LONGEST = 10.0, 600.0

# Annotations of a pod: the previous failures of its index that count, and those that are ignored.
INDEX_FAILURES = f"batch.{PLATFORM_DOMAIN}/job-index-failure-count"
INDEX_IGNORED = f"batch.{PLATFORM_DOMAIN}/job-index-ignored-failure-count"

_COUNT = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_LIMIT = 1 << 31
_STEPS = 10  # doublings after which the longest is certainly reached


class JobBackoff(NamedTuple):
    """The failures since the last success, and the time of the last one in seconds since the epoch."""

    failures: int = 0
    last: float = 0.0

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> "JobBackoff":
        """Return the backoff after these pods have finished."""
        times = sorted(map(finished_at, failed))
        if not succeeded:
            return JobBackoff(self.failures + len(times), times[-1]) if times else self
        success = max(map(finished_at, succeeded))
        later = [time for time in times if time > success]
        return JobBackoff(len(later), later[-1]) if later else JobBackoff()

    def remaining(self, now: float) -> float:
        """Return the seconds until a failed pod may be replaced."""
        if not self.failures:
            return 0.0
        pause = min(FIRST * (1 << min(self.failures - 1, _STEPS)), LONGEST)
        return max(0.0, self.last + pause - now)


NO_FAILURE = JobBackoff()


def backoff_of_index(last: Pod | None) -> JobBackoff:
    """Return the backoff of an index. `last` is its last failed pod, or None."""
    if last is None:
        return NO_FAILURE
    failures = failures_before(last, INDEX_FAILURES) + failures_before(last, INDEX_IGNORED) + 1
    return JobBackoff(failures, finished_at(last))


def failures_before(pod: Pod, annotation: str) -> int:
    """Return the number in an annotation of a pod; 0 if it is missing or not a non-negative 32-bit integer."""
    text = (pod.metadata.annotations or {}).get(annotation, "")
    count = int(text) if _COUNT.fullmatch(text) else 0
    return count if 0 <= count < _LIMIT else 0


def finished_at(pod: Pod) -> float:
    """Return when a pod finished, in seconds since the epoch.

    This is when its containers ended, else when it became unready, else when it was deleted, else when it was created.
    """
    sidecars = {one.name for one in pod.spec.init_containers if one.restart_policy == "Always"}
    last = [one for one in pod.status.init_container_statuses if one.name in sidecars]
    ended = _ended(pod.status.container_statuses) if not last else _both(_ended(pod.status.container_statuses), last)
    if ended:
        return ended
    ready = condition_of(pod.status.conditions, "Ready")
    unready = _seconds(ready.last_transition_time) if ready is not None and ready.status == "False" else 0.0
    deleted = _seconds(pod.metadata.deletion_timestamp)
    if deleted:
        deleted -= pod.metadata.deletion_grace_period_seconds or 0
    return unready or deleted or _seconds(pod.metadata.creation_timestamp)


def _both(ended: float, sidecars: Iterable[ContainerStatus]) -> float:
    """Return when the containers and the sidecars ended; 0 if one has not."""
    last = _ended(sidecars)
    return max(ended, last) if last else 0.0


def _ended(statuses: Iterable[ContainerStatus]) -> float:
    """Return when the last container ended; 0 if one has not, or if there are no containers."""
    ends = [_seconds(one.state.terminated.finished_at) if one.state.terminated else 0.0 for one in statuses]
    return max(ends) if ends and all(ends) else 0.0


def _seconds(text: str | None) -> float:
    moment = time_of(text)
    return moment.timestamp() if moment is not None else 0.0
