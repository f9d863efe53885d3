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
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec.structs import asdict, replace

from controller_manager.api.conditions import Condition
from controller_manager.api.core import PodIP
from controller_manager.api.timestamps import format_time

from . import containers
from .admission import Refusal
from .containers import KILLED, state_of
from .phase import all_over, conditions_of, init_is_done, init_is_over, phase_of
from .pods import Container, ContainerStatus, PodStatus, Slot, VirtualPod, moment
from .stages import Stage, Stages, back_off

_MOST_AT_ONCE = 1000
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


class Step(NamedTuple):
    """A stage that a container comes to at a time; without a container, the deadline of its pod."""

    at: float
    stage: Stage | None = None
    slot: Slot | None = None
    container: Container | None = None
    killed: bool = False


class Told(NamedTuple):
    """An event about a pod."""

    reason: str
    message: str
    type: str = "Warning"


class Decision(NamedTuple):
    """What changes in the status of a pod, by the names of its fields; when the next stage is due; whether the pod is
    to be deleted for good; what there is to tell.
    """

    status: Mapping[str, Any]
    due: float
    removes: bool
    events: tuple[Told, ...] = ()


def decide(pod: VirtualPod, stages: Stages, place: Place, now: float) -> Decision:
    """Return what is due of a pod now; `due` is infinite if nothing more will be by itself."""
    seen, text, told = pod.status, format_time(datetime.fromtimestamp(now, UTC)), []
    is_leaving = pod.metadata.deletion_timestamp is not None
    if pod.is_over:
        return Decision({}, math.inf, _is_removed(pod))
    pod = _followed(_admitted(pod, place, text), text)
    step = next_stage(pod, stages)
    for _ in range(_MOST_AT_ONCE):
        if step is None or step.at > now:
            break
        if step.stage is not None and step.slot is not None:
            told += _events(step.stage, step.slot.of(pod))
        pod = take(pod, step, text)
        step = next_stage(pod, stages)
    is_final = is_leaving and not _runs(pod)
    if is_final:
        pod = _finished(pod, text)
    status = _concluded(pod, place, text, is_final=is_final)
    removes = is_final and _is_removed(pod)
    if removes and not pod.metadata.finalizers:
        return Decision({}, math.inf, True, tuple(told))  # nobody would see how it ended
    due = step.at if step is not None and not is_final else math.inf
    return Decision(_changes(seen, status), due, removes, tuple(told))


def _changes(seen: PodStatus, status: PodStatus) -> dict[str, Any]:
    """Return what of a status is not as it was."""
    changes = {_CAMEL.get(name, name): new for name, new in asdict(status).items() if new != getattr(seen, name)}
    if "conditions" in changes:  # which are merged by their types: those of others stay as they are
        changes["conditions"] = [_whole(one) for one in status.conditions if one not in seen.conditions]
    return changes


def refused(pod: VirtualPod, refusal: Refusal, now: float) -> Decision:
    """Return what is to be said of a pod that its node does not take."""
    status = {
        "observedGeneration": pod.metadata.generation,
        "phase": "Failed",
        "reason": refusal.reason,
        "message": refusal.message,
        "startTime": format_time(datetime.fromtimestamp(now, UTC)),
    }
    return Decision(status, math.inf, False, (Told(refusal.reason, refusal.message),))


def preempted(pod: VirtualPod, place: Place, now: float) -> Decision:
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
    return Decision(_changes(seen, status), math.inf, False, (Told(PREEMPTED, said),))


def next_stage(pod: VirtualPod, stages: Stages) -> Step | None:
    """Return what comes next of a pod that is admitted, if anything will by itself."""
    if pod.status.reason == _EXPIRED:
        return None
    return min(_steps(pod, stages), key=lambda step: step.at, default=None)


def take(pod: VirtualPod, step: Step, now: str) -> VirtualPod:
    """Return the pod after a step."""
    slot, stage, container = step.slot, step.stage, step.container
    if slot is None or stage is None or container is None:
        return _killed(pod, now, _EXPIRED, "the pod ran for longer than its activeDeadlineSeconds")
    status = slot.of(pod)
    match stage.to:
        case "blocked":
            status = containers.blocked(status, stage)
        case "running":
            status = containers.begun(pod.metadata.uid, container, status, now)
        case "started":
            status = replace(status, started=True, ready=False)
        case "ready":
            status = replace(status, ready=True)
        case "back-off":
            status = containers.held_back(status)
        case "killed":
            status = containers.ended(status, slot.kind, KILLED, now)
        case _:
            code = KILLED if step.killed else stage.exit_code(pod, container)
            status = containers.ended(status, slot.kind, code, now, stage.spec.reason, stage.spec.message)
    return slot.replaced(pod, status)


