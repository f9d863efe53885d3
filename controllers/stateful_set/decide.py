"""The actions of one sync of a stateful set; pure.

Pods are handled in two groups: ordinals within the replicas, ascending, then surplus ordinals, descending.
OrderedReady stops at the first pod that it has to wait for. Parallel does not wait.

ordinal within the replicas                    action   OrderedReady waits
has ended, not being deleted                   DELETE   yes
missing, a claim is deleted with the last pod  none     yes
missing                                        CREATE   yes
pending, claims are missing or not owned       REPAIR   yes
  as the policy says
not available, or being deleted                none     yes
identity, volumes or claim owners differ       REPAIR   no
otherwise                                      none     no

surplus ordinal                                action   OrderedReady waits
owners of its claims differ from the policy    REPAIR   no
being deleted                                  none     yes
not available, not ended, not the lowest such  none     yes
otherwise                                      DELETE   yes

If nothing has to be waited for, one step of the update follows (`_update`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from controller_manager.common.api.apps import ON_DELETE, PARALLEL, RollingUpdateStatefulSet, StatefulSet
from controller_manager.common.api.core import Pod, is_pod_ready, is_pod_terminal

from ..shared.int_or_percent import part_of
from ..shared.pods import is_available
from .claims import Find, claims_to_correct, is_any_missing, is_any_stale
from .identity import identity_patch, ordinal_of, ordinals, revision_of

# Maximum number of pods that one sync creates.
BURST = 500


class PodVerb(Enum):
    """The action on one pod."""

    CREATE = auto()
    """Create the missing claims, then the pod."""
    DELETE = auto()
    REPAIR = auto()
    """Correct claims, identity and volumes. For a surplus pod only the owners of its claims are corrected."""


class PodAction(NamedTuple):
    """An action on the pod of an ordinal. `pod` is None if it does not exist."""

    action: PodVerb
    ordinal: int
    pod: Pod | None = None


# Actions that may run in parallel, unless the set is ordered.
PodActions = Sequence[PodAction]


class StatefulSetState(msgspec.Struct, frozen=True):
    """A stateful set, its pods by ordinal, a lookup of its claims, and the name of its update revision.

    `limits` enables maxUnavailable in updates (KEP-961).
    """

    owner: StatefulSet
    pods: Mapping[int, Pod]
    find: Find
    revision: str
    now: datetime
    limits: bool = False

    @property
    def ordered(self) -> bool:
        """Return whether pods are created and deleted one at a time."""
        return self.owner.spec.pod_management_policy != PARALLEL

    def available(self, ordinal: int) -> bool:
        """Return whether the pod of an ordinal is available and not being deleted."""
        pod = self.pods.get(ordinal)
        return (
            pod is not None
            and is_running(pod)
            and is_available(pod, self.owner.spec.min_ready_seconds, self.now)
            and pod.metadata.deletion_timestamp is None
        )

    @property
    def unavailable(self) -> int:
        """Return the number of desired pods that are not available."""
        return self.owner.spec.replicas - sum(one in ordinals(self.owner) and self.available(one) for one in self.pods)


def is_running(pod: Pod) -> bool:
    """Return whether a pod runs and is ready."""
    return pod.status.phase == "Running" and is_pod_ready(pod)


def by_ordinal(owner: StatefulSet, pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return the pods of a set by ordinal."""
    found = ((ordinal_of(owner, pod), pod) for pod in pods)
    return {ordinal: pod for ordinal, pod in found if ordinal is not None}


def decide(seen: StatefulSetState) -> Sequence[PodActions]:
    """Return the actions of a sync in rows. A row starts when the previous one is done without errors."""
    if seen.owner.metadata.deletion_timestamp is not None:
        return ()
    staying, waits = _staying(seen)
    if waits:
        return (staying,)
    surplus = sorted((one for one in seen.pods if one not in ordinals(seen.owner)), reverse=True)
    repairs = [PodAction(PodVerb.REPAIR, one, seen.pods[one]) for one in surplus if _has_wrong_owners(seen, one)]
    deletions = [PodAction(PodVerb.DELETE, one, seen.pods[one]) for one in _deletable(seen, surplus)]
    if seen.ordered and surplus:
        return (staying, repairs, deletions)
    return (staying, repairs, deletions, list(_update(seen, staying)))


def max_unavailable(owner: StatefulSet) -> int:
    """Return how many pods may be unavailable in an update."""
    rolling = owner.spec.update_strategy.rolling_update
    given = rolling.max_unavailable if rolling is not None else None
    return 1 if given is None else max(1, part_of(owner.spec.replicas, given, round_up=False))


