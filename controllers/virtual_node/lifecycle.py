"""The lifecycle of a pod on a node, derived from its status and the stages; pure.

Observed: the pod on the server, the stages, the time (seconds since the epoch).

state                                                  decision
no start time                                          admit it (`admission.py`): addresses and statuses of all
                                                       containers; or fail it
init containers in order, sidecars, then the others    stages from `waiting`
a container starts, becomes ready, ends or backs off   stages
activeDeadlineSeconds exceeded                         kill all containers, phase Failed
being deleted                                          stages from `stopping`, until the grace period ends
being deleted, and nothing runs                        delete it finally; with finalizers write the status first

All changes that are due form one change of the status.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec.structs import asdict, replace

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import PodIP
from controller_manager.common.api.timestamps import format_time

from . import containers
from .admission import Refusal
from .containers import KILLED, state_of
from .phase import conditions_of, phase_of
from .pod_life import PodLife
from .pods import Container, ContainerKind, ContainerStatus, PodStatus, VirtualPod, moment
from .stages import LifecycleStage, Stages, back_off

# Maximum steps per decision, because stages may form a loop without delay.
_MOST_STEPS, _STEPS_PER_CONTAINER = 1000, 10
_EXPIRED = "DeadlineExceeded"
PREEMPTED = "Preempting"
"""The reason of a pod that was preempted for a critical pod."""
_CAMEL = {
    "observed_generation": "observedGeneration",
    "host_ip": "hostIP",
    "host_ips": "hostIPs",
    "pod_ip": "podIP",
    "pod_ips": "podIPs",
    "start_time": "startTime",
    "init_container_statuses": "initContainerStatuses",
    "container_statuses": "containerStatuses",
    "ephemeral_container_statuses": "ephemeralContainerStatuses",
}


class Place(NamedTuple):
    """The addresses of a node and of a pod on it."""

    host_ips: tuple[str, ...]
    pod_ips: tuple[str, ...]


class LifecycleEvent(NamedTuple):
    """An event about a pod."""

    reason: str
    message: str
    type: str = "Warning"


class PodDecision(NamedTuple):
    """The changed fields of a pod's status, the time of the next stage, whether to delete the pod finally, and
    events.
    """

    status: Mapping[str, Any]
    due: float
    removes: bool
    events: tuple[LifecycleEvent, ...] = ()


def decide(pod: VirtualPod, stages: Stages, place: Place, now: float) -> PodDecision:
    """Return the decision about a pod; `due` is infinite if nothing more follows without an event."""
    seen, text = pod.status, format_time(datetime.fromtimestamp(now, UTC))
    is_leaving = pod.metadata.deletion_timestamp is not None
    if pod.is_over:
        return PodDecision({}, math.inf, _is_removed(pod))
    pod = _followed(_admitted(pod, place, text), text)
    pod, due, events = _advanced(pod, stages, now, text)
    is_final = is_leaving and not _runs(pod)
    if is_final:
        pod = _finished(pod, text)
    status = _concluded(pod, place, text, is_final=is_final)
    removes = is_final and _is_removed(pod)
    if removes and not pod.metadata.finalizers:
        return PodDecision({}, math.inf, True, tuple(events))  # its last status would not be visible
    return PodDecision(_changes(seen, status), math.inf if is_final else due, removes, tuple(events))


def _advanced(pod: VirtualPod, stages: Stages, now: float, text: str) -> tuple[VirtualPod, float, list[LifecycleEvent]]:
    """Return an admitted pod after all due steps, the time of the next one, and the events."""
    if pod.status.reason == _EXPIRED:
        return pod, math.inf, []
    events: list[LifecycleEvent] = []
    deadline = _deadline_of(pod)
    life = PodLife(pod, stages)
    due = math.inf
    for _ in range(_MOST_STEPS + _STEPS_PER_CONTAINER * sum(1 for _ in pod.containers())):
        step = life.next()
        due = math.inf if step is None else step.at
        if deadline <= min(now, due):
            expired = _killed(life.pod, text, _EXPIRED, "the pod ran for longer than its activeDeadlineSeconds")
            return expired, math.inf, events
        if step is None or step.at > now:
            break
        events += _events(step.stage, life.status(step))
        life.take(step, text)
    return life.pod, min(due, deadline), events


def _deadline_of(pod: VirtualPod) -> float:
    """Return the time of the activeDeadlineSeconds; infinite without one."""
    limit = pod.spec.active_deadline_seconds
    if limit is None or pod.metadata.deletion_timestamp is not None:
        return math.inf
    return moment(pod.status.start_time) + limit


def _changes(seen: PodStatus, status: PodStatus) -> dict[str, Any]:
    """Return the changed fields of a status."""
    changes = {_CAMEL.get(name, name): new for name, new in asdict(status).items() if new != getattr(seen, name)}
    if "conditions" in changes:  # which are merged by their types: those of others stay as they are
        changes["conditions"] = [_whole(one) for one in status.conditions if one not in seen.conditions]
    return changes


def refused(pod: VirtualPod, refusal: Refusal, now: float) -> PodDecision:
    """Return the decision for a rejected pod."""
    status = {
        "observedGeneration": pod.metadata.generation,
        "phase": "Failed",
        "reason": refusal.reason,
        "message": refusal.message,
        "startTime": format_time(datetime.fromtimestamp(now, UTC)),
    }
    return PodDecision(status, math.inf, False, (LifecycleEvent(refusal.reason, refusal.message),))


def preempted(pod: VirtualPod, place: Place, now: float) -> PodDecision:
    """Return the decision for a preempted pod."""
    text, message = format_time(datetime.fromtimestamp(now, UTC)), "Preempted in order to admit critical pod"
    seen, pod = pod.status, _killed(_admitted(pod, place, text), text, PREEMPTED, message)
    disrupted = Condition(
        type="DisruptionTarget",
        status="True",
        observed_generation=pod.metadata.generation or None,
        last_transition_time=text,
        reason="TerminationByKubelet",
        message=message,
    )
    others = tuple(one for one in pod.status.conditions if one.type != disrupted.type)
    pod = replace(pod, status=replace(pod.status, conditions=(*others, disrupted)))
    status = _concluded(pod, place, text, is_final=False)
    return PodDecision(_changes(seen, status), math.inf, False, (LifecycleEvent(PREEMPTED, message),))


def _runs(pod: VirtualPod) -> bool:
    return any(status.state.running is not None for status in pod.statuses())


def _is_removed(pod: VirtualPod) -> bool:
    """Return whether a stopped pod has to be deleted finally. A pod held only by finalizers is not deleted again."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds != 0


