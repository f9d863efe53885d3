"""Decides which nodes are eligible for a daemon set, and which node a pod is for; pure.

name, selector, required affinity   untolerated taints   pod on the node
no match                            any                  delete
match                               NoExecute            delete
match                               NoSchedule only      may stay; none is created
match                               none                 should exist
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache

import msgspec

from controller_manager.common.api.apps import DaemonSet
from controller_manager.common.api.core import Node, Pod, Toleration
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.scheduling import (
    NO_EXECUTE,
    NO_SCHEDULE,
    RequiredNodeAffinity,
    SchedulingDirectives,
    node_of_name,
    untolerated,
)
from controller_manager.framework import TerminalError, key_of


class Fit(Enum):
    """The decision about a node, by the table above."""

    RUN = auto()
    STAY = auto()
    NONE = auto()


def _tolerate(taint: str, effect: str) -> Toleration:
    return Toleration(key=f"node.{PLATFORM_DOMAIN}/{taint}", operator="Exists", effect=effect)


# Tolerations added to all daemon pods, so that they are neither evicted from nor kept off unhealthy nodes.
AUTOMATIC = (
    _tolerate("not-ready", NO_EXECUTE),
    _tolerate("unreachable", NO_EXECUTE),
    _tolerate("disk-pressure", NO_SCHEDULE),
    _tolerate("memory-pressure", NO_SCHEDULE),
    _tolerate("pid-pressure", NO_SCHEDULE),
    _tolerate("unschedulable", NO_SCHEDULE),
)
# Further tolerations of pods on the host network.
AUTOMATIC_ON_HOST_NETWORK = (_tolerate("network-unavailable", NO_SCHEDULE),)

_DIRECTIVES = Decoder(SchedulingDirectives)


def with_automatic(tolerations: Iterable[Toleration], *, host_network: bool) -> Sequence[Toleration]:
    """Return the tolerations of a template and the automatic ones.

    An automatic one replaces an entry with the same key, operator, value and effect.
    """
    found = tuple(tolerations)
    for added in (*AUTOMATIC, *(AUTOMATIC_ON_HOST_NETWORK if host_network else ())):
        replaced = tuple(added if _is_same(one, added) else one for one in found)
        found = replaced if added in replaced else (*found, added)
    return found


def _is_same(one: Toleration, other: Toleration) -> bool:
    return (one.key, one.operator, one.value, one.effect) == (other.key, other.operator, other.value, other.effect)


class Placement:
    """The eligible nodes of a pod template. `compares` enables numeric comparison in tolerations (KEP-5471)."""

    def __init__(self, directives: SchedulingDirectives) -> None:
        self._name = directives.node_name
        self._affinity = RequiredNodeAffinity.of(directives)
        self.tolerations = with_automatic(directives.tolerations, host_network=directives.host_network)
        """The tolerations of the pods."""

    def of(self, node: Node, *, compares: bool = False) -> Fit:
        """Return whether a node should have a pod or may keep one."""
        if self._name not in ("", node.metadata.name) or not self._affinity.matches(node):
            return Fit.NONE
        taints = node.spec.taints
        if not taints:
            return Fit.RUN
        if untolerated(taints, self.tolerations, (NO_EXECUTE,), compares=compares) is not None:
            return Fit.NONE
        schedulable = untolerated(taints, self.tolerations, (NO_SCHEDULE,), compares=compares) is None
        return Fit.RUN if schedulable else Fit.STAY


def placement_of(daemon_set: DaemonSet) -> Placement:
    """Return the placement of a daemon set. Raises TerminalError for an invalid pod template."""
    try:
        return _placement(bytes(daemon_set.spec.template.spec) or b"{}")
    except msgspec.MsgspecError as error:
        raise TerminalError(f"the pod template of DaemonSet {key_of(daemon_set)} is invalid: {error}") from error


@lru_cache(maxsize=256)
def _placement(spec: bytes) -> Placement:
    return Placement(_DIRECTIVES.decode(spec))


def node_of(pod: Pod) -> str:
    """Return the node that a pod is bound to or targeted at, or an empty string."""
    return pod.spec.node_name or node_of_name(pod.spec.affinity)


def facts_of(node: Node | None) -> object:
    """Return the facts of a node that daemon sets depend on; heartbeats do not change them."""
    return (node.metadata.labels, node.spec.taints) if node is not None else None


def is_concerned(daemon_set: DaemonSet, before: Node | None, after: Node | None, controllers: Collection[str]) -> bool:
    """Return whether a change of a node may affect a daemon set.

    `controllers` are the uids of the controllers of pods on it.
    """
    try:
        placement = placement_of(daemon_set)
    except TerminalError:
        return False
    if (before is None) is not (after is None):
        node = before or after
        is_eligible = node is not None and any(placement.of(node, compares=each) is Fit.RUN for each in (False, True))
        return is_eligible or daemon_set.metadata.uid in controllers
    if before is None or after is None:
        return False
    return any(placement.of(before, compares=each) is not placement.of(after, compares=each) for each in (False, True))
