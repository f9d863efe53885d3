"""The states of one container and the transitions between them; pure. Times are texts of the API."""

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from .pods import (
    Container,
    ContainerKind,
    ContainerState,
    ContainerStatus,
    Resources,
    RestartRule,
    Running,
    Terminated,
    VirtualPod,
    Waiting,
)
from .stages import LifecycleStage, back_off

KILLED = 137
_NOT_BEGUN = ("", "ContainerCreating", "PodInitializing")
_BACK_OFF = "CrashLoopBackOff"
_EMPTY = ContainerState()


def state_of(status: ContainerStatus, *, stops: bool) -> str:
    """Return the state for the stages; `stops` means that a running container has to end."""
    state = status.state
    if state.terminated is not None:
        return "terminated"
    if state.running is not None:
        if stops:
            return "stopping"
        return "running" if not status.started else "ready" if status.ready else "started"
    reason = state.waiting.reason if state.waiting is not None else ""
    return "back-off" if reason == _BACK_OFF else "waiting" if reason in _NOT_BEGUN else "blocked"


def not_begun(container: Container, *, after_others: bool) -> ContainerStatus:
    """Return the initial status of a container. `after_others` means that init containers have to end first."""
    waiting = Waiting(reason="PodInitializing" if after_others else "ContainerCreating")
    return ContainerStatus(
        name=container.name,
        state=ContainerState(waiting=waiting),
        last_state=_EMPTY,
        ready=False,
        restart_count=0,
        image=container.image,
        image_id="",
        started=False,
        allocated_resources=container.resources.requests,
        resources=allotted(container),
    )


def allotted(container: Container) -> Resources:
    """Return the resources of a container: all that it requests."""
    return Resources(limits=container.resources.limits, requests=container.resources.requests)


def blocked(status: ContainerStatus, stage: LifecycleStage) -> ContainerStatus:
    """Return the status of a container that cannot start."""
    waiting = Waiting(reason=stage.spec.reason or "ErrImagePull", message=stage.spec.message)
    return replace(status, state=ContainerState(waiting=waiting))


def held_back(status: ContainerStatus) -> ContainerStatus:
    """Return the status of an ended container before its restart."""
    message = f"the next start is held back for {back_off(status):g}s, since the container ended"
    waiting = Waiting(reason=_BACK_OFF, message=message)
    return replace(status, state=ContainerState(waiting=waiting), last_state=status.state)


def begun(uid: str, container: Container, status: ContainerStatus, now: str) -> ContainerStatus:
    """Return the status of a container that starts or restarts."""
    ended = status.last_state.terminated
    restarts = status.restart_count + (1 if ended is not None else 0)
    number = hashlib.sha256(f"{uid}/{container.name}/{restarts}".encode()).hexdigest()
    return replace(
        status,
        state=ContainerState(running=Running(started_at=now)),
        restart_count=restarts,
        ready=False,
        started=False,
        image=container.image,
        image_id=_image_id(container.image),
        container_id=f"containerd://{number}",
        allocated_resources=container.resources.requests,
        resources=allotted(container),
        volume_mounts=_mounts(container) or status.volume_mounts,
    )


def ended(
    status: ContainerStatus, kind: ContainerKind, code: int, now: str, reason: str = "", message: str = ""
) -> ContainerStatus:
    """Return the status of a container that ends with that exit code."""
    started = status.state.running.started_at if status.state.running is not None else None
    end = Terminated(
        exit_code=code,
        reason=reason or ("Error" if code else "Completed"),
        message=message,
        started_at=started,
        finished_at=now,
        container_id=status.container_id,
    )
    is_ready = kind == "init" and code == 0
    return replace(status, state=ContainerState(terminated=end), ready=is_ready, started=False)


def restarts(pod: VirtualPod, kind: ContainerKind, container: Container, status: ContainerStatus) -> bool:
    """Return whether an ended container is restarted, as long as its pod should run."""
    end = status.state.terminated
    if end is None or kind == "ephemeral":
        return False
    if any(_matches(rule, end.exit_code) for rule in container.restart_policy_rules):
        return True
    policy = container.restart_policy or pod.spec.restart_policy
    if policy == "Never" or (kind == "init" and end.exit_code == 0):
        return False
    return policy == "Always" or end.exit_code != 0


def _matches(rule: RestartRule, code: int) -> bool:
    codes = rule.exit_codes
    return codes is not None and rule.action == "Restart" and (code in codes.values) == (codes.operator == "In")


def _image_id(image: str) -> str:
    name, _, last = image.partition("@")[0].rpartition("/")
    path = f"{name}/{last.partition(':')[0]}" if name else last.partition(":")[0]
    return f"{path}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _mounts(container: Container) -> msgspec.Raw | None:
    listed = [_mount(one.name, one.mount_path, read_only=one.read_only) for one in container.volume_mounts]
    return msgspec.Raw(msgspec.json.encode(listed)) if listed else None


def _mount(name: str, path: str, *, read_only: bool) -> Mapping[str, object]:
    more = {"readOnly": True, "recursiveReadOnly": "Disabled"} if read_only else {}
    return {"name": name, "mountPath": path, **more}
