"""The condition that a pod is given before it is deleted, so that its owner learns why; pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from controller_manager.api.conditions import Condition, with_condition
from controller_manager.api.core import Pod
from controller_manager.api.timestamps import format_time

DISRUPTED = "DisruptionTarget"


def disruption(pod: Pod, reason: str, message: str, now: datetime) -> Condition | None:
    """The condition that says why the pod is deleted (KEP-3329); None if it says so already."""
    new = Condition(
        type=DISRUPTED,
        status="True",
        observed_generation=pod.metadata.generation or None,
        last_transition_time=format_time(now),
        reason=reason,
        message=message,
    )
    known = pod.status.conditions
    if any((c.type, c.status, c.reason) == (new.type, new.status, new.reason) for c in known):
        return None
    return next(c for c in with_condition(known, new) if c.type == DISRUPTED)


def status_patch(pod: Pod, **status: object) -> Mapping[str, Any]:
    """A strategic merge patch of the pod's status that is refused (409) unless the pod is still as it was seen."""
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    changes = {name: msgspec.to_builtins(value) for name, value in status.items() if value}
    return {"metadata": seen, "status": changes}