def _steps(pod: VirtualPod, stages: Stages) -> Iterator[Step]:
    """Each stage that some container may come to."""
    meta, is_leaving = pod.metadata, pod.metadata.deletion_timestamp is not None
    limit = pod.spec.active_deadline_seconds
    if limit is not None and not is_leaving:
        yield Step(moment(pod.status.start_time) + limit)
    ends = all_over(pod) or init_is_over(pod)
    if is_leaving:
        asked = moment(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0)
    else:
        asked = max(map(_done_at, pod.statuses()), default=0.0)
    for slot, container in pod.containers():
        status = slot.of(pod)
        stops = is_leaving or (ends and slot.kind == "sidecar")
        state = state_of(status, stops=stops)
        since = _since(pod, slot, status, state, asked)
        if since is None or (stops and state != "stopping"):
            continue
        if state == "terminated" and not containers.restarts(pod, slot.kind, container, status):
            continue
        if state == "blocked" and not _is_blocked(pod, stages, slot, container, status):
            state = "waiting"
        for stage in stages.of(state, pod, slot.kind, container, status.restart_count):
            if stage.to == "ready" and slot.kind in ("init", "ephemeral"):
                continue
            at = since + stage.seconds(pod, container, status)
            last = moment(meta.deletion_timestamp) if is_leaving else math.inf
            yield Step(min(at, last), stage, slot, container, killed=at > last)


def _is_blocked(pod: VirtualPod, stages: Stages, slot: Slot, container: Container, status: ContainerStatus) -> bool:
    """Return whether a stage still keeps a container from starting: its image, say, may be another one by now."""
    found = stages.of("waiting", pod, slot.kind, container, status.restart_count)
    return any(stage.to == "blocked" for stage in found)


def _since(pod: VirtualPod, slot: Slot, status: ContainerStatus, state: str, asked: float) -> float | None:
    """Return since when a container is in its state; None where that leads nowhere."""
    if state == "stopping":
        return asked
    if status.state.running is not None:
        return moment(status.state.running.started_at)
    if status.state.terminated is not None:
        return moment(status.state.terminated.finished_at)
    if not _may_start(pod, slot):
        return None
    if status.last_state.terminated is not None:
        return moment(status.last_state.terminated.finished_at)
    return max([moment(pod.status.start_time), *map(_done_at, _before(pod, slot))])


def _before(pod: VirtualPod, slot: Slot) -> tuple[ContainerStatus, ...]:
    """Return the init containers that a container has to wait for."""
    if slot.kind == "ephemeral":
        return ()
    statuses = pod.status.init_container_statuses
    return statuses if slot.kind == "main" else statuses[: slot.position]


def _may_start(pod: VirtualPod, slot: Slot) -> bool:
    before = zip(pod.spec.init_containers, _before(pod, slot), strict=False)
    return all(init_is_done(container.init_kind, status) for container, status in before)


def _done_at(status: ContainerStatus) -> float:
    """Return when a container ended, or began if it still runs."""
    state = status.state
    if state.terminated is not None:
        return moment(state.terminated.finished_at)
    return moment(state.running.started_at) if state.running is not None else 0.0


def _runs(pod: VirtualPod) -> bool:
    return any(status.state.running is not None for status in pod.statuses())


def _is_removed(pod: VirtualPod) -> bool:
    """Return whether a pod of which nothing runs is to be deleted: not again, where only finalizers keep it."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds != 0


def _events(stage: Stage, status: ContainerStatus) -> list[Told]:
    if stage.to == "back-off" and not back_off(status):
        return []
    spec = stage.spec
    said = spec.message or f"stage {stage.name}"
    told = [Told(spec.event, f"container {status.name}: {said}")] if spec.event else []
    if stage.to == "killed":
        told.append(Told("Killing", f"container {status.name} is killed: {said}", "Normal"))
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
    for slot, container in pod.containers():
        status = slot.of(pod)
        if status.state.running is None:
            continue
        if status.image != container.image:
            end = containers.ended(status, slot.kind, 0, now)
            status = replace(end, last_state=end.state)
            pod = slot.replaced(pod, containers.begun(pod.metadata.uid, container, status, now))
        elif status.resources != containers.allotted(container):
            resources = containers.allotted(container)
            changed = replace(status, resources=resources, allocated_resources=container.resources.requests)
            pod = slot.replaced(pod, changed)
    return pod


def _killed(pod: VirtualPod, now: str, reason: str, message: str) -> VirtualPod:
    """Return the pod after its node has ended it."""
    for slot, _ in pod.containers():
        status = slot.of(pod)
        if status.state.running is not None:
            pod = slot.replaced(pod, containers.ended(status, slot.kind, KILLED, now))
    return replace(pod, status=replace(pod.status, reason=reason, message=message))


def _finished(pod: VirtualPod, now: str) -> VirtualPod:
    """Return a pod that is gone from its node: containers that never ran end as unknown."""
    for slot, _ in pod.containers():
        status = slot.of(pod)
        if status.state.terminated is None:
            said = "the container did not run when its pod was deleted"
            pod = slot.replaced(pod, containers.ended(status, slot.kind, KILLED, now, "ContainerStatusUnknown", said))
    return pod


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
