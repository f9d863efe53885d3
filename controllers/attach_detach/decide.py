"""The next operations on one volume, per node; pure.

the volume at a node                           operation
wanted and attached                            none; a detach not sent yet is cancelled
wanted, not attached                           attach; if it is for one node at a time and at another node,
                                                 report a Multi-Attach error to the pods, once
not wanted, not in use                         detach
not wanted, in use                             detach once the node is out of service, or not ready and
                                                 the volume unwanted for `FORCE_AFTER`

Detach goes before attach. Failed operations are retried after a backoff. A volume for one node has one operation at a
time.
"""

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from controller_manager.common.api.conditions import is_condition_true
from controller_manager.common.api.core import Node, Pod, is_pod_terminal
from controller_manager.common.api.platform import PLATFORM_DOMAIN

from .state import AttachableVolume, Verb

FORCE_AFTER = 360.0
"""Seconds for which a node that is not ready may still unmount a volume."""
OUT_OF_SERVICE = f"node.{PLATFORM_DOMAIN}/out-of-service"
MANAGED = f"volumes.{PLATFORM_DOMAIN}/controller-managed-attach-detach"
"""The annotation of nodes whose volumes this controller attaches."""

LATE, TAINT = "timeout", "out-of-service"


class NodeFacts(NamedTuple):
    """The facts of a node that matter to one volume."""

    uses: bool = False
    ready: bool = True
    out_of_service: bool = False


class Attach(NamedTuple):
    """Attach the volume to a node."""

    node: str


class Detach(NamedTuple):
    """Detach the volume from a node. `forced` is the reason to ignore that the node uses it."""

    node: str
    forced: str = ""


class Refuse(NamedTuple):
    """Report to the pods of a node that the volume is attached to other nodes."""

    node: str
    others: tuple[str, ...]


class AttachPlan(NamedTuple):
    """The operations to perform now, and the time (of the loop) of the next decision."""

    steps: tuple[Attach | Detach | Refuse, ...]
    again: float = math.inf


def decide(
    volume: AttachableVolume,
    wanted: Collection[str],
    facts: Callable[[str], NodeFacts],
    now: float,
    *,
    force: bool = True,
) -> AttachPlan:
    """Return the next operations on a volume wanted at these nodes. Without `force` a timeout is no reason to
    detach.
    """
    if volume.is_busy:
        return AttachPlan(())
    leaving = _detachments(volume, wanted, facts, now, force=force)
    if leaving.steps and volume.spec.exclusive:
        return leaving
    coming = _attachments(volume, wanted, now)
    return AttachPlan((*leaving.steps, *coming.steps), min(leaving.again, coming.again))


def _detachments(
    volume: AttachableVolume,
    wanted: Collection[str],
    facts: Callable[[str], NodeFacts],
    now: float,
    *,
    force: bool,
) -> AttachPlan:
    """Return the nodes from which to detach a volume; one node at a time for an exclusive volume."""
    steps: list[Detach] = []
    again = math.inf
    for node, attachment in volume.attachments.items():
        if node in wanted or attachment.operation is not None:
            continue
        pause = volume.paused(node, Verb.DETACH, now)
        if pause:
            again = min(again, pause)
            continue
        since = attachment.unwanted if attachment.unwanted is not None else now
        step = _detachment(node, facts(node), expired=force and now >= since + FORCE_AFTER)
        if step is not None:
            steps.append(step)
            if volume.spec.exclusive:
                break
        elif force and now < since + FORCE_AFTER:
            again = min(again, since + FORCE_AFTER)
    return AttachPlan(tuple(steps), again)


def _attachments(volume: AttachableVolume, wanted: Collection[str], now: float) -> AttachPlan:
    """Return the nodes to which to attach a volume. An exclusive volume must not be at another node."""
    steps: list[Attach | Refuse] = []
    again = math.inf
    for node in sorted(wanted):
        attachment = volume.attachments.get(node)
        if attachment is not None and (attachment.operation is not None or attachment.confirmed):
            continue
        others = tuple(sorted(other for other in volume.attachments if other != node))
        if volume.spec.exclusive and others:
            if node not in volume.refused:
                steps.append(Refuse(node, others))
            continue
        pause = volume.paused(node, Verb.ATTACH, now)
        if pause:
            again = min(again, pause)
            continue
        steps.append(Attach(node))
        if volume.spec.exclusive:
            break
    return AttachPlan(tuple(steps), again)


def _detachment(node: str, facts: NodeFacts, *, expired: bool) -> Detach | None:
    """Return how to detach an unwanted volume, or None if it has to stay for now."""
    forced = expired and not facts.ready
    if facts.uses and not forced and not facts.out_of_service:
        return None
    if expired:
        return Detach(node, LATE)
    return Detach(node, TAINT if facts.out_of_service else "")


def note_wishes(volume: AttachableVolume, wanted: Collection[str], now: float) -> None:
    """Record since when a volume is unwanted at each node, and forget reports to pods that are gone."""
    for node, attachment in volume.attachments.items():
        if node in wanted:
            attachment.unwanted = None
        elif attachment.unwanted is None:
            attachment.unwanted = now
    volume.refused.intersection_update(wanted)


def is_managed(node: Node) -> bool:
    """Return whether this controller attaches the volumes of a node."""
    return MANAGED in (node.metadata.annotations or {})


def node_facts(node: Node | None, *, uses: bool) -> NodeFacts:
    """Return the facts of a node. A node that is gone is not ready."""
    if node is None:
        return NodeFacts(uses, ready=False)
    out_of_service = any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)
    return NodeFacts(uses, is_condition_true(node.status.conditions, "Ready"), out_of_service)


def needs_volumes(pod: Pod) -> bool:
    """Return whether a pod on a node may still use its volumes: it has not ended, or it is deleted but still runs."""
    if not pod.spec.node_name or is_pod_terminal(pod):
        return False
    if pod.metadata.deletion_timestamp is None:
        return True
    status = pod.status
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return any(one.state.terminated is None and one.state.waiting is None for one in every)


def refusal(volume: str, pod: Pod, others: Collection[Pod]) -> str:
    """Return the message for a pod whose volume is in use by pods on other nodes.

    Pods of other namespaces are not named.
    """
    prefix = f'Multi-Attach error for volume "{volume}"'
    if not others:
        return f"{prefix} Volume is attached to another node, and can be attached to one only"
    names = sorted(one.metadata.name for one in others if one.metadata.namespace == pod.metadata.namespace)
    hidden = len(others) - len(names)
    if not names:
        return f"{prefix} Volume is in use by {hidden} pod(s) of other namespaces"
    return f"{prefix} Volume is in use by pod(s) {', '.join(names)}" + (
        f" and {hidden} of other namespaces" if hidden else ""
    )
