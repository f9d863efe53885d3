"""What the scheduler writes: bindings, and the condition that says why there is no node."""

from datetime import datetime
from typing import Any

import msgspec

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import format_time
from controller_manager.framework.client import STRATEGIC_MERGE_PATCH, Client
from controller_manager.framework.client.rest_client import Call

SCHEDULED = "PodScheduled"
UNSCHEDULABLE, ERROR = "Unschedulable", "SchedulerError"


async def nominate(client: Client, pod: Pod, node: str) -> None:
    """Have a pod say that it is expected on a node. Raises what the server answers."""
    change = {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}}
    await client.patch(PODS, key_of(pod), change, STRATEGIC_MERGE_PATCH, subresource="status")


async def bind(client: Client, pod: Pod, node: str) -> None:
    """Have a pod be on a node. Raises what the server answers: Conflict if it is on another one, or is another pod."""
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
    """Return the change of the status of a pod that is on no node for that reason; None if it says so already.

    `nominated` is the node that it waits for, empty for none any more; None leaves that as it is.
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
