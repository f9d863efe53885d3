"""The writes of the scheduler: bindings, nominations, and the PodScheduled condition."""

from datetime import datetime
from typing import Any

import msgspec

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import format_time
from controller_manager.framework import STRATEGIC_MERGE_PATCH, Client
from controller_manager.framework.client.rest_client import Call

SCHEDULED = "PodScheduled"
UNSCHEDULABLE, ERROR = "Unschedulable", "SchedulerError"


async def nominate(client: Client, pod: Pod, node: str) -> None:
    """Set the nominated node of a pod. Raises the error of the server."""
    change = {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}}
    await client.patch(PODS, key_of(pod), change, STRATEGIC_MERGE_PATCH, subresource="status")


async def bind(client: Client, pod: Pod, node: str) -> None:
    """Bind a pod to a node. Raises Conflict if it is bound to another node or was replaced."""
    meta = pod.metadata
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "target": {"kind": "Node", "name": node},
    }
    await client.raw(Call("POST", PODS.path(meta.namespace, meta.name, "binding"), body=msgspec.json.encode(body)))


def unscheduled(
    pod: Pod, message: str, now: datetime, nominated: str | None = None, reason: str = UNSCHEDULABLE
) -> dict[str, Any] | None:
    """Return the patch of an unschedulable pod's status, or None if it is up to date.

    `nominated` is the nominated node, or empty to clear it. None keeps it.
    """
    known = condition_of(pod.status.conditions, SCHEDULED)
    status: dict[str, Any] = {}
    if known is None or (known.status, known.reason, known.message) != ("False", reason, message):
        turned = known.last_transition_time if known is not None and known.status == "False" else None
        condition: dict[str, Any] = {
            "type": SCHEDULED,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": turned or format_time(now),
        }
        if pod.metadata.generation:
            condition["observedGeneration"] = pod.metadata.generation
        status["conditions"] = [condition]
    if nominated is not None:
        status["nominatedNodeName"] = nominated or None
    return {"metadata": {"uid": pod.metadata.uid}, "status": status} if status else None
