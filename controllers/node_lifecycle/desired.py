"""Decides the conditions, taints and labels of a node and the readiness of its pods; pure.

condition             status    taint (NoSchedule)
Ready                 False     not-ready
Ready                 Unknown   unreachable
MemoryPressure        True      memory-pressure
DiskPressure          True      disk-pressure
PIDPressure           True      pid-pressure
NetworkUnavailable    True      network-unavailable
(spec.unschedulable)            unschedulable

Ready is              NoExecute taint
True                  none
False                 not-ready: on eviction; at once in place of unreachable
Unknown               unreachable: on eviction; at once in place of not-ready
missing               unchanged

Without a Ready condition the NoSchedule taints of Ready are kept too, since admission adds them to new nodes.
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
# A node with this label does not count for the state of its zone.
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
# The conditions that the kubelet reports. Another component owns NetworkUnavailable.
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
# Deprecated labels, which are kept equal to their replacements.
_OLD_LABELS = {
    f"{PLATFORM_DOMAIN}/os": f"beta.{PLATFORM_DOMAIN}/os",
    f"{PLATFORM_DOMAIN}/arch": f"beta.{PLATFORM_DOMAIN}/arch",
}
_OLD_ZONE = f"failure-domain.beta.{PLATFORM_DOMAIN}/zone"
_OLD_REGION = f"failure-domain.beta.{PLATFORM_DOMAIN}/region"


class Evict(Enum):
    """The NoExecute taint of a node that is not ready."""

    NEVER = auto()
    """Remove it, because all zones are disrupted."""
    WAIT = auto()
    """Leave it unchanged."""
    NOW = auto()
    """Add it."""


def ready_of(node: Node) -> NodeCondition | None:
    """Return the condition Ready, or None."""
    return condition_of(node.status.conditions, "Ready")


def status_of(node: Node) -> str:
    """Return the status of the condition Ready, or an empty string."""
    ready = ready_of(node)
    return ready.status if ready else ""


def is_not_ready(node: Node | None) -> bool:
    """Return whether the Ready condition of a node is False or Unknown. The result is false for None."""
    return node is not None and status_of(node) in _READY_TAINTS


def zone_of(node: Node) -> str:
    """Return region and zone in the form of the metrics, or an empty string if both are unknown."""
    labels = node.metadata.labels or {}
    region = labels.get(_OLD_REGION, labels.get(REGION, ""))
    zone = labels.get(_OLD_ZONE, labels.get(ZONE, ""))
    return f"{region}:\0:{zone}" if region or zone else ""


def is_evicted(node: Node) -> bool:
    """Return whether the node has a NoExecute taint of this controller."""
    return any(t.effect == NO_EXECUTE and t.key in (NOT_READY, UNREACHABLE) for t in node.spec.taints)


def silenced(node: Node, now: str) -> Node:
    """Return the silent node with Unknown conditions. The same object is returned if nothing changes."""
    known = {c.type for c in node.status.conditions}
    conditions = tuple(_unknown(c, now) if c.type in _REPORTED else c for c in node.status.conditions)
    conditions += tuple(_never_updated(kind, node, now) for kind in _REPORTED if kind not in known)
    if conditions == node.status.conditions:
        return node
    return replace(node, status=replace(node.status, conditions=conditions))


def desired_taints(node: Node, evict: Evict, now: str) -> Node:
    """Return the node with the taints and labels that follow from its conditions, or the same object if nothing
    changes.
    """
    taints = _taints(node, evict, now)
    labels = _labels(node.metadata.labels or {})
    if taints == node.spec.taints and not labels:
        return node
    metadata = replace(node.metadata, labels={**(node.metadata.labels or {}), **labels}) if labels else node.metadata
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def unready(pod: Pod, now: str) -> Pod:
    """Return the pod of a silent node as not ready, or the same object if it is not ready already."""
    if not is_pod_ready(pod):
        return pod
    conditions = tuple(
        replace(c, status="False", last_transition_time=now) if c.type == "Ready" else c for c in pod.status.conditions
    )
    return replace(pod, status=replace(pod.status, conditions=conditions))


def _unknown(condition: NodeCondition, now: str) -> NodeCondition:
    if condition.status == "Unknown":
        return condition
    message = "Kubelet stopped posting node status."
    return replace(condition, status="Unknown", reason="NodeStatusUnknown", message=message, last_transition_time=now)


def _never_updated(kind: str, node: Node, now: str) -> NodeCondition:
    return NodeCondition(
        type=kind,
        status="Unknown",
        reason="NodeStatusNeverUpdated",
        message="Kubelet never posted node status.",
        last_heartbeat_time=node.metadata.creation_timestamp,
        last_transition_time=now,
    )


def _taints(node: Node, evict: Evict, now: str) -> tuple[Taint, ...]:
    """Return the taints of a node: foreign and unchanged ones in their place, then the new ones."""
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
    """Return the labels to set."""
    pairs = ((old, labels[present]) for present, old in _OLD_LABELS.items() if present in labels)
    return {old: value for old, value in pairs if labels.get(old) != value}
