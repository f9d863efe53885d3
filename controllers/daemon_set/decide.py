"""Decides on which nodes a daemon pod is missing and which pods to delete; pure.

One sync either repairs nodes (`_repair`) or continues an update (`_update`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apps import ROLLING_UPDATE, DaemonSet, DaemonSetStatus, RollingUpdateDaemonSet
from controller_manager.common.api.core import Pod, is_pod_ready, is_pod_terminal

from ..shared.int_or_percent import part_of
from ..shared.pods import is_active, is_available, until_next_available
from .placement import Fit, node_of
from .templates import is_updated

FAILED, SUCCEEDED = "Failed", "Succeeded"

Pods = Mapping[str, Sequence[Pod]]


class DaemonSetState(msgspec.Struct, frozen=True):
    """A daemon set, its nodes with their fit, and its pods by node, the preferred pod of a node first.

    `hash_` and `generation` are those of the present template.
    """

    daemon_set: DaemonSet
    fits: Mapping[str, Fit]
    pods: Pods
    hash_: str
    generation: str
    now: datetime

    def available(self, pod: Pod) -> bool:
        """Return whether a pod is available."""
        return is_available(pod, self.daemon_set.spec.min_ready_seconds, self.now)

    def updated(self, pod: Pod) -> bool:
        """Return whether a pod has the present template."""
        return is_updated(pod, self.hash_, self.generation)

    @property
    def wanted(self) -> int:
        """Return the number of nodes that should have a pod."""
        return sum(fit is Fit.RUN for fit in self.fits.values())


class DaemonPods(NamedTuple):
    """The nodes that get a pod, and the pods to delete, in this order.

    `seconds` is the time until a failed pod in backoff may be deleted.
    """

    create: Sequence[str] = ()
    delete: Sequence[Pod] = ()
    seconds: float | None = None


class UpdateLimits(NamedTuple):
    """Numbers of nodes: that may have a surge pod, and whose pod may be unavailable."""

    surge: int
    unavailable: int


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return pods by target node: bound ones first, then the oldest.

    Terminating pods that have ended, and pods without a target node, are omitted.
    """
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        name = node_of(pod)
        if name and not (is_pod_terminal(pod) and pod.metadata.deletion_timestamp is not None):
            found.setdefault(name, []).append(pod)
    for some in found.values():
        if len(some) > 1:
            some.sort(key=_rank)
    return found


def _rank(pod: Pod) -> tuple[bool, str, str]:
    return not pod.spec.node_name, pod.metadata.creation_timestamp or "", pod.metadata.name


def limits_of(daemon_set: DaemonSet, wanted: int) -> UpdateLimits:
    """Return the limits of a rolling update. Percentages are of the nodes that should have a pod, rounded up.

    If both are 0, one pod may be unavailable, because otherwise the update would stop.
    """
    rolling = daemon_set.spec.update_strategy.rolling_update or RollingUpdateDaemonSet()
    surge = part_of(wanted, rolling.max_surge, round_up=True)
    unavailable = part_of(wanted, rolling.max_unavailable, round_up=True)
    return UpdateLimits(surge, 1 if wanted and not (surge or unavailable) else unavailable)


def decide(seen: DaemonSetState, wait: Callable[[str], float]) -> DaemonPods:
    """Return the changes of a sync. `wait(node)` returns the remaining backoff of failed pods on that node."""
    found = _repair(seen, wait)
    if found.create or found.delete or not _is_rolling(seen):
        return found
    limits = limits_of(seen.daemon_set, seen.wanted)
    if limits.surge:
        return DaemonPods(*_surge(seen, limits.surge), found.seconds)
    return DaemonPods((), _replace(seen, limits.unavailable), found.seconds)


def _is_rolling(seen: DaemonSetState) -> bool:
    """Return whether a rolling update has outdated pods to replace."""
    rolls = seen.daemon_set.spec.update_strategy.type == ROLLING_UPDATE
    return rolls and not all(seen.updated(pod) for pods in seen.pods.values() for pod in pods)


