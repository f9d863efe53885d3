"""Decides what a node and its pods should say, by what is known of the node; pure.

    condition            status     taint (NoSchedule)
    Ready                False      not-ready
    Ready                Unknown    unreachable
    MemoryPressure       True       memory-pressure
    DiskPressure         True       disk-pressure
    PIDPressure          True       pid-pressure
    NetworkUnavailable   True       network-unavailable
    (spec.unschedulable)            unschedulable

    Ready is             NoExecute taint
    True                 none
    False, Unknown       not-ready, unreachable: at once if it has the other, else when it is to be evicted
    not said             whatever it has

Where Ready was never said, the NoSchedule taints of Ready stay as well: they are what admission gave to a new node.
"""

from collections.abc import Mapping
from enum import Enum, auto

from msgspec.structs import replace

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import REGION, ZONE, Node, NodeCondition, Pod, Taint, is_pod_ready
from controller_manager.common.api.platform import PLATFORM_DOMAIN

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
NOT_READY = f"node.{PLATFORM_DOMAIN}/not-ready"
UNREACHABLE = f"node.{PLATFORM_DOMAIN}/unreachable"
UNSCHEDULABLE = f"node.{PLATFORM_DOMAIN}/unschedulable"
# A node with this label does not count in the state of its zone.
UNCOUNTED = f"node.{PLATFORM_DOMAIN}/exclude-disruption"

_READY_TAINTS = {"False": NOT_READY, "Unknown": UNREACHABLE}
_CONDITION_TAINTS = {
    **{("Ready", status): key for status, key in _READY_TAINTS.items()},
    ("MemoryPressure", "True"): f"node.{PLATFORM_DOMAIN}/memory-pressure",
    ("DiskPressure", "True"): f"node.{PLATFORM_DOMAIN}/disk-pressure",
    ("PIDPressure", "True"): f"node.{PLATFORM_DOMAIN}/pid-pressure",
    ("NetworkUnavailable", "True"): f"node.{PLATFORM_DOMAIN}/network-unavailable",
}
_OURS = {
    *((key, NO_SCHEDULE) for key in (*_CONDITION_TAINTS.values(), UNSCHEDULABLE)),
    *((key, NO_EXECUTE) for key in _READY_TAINTS.values()),
}
_OF_READY = {(key, effect) for key in _READY_TAINTS.values() for effect in (NO_SCHEDULE, NO_EXECUTE)}
# What a node agent reports; the network's condition is somebody else's.
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
# The old name of a label, kept equal to the present one.
_OLD_LABELS = {
    f"{PLATFORM_DOMAIN}/os": f"beta.{PLATFORM_DOMAIN}/os",
    f"{PLATFORM_DOMAIN}/arch": f"beta.{PLATFORM_DOMAIN}/arch",
}
_OLD_ZONE = f"failure-domain.beta.{PLATFORM_DOMAIN}/zone"
_OLD_REGION = f"failure-domain.beta.{PLATFORM_DOMAIN}/region"


class Evict(Enum):
    """The NoExecute taint that a node which is not ready may have."""

    NEVER = auto()
    """It must have none: all zones are disrupted."""
    WAIT = auto()
    """It keeps the one it has."""
    NOW = auto()
    """It is given one."""


def ready_of(node: Node) -> NodeCondition | None:
    """The condition Ready."""
    return condition_of(node.status.conditions, "Ready")


def status_of(node: Node) -> str:
    """Return what the condition Ready says; empty if there is none."""
    ready = ready_of(node)
    return ready.status if ready else ""


def is_troubled(node: Node | None) -> bool:
    """Return whether its agent says that it is not ready, or nothing is known of it; no node is in no trouble."""
    return node is not None and status_of(node) in _READY_TAINTS


