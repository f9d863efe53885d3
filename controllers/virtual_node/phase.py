"""The phase and the conditions of a pod, derived from its container states; pure."""

from collections.abc import Iterator

from controller_manager.common.api.conditions import Condition, condition_of, is_condition_true, with_conditions

from .containers import restarts
from .pods import Container, ContainerKind, ContainerStatus, VirtualPod

_TRUE, _FALSE = "True", "False"


def init_is_done(kind: ContainerKind, status: ContainerStatus) -> bool:
    """Return whether containers after an init container may start: it has succeeded, or the sidecar has started."""
    end = status.state.terminated
    return bool(status.started) if kind == "sidecar" else end is not None and end.exit_code == 0


def init_is_over(pod: VirtualPod) -> bool:
    """Return whether an init container has failed finally."""
    return any(init_has_failed(pod, kind, container, status) for kind, container, status in _inits(pod))


def init_has_failed(pod: VirtualPod, kind: ContainerKind, container: Container, status: ContainerStatus) -> bool:
    """Return whether an init container that is not a sidecar has failed and is not restarted."""
    return kind == "init" and _failed(status) and not restarts(pod, kind, container, status)


def all_over(pod: VirtualPod) -> bool:
    """Return whether all main containers have ended finally."""
    mains = zip(pod.spec.containers, pod.status.container_statuses, strict=False)
    return all(
        status.state.terminated is not None and not restarts(pod, "main", container, status)
        for container, status in mains
    )


def phase_of(pod: VirtualPod, *, is_final: bool) -> str:
    """Return the phase. A pod without running containers has ended if `is_final`."""
    mains = pod.status.container_statuses
    sidecar_runs = any(one.state.running is not None for one in pod.status.init_container_statuses)
    over = all_over(pod) or init_is_over(pod)
    if is_final or (over and not sidecar_runs):
        has_failed = any(map(_failed, mains)) or (not all_over(pod) and init_is_over(pod))
        return "Failed" if has_failed else "Succeeded"
    if not _is_initialized(pod):
        return "Pending"
    if any(one.state.waiting is not None and one.last_state.terminated is None for one in mains):
        return "Pending"
    return "Running"


def conditions_of(pod: VirtualPod, *, has_sandbox: bool, now: str) -> tuple[Condition, ...]:
    """Return the conditions: those of this node, and foreign ones unchanged."""
    is_over = pod.is_over
    ready = _ready_containers(pod)
    conditions = (
        _condition(pod, "PodReadyToStartContainers", has_sandbox and not is_over),
        _initialized(pod),
        _with_gates(pod, ready),
        _condition(pod, "ContainersReady", ready[0], *ready[1:]),
    )
    known = {one.type for one in pod.status.conditions}
    merged = with_conditions(pod.status.conditions, conditions, now)
    if known:
        return merged
    return tuple(sorted(merged, key=lambda one: one.type == "PodScheduled"))


def _inits(pod: VirtualPod) -> Iterator[tuple[ContainerKind, Container, ContainerStatus]]:
    for container, status in zip(pod.spec.init_containers, pod.status.init_container_statuses, strict=False):
        yield container.init_kind, container, status


def _is_initialized(pod: VirtualPod) -> bool:
    """Return whether the main containers may start or have started. Sidecars that stop later still count as started."""
    has_begun = any(one.container_id for one in pod.status.container_statuses)
    return all(init_is_done(kind, status) or (has_begun and kind == "sidecar") for kind, _, status in _inits(pod))


def _failed(status: ContainerStatus) -> bool:
    end = status.state.terminated
    return end is not None and end.exit_code != 0


def _initialized(pod: VirtualPod) -> Condition:
    if pod.status.phase == "Succeeded":
        return _condition(pod, "Initialized", True, "PodCompleted")
    if _is_initialized(pod):
        return _condition(pod, "Initialized", True)
    left = [container.name for kind, container, status in _inits(pod) if not init_is_done(kind, status)]
    return _condition(pod, "Initialized", False, "ContainersNotInitialized", f"not complete: {', '.join(left)}")


def _ready_containers(pod: VirtualPod) -> tuple[bool, str, str]:
    """Return whether all containers are ready, else the reason and message."""
    phase = pod.status.phase
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == "Failed":
        return False, "PodFailed", ""
    sidecars = [status for kind, _, status in _inits(pod) if kind == "sidecar"]
    left = [one.name for one in (*sidecars, *pod.status.container_statuses) if not one.ready]
    return (False, "ContainersNotReady", f"not ready: {', '.join(left)}") if left else (True, "", "")


def _with_gates(pod: VirtualPod, ready: tuple[bool, str, str]) -> Condition:
    """Return the condition Ready: containers and readiness gates (KEP-580)."""
    if not ready[0]:
        return _condition(pod, "Ready", *ready)
    kinds = [gate.condition_type for gate in pod.spec.readiness_gates]
    closed = [kind for kind in kinds if not is_condition_true(pod.status.conditions, kind)]
    if not closed:
        return _condition(pod, "Ready", True)
    gates = [f"{kind} is {_gate_status(pod, kind)}" for kind in closed]
    return _condition(pod, "Ready", False, "ReadinessGatesNotReady", f"readiness gates: {', '.join(gates)}")


def _gate_status(pod: VirtualPod, kind: str) -> str:
    found = condition_of(pod.status.conditions, kind)
    return "not there" if found is None else found.status


def _condition(pod: VirtualPod, kind: str, is_true: bool, reason: str = "", message: str = "") -> Condition:
    return Condition(
        type=kind,
        status=_TRUE if is_true else _FALSE,
        observed_generation=pod.metadata.generation or None,
        reason=reason,
        message=message,
    )
