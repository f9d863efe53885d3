"""The life of a pod on a node: what comes next and when, by its status and the stages alone; pure.

Observed: the pod as the server has it, the stages, the time (seconds since the epoch).
Decided:                                                       by
  it has no start time                                           it is admitted (`admission.py`): addresses, statuses of
                                                                 all containers; or it fails
  init containers one by one, sidecars, then the others start    stages from `waiting`
  a container becomes started, ready, ends, is held back         stages
  its deadline is over (activeDeadlineSeconds)                   all containers are killed, phase Failed
  it is being deleted                                            stages from `stopping`, until its grace period is over
  nothing of a pod that is being deleted runs                    it is deleted for good, its final status before that
                                                                 if there are finalizers
All that is due at once is one change of its status.
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

# Steps that one decision takes: stages may lead in a circle that takes no time.
_MOST_STEPS, _STEPS_PER_CONTAINER = 1000, 10
_EXPIRED = "DeadlineExceeded"
PREEMPTED = "Preempting"
"""Why a pod ended whose room a critical one needs."""
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
    """The addresses of a node, and those that a pod has there."""

    host_ips: tuple[str, ...]
    pod_ips: tuple[str, ...]


class LifecycleEvent(NamedTuple):
    """An event about a pod."""

    reason: str
    message: str
    type: str = "Warning"


class PodDecision(NamedTuple):
    """What changes in the status of a pod, by the names of its fields; when the next stage is due; whether the pod is
    to be deleted for good; what there is to tell.
    """

    status: Mapping[str, Any]
    due: float
    removes: bool
    events: tuple[LifecycleEvent, ...] = ()


def decide(pod: VirtualPod, stages: Stages, place: Place, now: float) -> PodDecision:
    """Return what is due of a pod now; `due` is infinite if nothing more will be by itself."""
    seen, text = pod.status, format_time(datetime.fromtimestamp(now, UTC))
    is_leaving = pod.metadata.deletion_timestamp is not None
    if pod.is_over:
        return PodDecision({}, math.inf, _is_removed(pod))
    pod = _followed(_admitted(pod, place, text), text)
    pod, due, told = _advanced(pod, stages, now, text)
    is_final = is_leaving and not _runs(pod)
    if is_final:
        pod = _finished(pod, text)
    status = _concluded(pod, place, text, is_final=is_final)
    removes = is_final and _is_removed(pod)
    if removes and not pod.metadata.finalizers:
        return PodDecision({}, math.inf, True, tuple(told))  # nobody would see how it ended
    return PodDecision(_changes(seen, status), math.inf if is_final else due, removes, tuple(told))


def _advanced(pod: VirtualPod, stages: Stages, now: float, text: str) -> tuple[VirtualPod, float, list[LifecycleEvent]]:
    """Return an admitted pod after all steps that are due, when the next one is, and the events of those taken."""
    if pod.status.reason == _EXPIRED:
        return pod, math.inf, []
    told: list[LifecycleEvent] = []
    deadline = _deadline_of(pod)
    life = PodLife(pod, stages)
    due = math.inf
    for _ in range(_MOST_STEPS + _STEPS_PER_CONTAINER * sum(1 for _ in pod.containers())):
        step = life.next()
        due = math.inf if step is None else step.at
        if deadline <= min(now, due):
            expired = _killed(life.pod, text, _EXPIRED, "the pod ran for longer than its activeDeadlineSeconds")
            return expired, math.inf, told
        if step is None or step.at > now:
            break
        told += _events(step.stage, life.status(step))
        life.take(step, text)
    return life.pod, min(due, deadline), told


def _deadline_of(pod: VirtualPod) -> float:
    """Return when a pod ends by its activeDeadlineSeconds; infinite for never."""
    limit = pod.spec.active_deadline_seconds
    if limit is None or pod.metadata.deletion_timestamp is not None:
        return math.inf
    return moment(pod.status.start_time) + limit


def _changes(seen: PodStatus, status: PodStatus) -> dict[str, Any]:
    """Return what of a status is not as it was."""
    changes = {_CAMEL.get(name, name): new for name, new in asdict(status).items() if new != getattr(seen, name)}
    if "conditions" in changes:  # which are merged by their types: those of others stay as they are
        changes["conditions"] = [_whole(one) for one in status.conditions if one not in seen.conditions]
    return changes


def refused(pod: VirtualPod, refusal: Refusal, now: float) -> PodDecision:
    """Return what is to be said of a pod that its node does not take."""
    status = {
        "observedGeneration": pod.metadata.generation,
        "phase": "Failed",
        "reason": refusal.reason,
        "message": refusal.message,
        "startTime": format_time(datetime.fromtimestamp(now, UTC)),
    }
    return PodDecision(status, math.inf, False, (LifecycleEvent(refusal.reason, refusal.message),))


def preempted(pod: VirtualPod, place: Place, now: float) -> PodDecision:
    """Return what is due of a pod that ends for a critical one."""
    text, said = format_time(datetime.fromtimestamp(now, UTC)), "the room of the pod is needed for a critical one"
    seen, pod = pod.status, _killed(_admitted(pod, place, text), text, PREEMPTED, said)
    disrupted = Condition(
        type="DisruptionTarget",
        status="True",
        observed_generation=pod.metadata.generation or None,
        last_transition_time=text,
        reason="TerminationByKubelet",
        message=said,
    )
    others = tuple(one for one in pod.status.conditions if one.type != disrupted.type)
    pod = replace(pod, status=replace(pod.status, conditions=(*others, disrupted)))
    status = _concluded(pod, place, text, is_final=False)
    return PodDecision(_changes(seen, status), math.inf, False, (LifecycleEvent(PREEMPTED, said),))


def _runs(pod: VirtualPod) -> bool:
    return any(status.state.running is not None for status in pod.statuses())


def _is_removed(pod: VirtualPod) -> bool:
    """Return whether a pod of which nothing runs is to be deleted: not again, where only finalizers keep it."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds != 0


