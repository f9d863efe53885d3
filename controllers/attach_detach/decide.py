"""What is next for one volume, at each node; pure.

node                                            then
wants the volume, and it is attached there      nothing; what was asked before is taken back
wants it, nothing is known of it there          it is attached, unless it may be at one node and is, or may be, at
                                                  another: then the pods are told, once
does not want it, and does not use it           it is detached
does not want it, and uses it                   it is detached
                                                  once the node is out of service, or
                                                  is not ready and it has been unwanted for `FORCE_AFTER`
Detaching goes first. What failed is tried again after a pause; of a volume for one node, one thing is done at a time.
"""

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from controller_manager.common.api.conditions import is_condition_true
from controller_manager.common.api.core import Node, Pod, is_pod_terminal
from controller_manager.common.api.platform import PLATFORM_DOMAIN

from .state import AttachableVolume, Verb

FORCE_AFTER = 360.0
"""Seconds that a node which is not ready has to unmount a volume."""
OUT_OF_SERVICE = f"node.{PLATFORM_DOMAIN}/out-of-service"
MANAGED = f"volumes.{PLATFORM_DOMAIN}/controller-managed-attach-detach"
"""The annotation of nodes whose volumes are attached by us."""

LATE, TAINT = "timeout", "out-of-service"


class NodeFacts(NamedTuple):
    """What matters of a node to one volume."""

    uses: bool = False
    ready: bool = True
    out_of_service: bool = False


class Attach(NamedTuple):
    """The volume is to be attached to a node."""

    node: str


class Detach(NamedTuple):
    """The volume is to be detached from a node, which may not use it unless that is `forced` for a reason."""

    node: str
    forced: str = ""


class Refuse(NamedTuple):
    """Pods of a node are to be told that the volume is at others."""

    node: str
    others: tuple[str, ...]


class AttachPlan(NamedTuple):
    """What is to be done now, and at what time (seconds of the loop) is to be looked again."""

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
    """Return what is next for a volume that pods want at these nodes; without `force` no silence is a reason."""
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
    """Return from where a volume is detached; of an exclusive one from one node at a time."""
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
    """Return where a volume is attached; an exclusive one only where it is at no other node."""
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
    """Return how a volume that nobody wants is detached; None if it must stay for now."""
    forced = expired and not facts.ready
    if facts.uses and not forced and not facts.out_of_service:
        return None
    if expired:
        return Detach(node, LATE)
    return Detach(node, TAINT if facts.out_of_service else "")


def note_wishes(volume: AttachableVolume, wanted: Collection[str], now: float) -> None:
    """Note since when nobody wants a volume where it is, and forget what pods were told who are gone."""
    for node, attachment in volume.attachments.items():
        if node in wanted:
            attachment.unwanted = None
        elif attachment.unwanted is None:
            attachment.unwanted = now
    volume.refused.intersection_update(wanted)


def is_managed(node: Node) -> bool:
    """Return whether volumes of a node are attached by us."""
    return MANAGED in (node.metadata.annotations or {})


def node_facts(node: Node | None, *, uses: bool) -> NodeFacts:
    """Return what matters of a node; one that is gone is not ready."""
    if node is None:
        return NodeFacts(uses, ready=False)
    out_of_service = any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)
    return NodeFacts(uses, is_condition_true(node.status.conditions, "Ready"), out_of_service)


def needs_volumes(pod: Pod) -> bool:
    """Return whether a pod on a node may still use its volumes: it has not ended, or is deleted but runs."""
    if not pod.spec.node_name or is_pod_terminal(pod):
        return False
    if pod.metadata.deletion_timestamp is None:
        return True
    status = pod.status
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return any(one.state.terminated is None and one.state.waiting is None for one in every)


def refusal(volume: str, pod: Pod, others: Collection[Pod]) -> str:
    """Return what a pod is told of a volume that other pods have at other nodes; those of other namespaces are not
    named.
    """
    told = f'Multi-Attach error for volume "{volume}"'
    if not others:
        return f"{told} Volume is attached to another node, and can be attached to one only"
    names = sorted(one.metadata.name for one in others if one.metadata.namespace == pod.metadata.namespace)
    hidden = len(others) - len(names)
    if not names:
        return f"{told} Volume is in use by {hidden} pod(s) of other namespaces"
    return f"{told} Volume is in use by pod(s) {', '.join(names)}" + (
        f" and {hidden} of other namespaces" if hidden else ""
    )
