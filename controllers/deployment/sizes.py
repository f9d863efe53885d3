"""The next sizes of the replica sets of a deployment; pure.

strategy and state                                                    next sizes
RollingUpdate, newest larger than the deployment                      newest: as the deployment
RollingUpdate, newest smaller, surge left                             newest: larger by what is left
RollingUpdate, otherwise: pods above the minimum of available pods    older: smaller by that number;
                                                                      unavailable pods and oldest sets first
RollingUpdate, otherwise: status of a set with pods is outdated       nothing, until it is up to date
Recreate                                                              older: 0; once their pods have ended,
                                                                      newest: as the deployment
scaled or paused: only one set has pods, or none                      that set, or newest: as the deployment
scaled or paused: newest has all pods, and they are available         older: 0
scaled or paused, RollingUpdate: several have pods                    each in proportion, including the surge
scaled, Recreate: several have pods                                   as if it had not been scaled
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controller_manager.common.api.apps import ROLLING_UPDATE, Deployment, ReplicaSet

from .limits import limits_of
from .revisions import DESIRED, MAXIMUM, by_age, number_in


class Size(NamedTuple):
    """The new number of pods of a replica set."""

    replica_set: ReplicaSet
    replicas: int


def rolling(deployment: Deployment, newest: ReplicaSet, old: Sequence[ReplicaSet]) -> list[Size]:
    """Return the next step of a rolling update; empty if it has to wait or is complete."""
    size = newest_size(deployment, newest, old)
    if size != newest.spec.replicas:
        return [Size(newest, size)]
    return _smaller(deployment, newest, [one for one in by_age(old) if one.spec.replicas > 0])


def newest_size(deployment: Deployment, newest: ReplicaSet | None, old: Sequence[ReplicaSet]) -> int:
    """Return the size of the newest replica set (None if it does not exist yet) within replicas and surge.

    Pods that a set has yet to delete count against the surge.
    """
    wanted = deployment.spec.replicas
    if deployment.spec.strategy.type != ROLLING_UPDATE:
        return wanted
    every = [*old, *([newest] if newest is not None else [])]
    now = newest.spec.replicas if newest is not None else 0
    taken = sum(max(one.spec.replicas, one.status.replicas) for one in every)
    room = wanted + limits_of(deployment).surge - taken if is_known(every) else 0
    return min(wanted, now + max(0, room))


def is_known(replica_sets: Iterable[ReplicaSet]) -> bool:
    """Return whether the status of each set is up to date. An outdated status may not count pods being created or
    deleted.
    """
    return all(one.status.observed_generation >= one.metadata.generation for one in replica_sets)


def have_ended(replica_sets: Sequence[ReplicaSet]) -> bool:
    """Return whether the sets have no pods left, according to their status."""
    statuses = [one.status for one in replica_sets]
    return is_known(replica_sets) and not any(one.replicas or one.terminating_replicas for one in statuses)


def _smaller(deployment: Deployment, newest: ReplicaSet, active: Sequence[ReplicaSet]) -> list[Size]:
    """Return the reduced sizes of the older sets that keep the minimum of available pods."""
    if not is_known(one for one in (newest, *active) if one.spec.replicas > 0):
        return []
    least = deployment.spec.replicas - limits_of(deployment).unavailable
    missing = newest.spec.replicas - _available(newest)
    spare = _total(active) + newest.spec.replicas - least - missing
    if spare <= 0:
        return []
    sizes = [one.spec.replicas for one in active]
    sizes = _less(sizes, [one.spec.replicas - _available(one) for one in active], spare)
    sizes = _less(sizes, sizes, _available(newest) + sum(map(_available, active)) - least)
    return [Size(one, size) for one, size in zip(active, sizes, strict=True) if size != one.spec.replicas]


def _available(one: ReplicaSet) -> int:
    """Return the number of available pods, without surplus ones."""
    return min(one.status.available_replicas, one.spec.replicas)


def _less(sizes: Sequence[int], most: Sequence[int], count: int) -> list[int]:
    """Return `sizes` reduced by `count` in total, starting with the first, each by at most its value in `most`."""
    found: list[int] = []
    for size, at_most in zip(sizes, most, strict=True):
        taken = max(0, min(at_most, count))
        found.append(size - taken)
        count -= taken
    return found


def none_of(old: Iterable[ReplicaSet]) -> list[Size]:
    """Return size 0 for all sets that have pods."""
    return [Size(one, 0) for one in old if one.spec.replicas > 0]


def is_scaled(deployment: Deployment, replica_sets: Iterable[ReplicaSet]) -> bool:
    """Return whether the deployment was scaled since the annotations of its sets with pods were written.

    With Recreate, several sets with pods are scaled down anyway and need no proportional share.
    """
    active = [one for one in replica_sets if one.spec.replicas > 0]
    if len(active) > 1 and deployment.spec.strategy.type != ROLLING_UPDATE:
        return False
    recorded = (number_in(one, DESIRED) for one in active)
    return any(number is not None and number >= 0 and number != deployment.spec.replicas for number in recorded)


def proportional(deployment: Deployment, newest: ReplicaSet | None, old: Sequence[ReplicaSet]) -> list[Size]:
    """Return the sizes for a deployment that was scaled or is paused. Sets that keep their size may need new
    annotations.
    """
    wanted = deployment.spec.replicas
    every = [*by_age(old), *([newest] if newest is not None else [])]
    active = [one for one in every if one.spec.replicas > 0]
    if len(active) < 2:
        only = active[0] if active else newest or (by_age(old)[-1] if old else None)
        # The set may have the right size but outdated annotations, because other clients can scale it too.
        return [Size(only, wanted)] if only is not None and (only.spec.replicas != wanted or active) else []
    if newest is not None and _is_saturated(deployment, newest):
        return none_of(old)
    return _shares(deployment, active) if deployment.spec.strategy.type == ROLLING_UPDATE else []


def _is_saturated(deployment: Deployment, newest: ReplicaSet) -> bool:
    wanted = deployment.spec.replicas
    return (newest.spec.replicas, number_in(newest, DESIRED), newest.status.available_replicas) == (wanted,) * 3


def _shares(deployment: Deployment, active: Sequence[ReplicaSet]) -> list[Size]:
    """Return the sizes of replica sets, largest first, that use all allowed pods."""
    wanted = deployment.spec.replicas
    most = wanted + limits_of(deployment).surge if wanted > 0 else 0
    more = most - _total(active)
    in_order = by_age(active)
    if more > 0:
        in_order.reverse()
    in_order.sort(key=lambda one: -one.spec.replicas)
    left, sizes = more, []
    for one in in_order:
        share = _share(deployment, one, most) if left else 0
        share = min(share, left) if more > 0 else max(share, left)
        left -= share
        sizes.append(one.spec.replicas + share)
    sizes[0] = max(0, sizes[0] + left)
    return [Size(one, size) for one, size in zip(in_order, sizes, strict=True)]


def _share(deployment: Deployment, one: ReplicaSet, most: int) -> int:
    """Return how many pods a replica set gains or loses in proportion to its size."""
    now = one.spec.replicas
    if deployment.spec.replicas == 0:
        return -now
    recorded = number_in(one, MAXIMUM)
    before = recorded if recorded is not None and recorded > 0 else deployment.status.replicas
    return math.floor(now * most / before + 0.5) - now if before else 0


def _total(replica_sets: Iterable[ReplicaSet]) -> int:
    return sum(one.spec.replicas for one in replica_sets)