def zone_of(node: Node) -> str:
    """Region and zone as metrics name them, empty if neither is known."""
    labels = node.metadata.labels or {}
    region = labels.get(_OLD_REGION, labels.get(REGION, ""))
    zone = labels.get(_OLD_ZONE, labels.get(ZONE, ""))
    return f"{region}:\0:{zone}" if region or zone else ""


def is_evicted(node: Node) -> bool:
    """Return whether it has a NoExecute taint of ours."""
    return any(t.effect == NO_EXECUTE and t.key in (NOT_READY, UNREACHABLE) for t in node.spec.taints)


def silenced(node: Node, now: str) -> Node:
    """The node, whose agent is silent, with conditions that say so; the same object if they do already."""
    known = {c.type for c in node.status.conditions}
    conditions = tuple(_unknown(c, now) if c.type in _REPORTED else c for c in node.status.conditions)
    conditions += tuple(_never_updated(kind, node, now) for kind in _REPORTED if kind not in known)
    if conditions == node.status.conditions:
        return node
    return replace(node, status=replace(node.status, conditions=conditions))


def desired_taints(node: Node, evict: Evict, now: str) -> Node:
    """The node with the taints and labels that follow from what it says; the same object if it has them already."""
    taints = _taints(node, evict, now)
    labels = _labels(node.metadata.labels or {})
    if taints == node.spec.taints and not labels:
        return node
    metadata = replace(node.metadata, labels={**(node.metadata.labels or {}), **labels}) if labels else node.metadata
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def unready(pod: Pod, now: str) -> Pod:
    """The pod, whose node is silent, not ready; the same object if it was not."""
    if not is_pod_ready(pod):
        return pod
    conditions = tuple(
        replace(c, status="False", last_transition_time=now) if c.type == "Ready" else c for c in pod.status.conditions
    )
    return replace(pod, status=replace(pod.status, conditions=conditions))


def _unknown(condition: NodeCondition, now: str) -> NodeCondition:
    if condition.status == "Unknown":
        return condition
    message = "The kubelet of this node tells its status no longer."
    return replace(condition, status="Unknown", reason="NodeStatusUnknown", message=message, last_transition_time=now)


def _never_updated(kind: str, node: Node, now: str) -> NodeCondition:
    return NodeCondition(
        type=kind,
        status="Unknown",
        reason="NodeStatusNeverUpdated",
        message="The kubelet of this node has never told its status.",
        last_heartbeat_time=node.metadata.creation_timestamp,
        last_transition_time=now,
    )


def _taints(node: Node, evict: Evict, now: str) -> tuple[Taint, ...]:
    """The taints of a node: those of others and those that stay in their places, then the new ones."""
    wanted = dict.fromkeys((*_no_schedule(node), *_no_execute(node, evict)))
    had = {(t.key, t.effect) for t in node.spec.taints}
    if not status_of(node):
        wanted |= dict.fromkeys(had & _OF_READY)
    kept = (t for t in node.spec.taints if (t.key, t.effect) in wanted or (t.key, t.effect) not in _OURS)
    new = (Taint(key=key, effect=effect, time_added=now) for key, effect in wanted if (key, effect) not in had)
    return (*kept, *new)


def _no_schedule(node: Node) -> list[tuple[str, str]]:
    keys = (_CONDITION_TAINTS.get((c.type, c.status)) for c in node.status.conditions)
    found = [(key, NO_SCHEDULE) for key in keys if key]
    return [*found, (UNSCHEDULABLE, NO_SCHEDULE)] if node.spec.unschedulable else found


def _no_execute(node: Node, evict: Evict) -> list[tuple[str, str]]:
    key = _READY_TAINTS.get(status_of(node))
    if key is None or evict is Evict.NEVER:
        return []
    return [(key, NO_EXECUTE)] if evict is Evict.NOW or is_evicted(node) else []


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to set."""
    pairs = ((old, labels[present]) for present, old in _OLD_LABELS.items() if present in labels)
    return {old: value for old, value in pairs if labels.get(old) != value}