def _events(stage: LifecycleStage, status: ContainerStatus) -> list[LifecycleEvent]:
    if stage.to == "back-off" and not back_off(status):
        return []
    spec = stage.spec
    said = spec.message or f"stage {stage.name}"
    told = [LifecycleEvent(spec.event, f"container {status.name}: {said}")] if spec.event else []
    if stage.to == "killed":
        told.append(LifecycleEvent("Killing", f"container {status.name} is killed: {said}", "Normal"))
    return told


def _whole(condition: Condition) -> dict[str, Any]:
    """Return a condition for a patch, in which what is empty is taken away."""
    return {
        "type": condition.type,
        "status": condition.status,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": condition.last_transition_time,
        "reason": condition.reason or None,
        "message": condition.message or None,
    }


# The status as a whole.


def _admitted(pod: VirtualPod, place: Place, now: str) -> VirtualPod:
    """Return the pod with a status of each container, and what is known of it from the beginning."""
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
    """Return the pod with what was changed of containers that run: other resources, or another image, with which a
    container starts again.
    """
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
    """Return the pod after its node has ended it."""
    statuses = [
        status if status.state.running is None else containers.ended(status, kind, KILLED, now)
        for (kind, _), status in zip(pod.containers(), pod.statuses(), strict=True)
    ]
    pod = pod.with_statuses(statuses)
    return replace(pod, status=replace(pod.status, reason=reason, message=message))


def _finished(pod: VirtualPod, now: str) -> VirtualPod:
    """Return a pod that is gone from its node: containers that never ran end as unknown."""
    said = "the container did not run when its pod was deleted"
    statuses = [
        containers.ended(status, kind, KILLED, now, "ContainerStatusUnknown", said)
        if status.state.terminated is None
        else status
        for (kind, _), status in zip(pod.containers(), pod.statuses(), strict=True)
    ]
    return pod.with_statuses(statuses)


def _concluded(pod: VirtualPod, place: Place, now: str, *, is_final: bool) -> Any:
    """Return the status with what follows from the states of the containers."""
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