def _events(stage: LifecycleStage, status: ContainerStatus) -> list[LifecycleEvent]:
    if stage.to == "back-off" and not back_off(status):
        return []
    spec = stage.spec
    message = spec.message or f"stage {stage.name}"
    events = [LifecycleEvent(spec.event, f"container {status.name}: {message}")] if spec.event else []
    if stage.to == "killed":
        events.append(LifecycleEvent("Killing", f"container {status.name} is killed: {message}", "Normal"))
    return events


def _whole(condition: Condition) -> dict[str, Any]:
    """Return a condition for a patch, in which empty fields are removed."""
    return {
        "type": condition.type,
        "status": condition.status,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": condition.last_transition_time,
        "reason": condition.reason or None,
        "message": condition.message or None,
    }


# The whole status


def _admitted(pod: VirtualPod, place: Place, now: str) -> VirtualPod:
    """Return the pod with a status of each container, and the initial fields."""
    status, spec = pod.status, pod.spec
    after_others = bool(spec.init_containers)

    def all_of(
        described: tuple[Container, ...], known: tuple[ContainerStatus, ...], *, after_others: bool
    ) -> tuple[ContainerStatus, ...]:
        if len(described) == len(known) and all(a.name == b.name for a, b in zip(described, known, strict=True)):
            return known
        by_name = {one.name: one for one in known}
        return tuple(by_name.get(one.name) or containers.not_begun(one, after_others=after_others) for one in described)

    status = replace(
        status,
        phase=status.phase or "Pending",
        start_time=status.start_time or now,
        host_ip=status.host_ip or next(iter(place.host_ips), ""),
        host_ips=status.host_ips or tuple(PodIP(ip=ip) for ip in place.host_ips),
        init_container_statuses=all_of(spec.init_containers, status.init_container_statuses, after_others=after_others),
        container_statuses=all_of(spec.containers, status.container_statuses, after_others=after_others),
        ephemeral_container_statuses=all_of(
            spec.ephemeral_containers, status.ephemeral_container_statuses, after_others=False
        ),
    )
    return replace(pod, status=status)


def _followed(pod: VirtualPod, now: str) -> VirtualPod:
    """Return the pod with changed resources and images of running containers. A new image restarts its container."""
    if pod.status.observed_generation == pod.metadata.generation:
        return pod
    statuses = [
        _followed_by(pod, kind, container, status, now)
        for (kind, container), status in zip(pod.containers(), pod.statuses(), strict=True)
    ]
    return pod.with_statuses(statuses)


def _followed_by(
    pod: VirtualPod, kind: ContainerKind, container: Container, status: ContainerStatus, now: str
) -> ContainerStatus:
    if status.state.running is None:
        return status
    if status.image != container.image:
        end = containers.ended(status, kind, 0, now)
        return containers.begun(pod.metadata.uid, container, replace(end, last_state=end.state), now)
    resources = containers.allotted(container)
    if status.resources == resources:
        return status
    return replace(status, resources=resources, allocated_resources=container.resources.requests)


def _killed(pod: VirtualPod, now: str, reason: str, message: str) -> VirtualPod:
    """Return the pod after its node has killed it."""
    statuses = [
        status if status.state.running is None else containers.ended(status, kind, KILLED, now)
        for (kind, _), status in zip(pod.containers(), pod.statuses(), strict=True)
    ]
    pod = pod.with_statuses(statuses)
    return replace(pod, status=replace(pod.status, reason=reason, message=message))


def _finished(pod: VirtualPod, now: str) -> VirtualPod:
    """Return a deleted pod: containers that never ran end as unknown."""
    message = "the container did not run when its pod was deleted"
    statuses = [
        containers.ended(status, kind, KILLED, now, "ContainerStatusUnknown", message)
        if status.state.terminated is None
        else status
        for (kind, _), status in zip(pod.containers(), pod.statuses(), strict=True)
    ]
    return pod.with_statuses(statuses)


def _concluded(pod: VirtualPod, place: Place, now: str, *, is_final: bool) -> Any:
    """Return the status derived from the container states."""
    status = pod.status
    has_sandbox = any(one.state.waiting is None or state_of(one, stops=False) != "waiting" for one in pod.statuses())
    if not status.pod_ips and (has_sandbox or pod.spec.host_network):
        status = replace(
            status, pod_ip=next(iter(place.pod_ips), ""), pod_ips=tuple(PodIP(ip=ip) for ip in place.pod_ips)
        )
    phase = "Failed" if status.reason in (_EXPIRED, PREEMPTED) else phase_of(pod, is_final=is_final)
    status = replace(status, phase=phase, observed_generation=pod.metadata.generation)
    pod = replace(pod, status=status)
    return replace(status, conditions=conditions_of(pod, has_sandbox=has_sandbox, now=now))
