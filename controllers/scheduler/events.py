"""Cluster events that may make an unschedulable pod schedulable, by the filter that rejected its nodes.

rejected by          may help
unschedulable        a node that comes, or may be scheduled to again
taints               a node that comes, or is rid of taints, and whose taints the pod tolerates
affinity to nodes    a node that comes, or has other labels, and that the pod may be on
host ports           a node that comes; a pod that goes and had one of the ports
declared features    a node that comes, or declares others, and declares all that the pod needs
resources            a node that comes, or has more, and would have enough if it were empty; a pod that goes from such
                     a node, or takes less
spread               a pod of those counted that comes or goes; nodes that come, go, or have other labels or taints
affinity to pods     a pod that is meant and comes; one that goes and was disliked, or disliked the pod; labels of nodes
                     and of namespaces
volumes              claims, volumes, classes and drivers that change; nodes that come or change; where there are too
                     many, or one is used, a pod that goes
devices              claims that change; nodes that come or change
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from controller_manager.common.api.core import Node
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.scheduling import NO_EXECUTE, NO_SCHEDULE, untolerated

from . import devices, filters, volumes
from .cluster_state import ClusterState
from .node_info import NodeInfo, PlacedPod, conflicts
from .requirements import AffinityTerm, HostPort, Requirements


class NodeEvent(NamedTuple):
    """A node was added, updated or deleted."""

    node: NodeInfo
    gone: bool = False
    is_new: bool = False
    change: str = "Update"

    @property
    def label(self) -> str:
        """Return the name of the event in metrics."""
        return "NodeAdd" if self.is_new else "NodeDelete" if self.gone else f"Node{self.change}"


class PodEvent(NamedTuple):
    """A pod was placed on a node, removed from it, or updated there."""

    placed: PlacedPod
    came: bool = False
    went: bool = False

    @property
    def label(self) -> str:
        """Return the name of the event in metrics."""
        return "AssignedPodAdd" if self.came else "AssignedPodDelete" if self.went else "AssignedPodUpdate"


class OtherEvent(NamedTuple):
    """Another event that may help pods rejected by these plugins, with its label for metrics."""

    concerns: frozenset[str]
    label: str


Event = NodeEvent | PodEvent | OtherEvent
_Hint = Callable[[Requirements, Event, ClusterState], bool]


def label_of(resource: Resource[Any], before: object, after: object) -> str:
    """Return the metric name of a change of an object."""
    kind = f"{resource.group}/{resource.kind}" if resource.group else resource.kind
    return kind + ("Add" if before is None else "Delete" if after is None else "Update")


def node_change(before: NodeInfo, after: Node) -> str:
    """Return the metric name of a change of a node."""
    if before.node is None or before.node.status.allocatable != after.status.allocatable:
        return "UpdateNodeAllocatable"
    if before.labels != (after.metadata.labels or {}):
        return "UpdateNodeLabel"
    if before.taints != after.spec.taints or before.unschedulable != after.spec.unschedulable:
        return "UpdateNodeTaint"
    if before.features != frozenset(after.status.declared_features):
        return "UpdateNodeDeclaredFeature"
    return "Update"


def may_help(by: frozenset[str], asked: Requirements, event: Event, state: ClusterState) -> bool:
    """Return whether an event may help pods with these requirements that were rejected by these plugins."""
    if not by:  # there was no node
        return isinstance(event, NodeEvent)
    if isinstance(event, OtherEvent):
        return not by.isdisjoint(event.concerns)
    return any(one not in _HINTS or _HINTS[one](asked, event, state) for one in by)


def _unschedulable(_: Requirements, event: Event, __: ClusterState) -> bool:
    return isinstance(event, NodeEvent) and not event.gone and not event.node.unschedulable


def _taints(asked: Requirements, event: Event, _: ClusterState) -> bool:
    if not isinstance(event, NodeEvent) or event.gone:
        return False
    return untolerated(event.node.taints, asked.tolerations, (NO_SCHEDULE, NO_EXECUTE), compares=True) is None


def _nodes(asked: Requirements, event: Event, _: ClusterState) -> bool:
    if not isinstance(event, NodeEvent) or event.gone or event.node.node is None:
        return False
    return asked.node_affinity.matches(event.node.node)


def _node_features(asked: Requirements, event: Event, _: ClusterState) -> bool:
    return isinstance(event, NodeEvent) and not event.gone and asked.node_features <= event.node.features


def _ports(asked: Requirements, event: Event, _: ClusterState) -> bool:
    if isinstance(event, PodEvent):
        taken: Mapping[HostPort, int] = dict.fromkeys(event.placed.requirements.ports, 1)
        return event.went and conflicts(asked.ports, taken)
    return isinstance(event, NodeEvent) and event.is_new


def _resources(asked: Requirements, event: Event, state: ClusterState) -> bool:
    if isinstance(event, PodEvent):
        node = None if event.came else state.nodes.get(event.placed.node)
    else:
        node = event.node if isinstance(event, NodeEvent) and not event.gone else None
    return node is not None and filters.could_fit(asked, node)


def _spread(asked: Requirements, event: Event, state: ClusterState) -> bool:
    if isinstance(event, PodEvent):
        other = event.placed.requirements
        if other.namespace != asked.namespace:
            return False
        selectors = (one.selector for one in asked.constraints)
        return any(one is not None and one.matches(other.labels) for one in selectors)
    return isinstance(event, NodeEvent)


def _pods(asked: Requirements, event: Event, state: ClusterState) -> bool:
    if isinstance(event, NodeEvent):
        return not event.gone
    if not isinstance(event, PodEvent):
        return False
    other = event.placed.requirements

    def meant(terms: tuple[AffinityTerm, ...], pod: Requirements) -> bool:
        return any(state.selects(term, pod) for term in terms)

    if meant(asked.affinity, other):
        return True
    return not event.came and (meant(asked.anti_affinity, other) or meant(other.anti_affinity, asked))


def _any_node(_: Requirements, event: Event, __: ClusterState) -> bool:
    return isinstance(event, NodeEvent) and not event.gone


def _any_that_goes(_: Requirements, event: Event, __: ClusterState) -> bool:
    return isinstance(event, PodEvent) and event.went


def _node_or_one_that_goes(asked: Requirements, event: Event, state: ClusterState) -> bool:
    return _any_node(asked, event, state) or _any_that_goes(asked, event, state)


_HINTS: Mapping[str, _Hint] = MappingProxyType(
    {
        filters.UNSCHEDULABLE: _unschedulable,
        filters.TAINTS: _taints,
        filters.NODE_AFFINITY: _nodes,
        filters.NODE_FEATURES: _node_features,
        filters.PORTS: _ports,
        filters.RESOURCES: _resources,
        filters.SPREAD: _spread,
        filters.POD_AFFINITY: _pods,
        volumes.BINDING: _any_node,
        volumes.VOLUME_ZONE: _any_node,
        volumes.RESTRICTIONS: _any_that_goes,
        volumes.LIMITS: _node_or_one_that_goes,
        devices.DEVICES: _any_node,
    }
)
