"""Ranks the pods of an owner that has too many; pure.

For replica sets (`first_to_go`) the first difference between two pods decides. The pod listed here is deleted first:

1. it is not bound to a node                 5. more active pods of the same workload are on its node
2. it is pending; then in an unknown phase   6. it has been ready for a shorter time (*)
3. it is not ready                           7. its containers were restarted more often; then its sidecars
4. its deletion cost is lower                8. it is younger (*)

(*) Times are compared by the logarithm of their age. Between equal ages the lower uid is deleted first, which is as
good as random (KEP-2185). Pods without a time are deleted first. If times are equal to the second,
kube-controller-manager depends on the order in its cache. Here the lower uid is deleted first.

Deletion costs are those of KEP-2255. Pods of jobs (`progress_of`) are ranked in the same way, but without rules 4 and
5 and with exact times.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cmp_to_key
from typing import NamedTuple

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import ContainerStatus, Pod
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import nonzero_time, time_of

from .pods import is_active

DELETION_COST = f"controller.{PLATFORM_DOMAIN}/pod-deletion-cost"

_COST = re.compile(r"0|-[0-9]+|[1-9][0-9]*", re.ASCII)
_LIMIT = 1 << 31
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def first_to_go(pods: Sequence[Pod], count: int, related: Iterable[Pod], now: datetime) -> Sequence[Pod]:
    """Return the `count` pods that are deleted first.

    `related` are all pods of the workload, including those of its other owners. They determine how many pods each node
    has.
    """
    if count >= len(pods):
        return pods
    pods_per_node = Counter(pod.spec.node_name for pod in related if is_active(pod))
    by_uid = sorted(pods, key=lambda pod: pod.metadata.uid)  # of equal pods the one with the lower uid is deleted
    ranked = sorted((_rank(pod, pods_per_node[pod.spec.node_name], now) for pod in by_uid), key=cmp_to_key(_compare))
    return [one.pod for one in ranked[:count]]


def progress_of(pod: Pod) -> tuple[bool, int, bool, float, tuple[int, int], float]:
    """Return a sort key that puts the pods of a job with the least progress, then the youngest, first."""
    condition = condition_of(pod.status.conditions, "Ready")
    ready = condition is not None and condition.status == "True"
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        ready,
        _later_first(condition.last_transition_time if condition is not None and ready else None),
        _restarts(pod),
        _later_first(pod.metadata.creation_timestamp),
    )


def _later_first(text: str | None) -> float:
    """Return a number that is lower for later times, and lowest if the time is missing."""
    moment = time_of(text)
    return -moment.timestamp() if moment is not None else -math.inf


class _Age(NamedTuple):
    """A time, and the logarithm of its age. `time` is empty if it is missing."""

    time: str
    rank: int


class _Rank(NamedTuple):
    """The sort criteria of a pod. Lower tuples are deleted first."""

    pod: Pod
    early: tuple[bool, int, bool, int, int]
    ready: _Age | None
    restarts: tuple[int, int]
    created: _Age


def _rank(pod: Pod, pods_on_node: int, now: datetime) -> _Rank:
    condition = condition_of(pod.status.conditions, "Ready")
    ready = condition is not None and condition.status == "True"
    since = condition.last_transition_time if condition is not None else None
    return _Rank(
        pod,
        (bool(pod.spec.node_name), _PHASES.get(pod.status.phase, 0), ready, _deletion_cost(pod), -pods_on_node),
        _age(since, now) if ready else None,
        _restarts(pod),
        _age(pod.metadata.creation_timestamp, now),
    )


def _compare(one: _Rank, other: _Rank) -> int:
    """Return a negative number if `one` is deleted before `other`."""
    if one.early != other.early:
        return -1 if one.early < other.early else 1
    if one.ready is not None and other.ready is not None and one.ready.time != other.ready.time:
        return _younger(one, one.ready, other, other.ready)
    if one.restarts != other.restarts:
        return -1 if one.restarts < other.restarts else 1
    return 0 if one.created.time == other.created.time else _younger(one, one.created, other, other.created)


def _younger(one: _Rank, age: _Age, other: _Rank, other_age: _Age) -> int:
    if not (age.time and other_age.time):
        return 1 if age.time else -1
    if age.rank != other_age.rank:
        return age.rank - other_age.rank
    return -1 if one.pod.metadata.uid < other.pod.metadata.uid else 1


def _age(text: str | None, now: datetime) -> _Age:
    known = nonzero_time(text)
    moment = time_of(known)
    if moment is None:
        return _Age("", -1)
    passed = (now - moment).total_seconds() * 1e9
    return _Age(known, int(math.log2(passed)) if passed >= 1 else -1)


def _deletion_cost(pod: Pod) -> int:
    """Return the deletion cost of the annotation; 0 if it is missing or not a canonical 32-bit integer."""
    text = (pod.metadata.annotations or {}).get(DELETION_COST, "0")
    cost = int(text) if len(text) < 20 and _COST.fullmatch(text) else 0
    return cost if -_LIMIT <= cost < _LIMIT else 0


def _restarts(pod: Pod) -> tuple[int, int]:
    """Return the highest restart count of the containers and of the sidecars, negated for sorting."""
    sidecars = {one.name for one in pod.spec.init_containers if one.restart_policy == "Always"}
    sidecar_statuses = [one for one in pod.status.init_container_statuses if one.name in sidecars]
    return -_most(pod.status.container_statuses), -_most(sidecar_statuses)


def _most(statuses: Iterable[ContainerStatus]) -> int:
    return max((one.restart_count for one in statuses), default=0)