# On a node that should have a pod or may keep it:
#   none, not even a terminating one            create one, if it should have one
#   failed                                      delete it, unless it is in backoff
#   succeeded                                   delete it
#   more than one remains, without surge        delete all but the first
#   more than one remains, with surge           delete all but the first of each, updated and outdated; and the
#                                               outdated one, if it is not ready or the updated one is available
#   none remains, with surge                    create one, if it should have one, and no failed one is in backoff
# On a node that should have none: delete all. Of a deleted node: delete pods that were never bound, since no other
# controller does.


def _repair(seen: DaemonSetState, wait: Callable[[str], float]) -> DaemonPods:
    create: list[str] = []
    delete: list[Pod] = []
    seconds: list[float] = []
    surges = _allows_surge(seen.daemon_set)
    for node, fit in seen.fits.items():
        pods = seen.pods.get(node)
        if pods is None:
            if fit is Fit.RUN:
                create.append(node)
        elif fit is Fit.NONE:
            delete += (pod for pod in pods if pod.metadata.deletion_timestamp is None)
        elif len(pods) > 1 or not is_active(pods[0]):  # rare
            found = _repair_node(seen, node, pods, wait, surges=surges)
            create += found.create
            delete += found.delete
            seconds += [found.seconds] if found.seconds is not None else []
    delete += _unbound_pods_of_deleted_nodes(seen)
    return DaemonPods(create, delete, min(seconds, default=None))