def _staying(seen: StatefulSetState) -> tuple[PodActions, bool]:
    """Return the actions on pods within the replicas, and whether the sync stops after them."""
    actions: list[PodAction] = []
    created = 0
    for ordinal in ordinals(seen.owner):
        action, waits = _action_on(seen, ordinal)
        if action is not None:
            actions.append(PodAction(action, ordinal, seen.pods.get(ordinal)))
            created += action is PodVerb.CREATE
        if (waits and seen.ordered) or created == BURST:
            return actions, True
    return actions, False


def _action_on(seen: StatefulSetState, ordinal: int) -> tuple[PodVerb | None, bool]:
    """Return the action on a pod within the replicas, and whether OrderedReady waits for the pod."""
    pod, owner = seen.pods.get(ordinal), seen.owner
    if pod is None:
        return None if is_any_stale(owner, ordinal, seen.find) else PodVerb.CREATE, True
    if is_pod_terminal(pod):
        return PodVerb.DELETE if pod.metadata.deletion_timestamp is None else None, True
    wrong_owners = _has_wrong_owners(seen, ordinal)
    if pod.status.phase == "Pending" and (wrong_owners or is_any_missing(owner, ordinal, seen.find)):
        return PodVerb.REPAIR, True
    available = seen.available(ordinal)
    if not available and seen.ordered:
        return None, True
    is_correct = not wrong_owners and not identity_patch(owner, pod, ordinal)
    return None if is_correct else PodVerb.REPAIR, not available


def _has_wrong_owners(seen: StatefulSetState, ordinal: int) -> bool:
    """Return whether a claim of the pod has other owners than the policy demands."""
    return any(claims_to_correct(seen.owner, seen.pods[ordinal], ordinal, seen.find))


def _deletable(seen: StatefulSetState, surplus: Sequence[int]) -> Iterator[int]:
    """Yield the surplus ordinals to delete now, highest first."""
    if not seen.ordered:
        yield from (one for one in surplus if seen.pods[one].metadata.deletion_timestamp is None)
        return
    if not surplus:
        return
    highest, pod = surplus[0], seen.pods[surplus[0]]
    if pod.metadata.deletion_timestamp is not None:
        return
    lowest_unavailable = next((one for one in reversed(surplus) if not seen.available(one)), None)
    if highest == lowest_unavailable or seen.available(highest) or is_pod_terminal(pod):
        yield highest


def _update(seen: StatefulSetState, staying: PodActions) -> Iterator[PodAction]:
    """Yield the outdated pods to delete, highest ordinal first.

    By default one pod is deleted at a time, and the update waits at the first unavailable pod. An outdated pod is
    deleted even if it is unavailable. With `limits` the number is maxUnavailable minus the unavailable pods.
    """
    strategy = seen.owner.spec.update_strategy
    if strategy.type == ON_DELETE:
        return
    rolling, desired = strategy.rolling_update or RollingUpdateStatefulSet(), ordinals(seen.owner)
    updatable = range(desired.start + rolling.partition, desired.stop)
    busy = {action.ordinal for action in staying if action.action is not PodVerb.REPAIR}
    outdated = _outdated_within_limit if seen.limits else _next_outdated
    for ordinal in outdated(seen, updatable, busy):
        yield PodAction(PodVerb.DELETE, ordinal, seen.pods[ordinal])


def _outdated_within_limit(seen: StatefulSetState, updatable: range, busy: Collection[int]) -> Sequence[int]:
    """Return the outdated ordinals to delete, so that at most maxUnavailable pods are unavailable."""
    idle = (one for one in sorted(seen.pods, reverse=True) if one in updatable and one not in busy)
    outdated = [one for one in idle if _is_outdated(seen, one)]
    return outdated[: max(0, max_unavailable(seen.owner) - seen.unavailable)]


def _next_outdated(seen: StatefulSetState, updatable: range, busy: Collection[int]) -> Sequence[int]:
    """Return the highest outdated ordinal, or nothing if a pod above it is missing, busy or unavailable."""
    for ordinal in reversed(updatable):
        if ordinal in busy or ordinal not in seen.pods:
            return ()
        if _is_outdated(seen, ordinal):
            return (ordinal,)
        if not seen.available(ordinal):
            return ()
    return ()


def _is_outdated(seen: StatefulSetState, ordinal: int) -> bool:
    pod = seen.pods[ordinal]
    return revision_of(pod) != seen.revision and pod.metadata.deletion_timestamp is None
