"""Filters that depend only on a pod and one node; pure.

The first matching filter rejects a node: unschedulable, name, taints, node affinity, declared features, host ports,
resources. A rejection is final if the removal of pods would not change it, so that preemption is not tried in vain.
"""

from collections.abc import Sequence
from typing import NamedTuple

from controller_manager.common.api.core import Taint
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.scheduling import NO_EXECUTE, NO_SCHEDULE, tolerates, untolerated

from .node_info import NodeInfo, conflicts
from .requirements import Requirements

# The names of the filters in metrics and configurations.
UNSCHEDULABLE = "NodeUnschedulable"
TAINTS = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
PORTS = "NodePorts"
RESOURCES = "NodeResourcesFit"
SPREAD = "PodTopologySpread"
POD_AFFINITY = "InterPodAffinity"
GATES = "SchedulingGates"
NODE_FEATURES = "NodeDeclaredFeatures"

PREFER_NO_SCHEDULE = "PreferNoSchedule"
_CORDONED = Taint(key=f"node.{PLATFORM_DOMAIN}/unschedulable", effect=NO_SCHEDULE)
_KEPT_AWAY = (NO_SCHEDULE, NO_EXECUTE)


class Rejection(NamedTuple):
    """Why a node does not fit: the filter, and the reason shown after a number of nodes."""

    by: str
    reason: str
    final: bool = False


Rejections = tuple[Rejection, ...]
_IS_UNSCHEDULABLE = (Rejection(UNSCHEDULABLE, "node(s) were unschedulable", final=True),)
_IS_TAINTED = (Rejection(TAINTS, "node(s) had untolerated taint(s)", final=True),)
_IS_OTHER = (Rejection(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector", final=True),)
_LACKS_FEATURES = (Rejection(NODE_FEATURES, "node(s) didn't declare the features that the pod needs", final=True),)
_HAS_NO_PORT = (Rejection(PORTS, "node(s) didn't have free ports for the requested pod ports"),)
_TOO_MANY = Rejection(RESOURCES, "Too many pods")
_HAS_NO_PODS = Rejection(RESOURCES, "Too many pods", final=True)


def reject(asked: Requirements, node: NodeInfo, *, compares: bool = False) -> Rejections:
    """Return why a pod does not fit on a node; empty if it fits. `compares` enables numeric comparison in
    tolerations.
    """
    return reject_for_good(asked, node, compares=compares) or reject_for_now(asked, node)


def reject_for_good(asked: Requirements, node: NodeInfo, *, compares: bool = False) -> Rejections:
    """Return the rejections that do not depend on other pods."""
    if node.unschedulable and not any(tolerates(one, _CORDONED, compares=compares) for one in asked.tolerations):
        return _IS_UNSCHEDULABLE
    if node.taints and untolerated(node.taints, asked.tolerations, _KEPT_AWAY, compares=compares) is not None:
        return _IS_TAINTED
    if asked.selects_nodes and (node.node is None or not asked.node_affinity.matches(node.node)):
        return _IS_OTHER
    if asked.node_features and not asked.node_features <= node.features:
        return _LACKS_FEATURES
    return ()


def reject_for_now(asked: Requirements, node: NodeInfo) -> Rejections:
    """Return the rejections that depend on the pods on the node."""
    if asked.ports and conflicts(asked.ports, node.ports):
        return _HAS_NO_PORT
    return () if _has_room(asked, node) else tuple(_lacking(asked, node))


def could_fit(asked: Requirements, node: NodeInfo) -> bool:
    """Return whether a node has enough resources for a pod if it were empty."""
    wanted, there = asked.requests, node.allocatable
    if wanted.cpu > there.cpu or wanted.memory > there.memory or wanted.storage > there.storage:
        return False
    return node.most_pods > 0 and all(
        amount <= there.others.get(name, 0) or is_by_devices(asked, name, node)
        for name, amount in wanted.others.items()
    )


def is_by_devices(asked: Requirements, resource: str, node: NodeInfo) -> bool:
    """Return whether a node would provide an extended resource of a pod by devices."""
    return resource in asked.by_devices and not node.allocatable.others.get(resource)


def intolerable_preferences(asked: Requirements, node: NodeInfo, *, compares: bool = False) -> int:
    """Return the number of PreferNoSchedule taints that a pod does not tolerate."""
    if not node.taints:
        return 0
    able = [one for one in asked.tolerations if one.effect in ("", PREFER_NO_SCHEDULE)]
    soft = (taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE)
    return sum(not any(tolerates(one, taint, compares=compares) for one in able) for taint in soft)


def _has_room(asked: Requirements, node: NodeInfo) -> bool:
    wanted, there = asked.requests, node.allocatable
    if len(node.pods) >= node.most_pods:
        return False
    if wanted.cpu and wanted.cpu > there.cpu - node.cpu:
        return False
    if wanted.memory and wanted.memory > there.memory - node.memory:
        return False
    if wanted.storage and wanted.storage > there.storage - node.storage:
        return False
    taken = node.others
    return not wanted.others or all(
        amount <= there.others.get(name, 0) - taken.get(name, 0) or is_by_devices(asked, name, node)
        for name, amount in wanted.others.items()
    )


def _lacking(asked: Requirements, node: NodeInfo) -> Sequence[Rejection]:
    """Return the resources that a node lacks."""
    wanted, there = asked.requests, node.allocatable
    found = []
    if len(node.pods) >= node.most_pods:
        found.append(_TOO_MANY if node.most_pods else _HAS_NO_PODS)
    amounts = [
        ("cpu", wanted.cpu, there.cpu, node.cpu),
        ("memory", wanted.memory, there.memory, node.memory),
        ("ephemeral-storage", wanted.storage, there.storage, node.storage),
        *(
            (name, some, there.others.get(name, 0), node.others.get(name, 0))
            for name, some in wanted.others.items()
            if not is_by_devices(asked, name, node)
        ),
    ]
    for name, some, every, taken in amounts:
        if some and some > every - taken:
            found.append(insufficient(name, final=some > every))
    return found


def insufficient(resource: str, *, final: bool = False) -> Rejection:
    """Return the rejection for a missing resource."""
    return Rejection(RESOURCES, f"Insufficient {resource}", final=final)