def _repair_node(
    seen: DaemonSetState, node: str, pods: Sequence[Pod], wait: Callable[[str], float], *, surges: bool
) -> DaemonPods:
    """Return the changes for a node with several pods, or with a finished or terminating one."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    failed = [pod for pod in alive if pod.status.phase == FAILED]
    running = [pod for pod in alive if not is_pod_terminal(pod)]
    left = wait(node) if failed else 0.0
    delete = [] if left > 0 else [*failed]
    delete += (pod for pod in alive if pod.status.phase == SUCCEEDED)
    if len(running) > 1:
        # Keep the first: an available pod, else a ready one, if there is one.
        running.sort(key=lambda pod: (not seen.available(pod), not is_pod_ready(pod)))
        delete += _surplus(seen, running) if surges else running[1:]
    needs_pod = surges and not running and left <= 0 and seen.fits[node] is Fit.RUN
    return DaemonPods([node] if needs_pod else [], delete, left if left > 0 else None)


def _allows_surge(daemon_set: DaemonSet) -> bool:
    return daemon_set.spec.update_strategy.type == ROLLING_UPDATE and limits_of(daemon_set, 1).surge > 0


def _surplus(seen: DaemonSetState, running: Sequence[Pod]) -> Iterator[Pod]:
    """Yield the surplus pods of a node during a surge."""
    updated = [pod for pod in running if seen.updated(pod)]
    outdated = [pod for pod in running if not seen.updated(pod)]
    yield from (*updated[1:], *outdated[1:])
    if updated and outdated and (not is_pod_ready(outdated[0]) or seen.available(updated[0])):
        yield outdated[0]


def _unbound_pods_of_deleted_nodes(seen: DaemonSetState) -> Iterator[Pod]:
    """Yield the pods that were never bound and whose node was deleted."""
    for node, pods in seen.pods.items():
        if node not in seen.fits:
            yield from (pod for pod in pods if not pod.spec.node_name and pod.metadata.deletion_timestamp is None)


class _Pair(NamedTuple):
    """The pods of a node that are not terminating: the updated and the outdated one."""

    updated: Pod | None
    outdated: Pod | None


def _pairs(seen: DaemonSetState) -> Iterator[tuple[str, _Pair | None]]:
    """Yield each node that should have or may keep a pod, with its pods; None if it has more than one of either."""
    for node, fit in seen.fits.items():
        pods = seen.pods.get(node, ())
        if fit is Fit.NONE or (fit is Fit.STAY and not pods):
            continue
        alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        updated = [pod for pod in alive if seen.updated(pod)]
        outdated = [pod for pod in alive if not seen.updated(pod)]
        is_pair = len(updated) <= 1 and len(outdated) <= 1
        yield node, _Pair(next(iter(updated), None), next(iter(outdated), None)) if is_pair else None


# Without surge. A node counts as unavailable unless it has exactly one pod, which is available. An outdated pod that is
#   not available   is deleted
#   available       is deleted while fewer nodes than the limit are unavailable


def _replace(seen: DaemonSetState, limit: int) -> Sequence[Pod]:
    """Return the outdated pods to delete."""
    unavailable_pods: list[Pod] = []
    available_pods: list[Pod] = []
    unavailable = 0
    for _, pair in _pairs(seen):
        if pair is None or (pair.updated is None) is (pair.outdated is None):
            unavailable += 1
        elif pair.outdated is None:
            unavailable += pair.updated is not None and not seen.available(pair.updated)
        elif seen.available(pair.outdated):
            available_pods.append(pair.outdated)
        else:
            unavailable_pods.append(pair.outdated)
            unavailable += 1
    return (*unavailable_pods, *available_pods[: max(0, limit - unavailable)])


# With surge. On a node with only an outdated pod, which
#   is not available    an updated pod is created beside it
#   is available        the same, while fewer nodes than the limit have two pods
#   may only stay       it is deleted if unavailable, or if there are more pods than eligible nodes
# With both, the outdated pod is deleted when the updated one is available.


def _surge(seen: DaemonSetState, limit: int) -> tuple[Sequence[str], Sequence[Pod]]:
    """Return the nodes that get an updated pod, and the outdated pods to delete."""
    without_available: list[str] = []
    with_available: list[str] = []
    delete: list[Pod] = []
    staying: list[Pod] = []
    surging = available = 0
    for node, pair in _pairs(seen):
        if pair is None:
            surging += 1
            continue
        first = pair.outdated or pair.updated
        available += first is not None and seen.available(first)
        if pair.outdated is None:
            continue
        still_available = seen.available(pair.outdated)
        if pair.updated is not None and seen.available(pair.updated):
            delete.append(pair.outdated)
        elif pair.updated is not None:
            surging += 1
        elif seen.fits[node] is Fit.STAY:
            (staying if still_available else delete).append(pair.outdated)
        else:
            (with_available if still_available else without_available).append(node)
    delete += staying[: max(0, available - seen.wanted)]
    return (*without_available, *with_available[: max(0, limit - surging)]), delete


def status_of(seen: DaemonSetState) -> DaemonSetStatus:
    """Return the status. The first of several pods on a node counts."""
    wanted = current = ready = updated = available = misscheduled = 0
    for node, fit in seen.fits.items():
        pods = seen.pods.get(node)
        if fit is not Fit.RUN:
            misscheduled += pods is not None
            continue
        wanted += 1
        if pods is not None:
            current += 1
            updated += seen.updated(pods[0])
            if is_pod_ready(pods[0]):
                ready += 1
                available += seen.available(pods[0])
    return replace(
        seen.daemon_set.status,
        desired_number_scheduled=wanted,
        current_number_scheduled=current,
        number_misscheduled=misscheduled,
        number_ready=ready,
        updated_number_scheduled=updated,
        number_available=available,
        number_unavailable=wanted - available,
        observed_generation=seen.daemon_set.metadata.generation,
    )


def next_look(seen: DaemonSetState) -> float | None:
    """Return the seconds until the next ready pod becomes available, or None if all are."""
    pods = chain.from_iterable(seen.pods.values())
    return until_next_available(pods, seen.daemon_set.spec.min_ready_seconds, seen.now)
