"""Rows of pods, other kinds of the core group, events and leases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apiserver_stub.kinds.conversions import event_to_core
from apiserver_stub.kinds.printers.cells import (
    NONE,
    UNKNOWN,
    Since,
    age,
    columns,
    condition,
    containers,
    deleting,
    joined,
    labels,
    name,
    part,
    since,
)
from apiserver_stub.kinds.resource_info import Printer
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree

_GATED = "SchedulingGated"
_LOST = "NodeLost"
_ENDED: Mapping[str, str] = {
    "Succeeded": "All containers have ended, none of them in failure.",
    "Failed": "All containers have ended, at least one of them in failure.",
}


@dataclass(slots=True)
class _Restarts:
    """The number of restarts and the time of the last one."""

    count: int = 0
    last: str = ""

    def add(self, container: Tree) -> None:
        self.count += container.get("restartCount", 0)
        self.last = max(self.last, part(container, "lastState", "terminated").get("finishedAt") or "")

    def cell(self) -> Since | str:
        return Since(self.last, f"{self.count} (", " ago)") if self.count and self.last else str(self.count)


@dataclass(frozen=True, slots=True)
class _Phase:
    """The state of a group of containers: the reason to show for the pod (may be empty), the number of ready
    containers, and the restarts.
    """

    reason: str
    ready: int
    restarts: _Restarts


def _pod(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    phase, lasting = _initializing(spec, status)
    if not phase.reason or condition(tree, "Initialized") == "True":
        phase = _running(tree, phase, lasting)
    reason = _deletion(tree) or phase.reason or _status_reason(status)
    total = len(spec.get("containers") or ()) + len(_sidecars(spec))
    return [
        name(tree),
        f"{phase.ready}/{total}",
        reason,
        phase.restarts.cell(),
        age(tree),
        _pod_ip(status) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(tree, spec),
    ]


def _pod_conditions(tree: Tree) -> list[Tree]:
    """Return the row condition of a finished pod."""
    phase = part(tree, "status").get("phase", "")
    message = _ENDED.get(phase)
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}] if message else []


def _pod_template(tree: Tree) -> list[Any]:
    template = part(tree, "template")
    return [name(tree), *containers(template), labels(part(template, "metadata").get("labels"))]


def _initializing(spec: Tree, status: Tree) -> tuple[_Phase, _Restarts]:
    """Return the state of the init containers and the restarts of sidecars. Once the reason is empty, initialization is
    done and only the sidecars' restarts count.
    """
    sidecars = _sidecars(spec)
    every, lasting, ready = _Restarts(), _Restarts(), 0
    for place, container in enumerate(status.get("initContainerStatuses", ())):
        state, is_sidecar = part(container, "state"), container.get("name") in sidecars
        every.add(container)
        if is_sidecar:
            lasting.add(container)
        if "terminated" in state and not state["terminated"].get("exitCode", 0):
            continue
        if is_sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        progress = f"{place}/{len(spec.get('initContainers', ()))}"
        return _Phase(f"Init:{_init_reason(state) or progress}", ready, every), lasting
    return _Phase("", ready, every), lasting


def _init_reason(state: Tree) -> str:
    if "terminated" in state:
        return _ended(state["terminated"])
    waiting = str(part(state, "waiting").get("reason", ""))
    return waiting if waiting != "PodInitializing" else ""


def _running(tree: Tree, init: _Phase, restarts: _Restarts) -> _Phase:
    """Return the state of the main containers. The first container's reason wins."""
    status = part(tree, "status")
    reason, ready = init.reason, init.ready
    running, failure = False, ""
    for container in reversed(status.get("containerStatuses", ())):
        state = part(container, "state")
        restarts.add(container)
        if part(state, "waiting").get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _ended(state["terminated"])
            failure = reason if state["terminated"].get("exitCode", 0) else failure
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if (reason or _status_reason(status)) == "Completed":
        reason = _completed(tree, running, failure)
    return _Phase(reason, ready, restarts)


def _completed(tree: Tree, running: bool, failure: str) -> str:
    """Return the reason of a pod with a completed container. Containers that still run take precedence."""
    if running and condition(tree, "Ready") == "True":
        return "Running"
    return failure or ("NotReady" if running else "Completed")


def _ended(terminated: Tree) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    signal = terminated.get("signal", 0)
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _status_reason(status: Tree) -> str:
    """Return the reason that the status gives: SchedulingGated, its `reason`, or its phase."""
    gated = any(c.get("type") == "PodScheduled" and c.get("reason") == _GATED for c in status.get("conditions", ()))
    return _GATED if gated else str(status.get("reason") or status.get("phase", ""))


def _deletion(tree: Tree) -> str:
    status = part(tree, "status")
    if not deleting(tree):
        return ""
    if status.get("reason") == _LOST:
        return "Unknown"
    return "" if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def _sidecars(spec: Tree) -> set[str]:
    return {c.get("name", "") for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"}


def _pod_ip(status: Tree) -> str:
    first: Tree = next(iter(status.get("podIPs", ())), {})
    return str(first.get("ip") or status.get("podIP", ""))


def _gates(tree: Tree, spec: Tree) -> str:
    gates = spec.get("readinessGates", ())
    open_gates = sum(condition(tree, gate.get("conditionType", "")) == "True" for gate in gates)
    return f"{open_gates}/{len(gates)}" if gates else NONE


_ROLE = f"node-role.{PLATFORM_DOMAIN}/"
_OLD_ROLE = f"{PLATFORM_DOMAIN}/role"


def _namespace(tree: Tree) -> list[Any]:
    return [name(tree), part(tree, "status").get("phase", ""), age(tree)]


def _node(tree: Tree) -> list[Any]:
    status = part(tree, "status")
    info = part(status, "nodeInfo")
    return [
        name(tree),
        _node_state(tree),
        joined(_roles(part(tree, "metadata").get("labels") or {})),
        age(tree),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _config_map(tree: Tree) -> list[Any]:
    return [name(tree), len(part(tree, "data")) + len(part(tree, "binaryData")), age(tree)]


def _secret(tree: Tree) -> list[Any]:
    return [name(tree), tree.get("type", ""), len(part(tree, "data")), age(tree)]


def _service_account(tree: Tree) -> list[Any]:
    return [name(tree), age(tree)]


def _resource_quota(tree: Tree) -> list[Any]:
    hard, used = part(tree, "status", "hard"), part(tree, "status", "used")
    texts = {resource: f"{resource}: {used.get(resource, '0')}/{hard[resource]}" for resource in sorted(hard)}
    requests = ", ".join(text for resource, text in texts.items() if not resource.startswith("limits."))
    limits = ", ".join(text for resource, text in texts.items() if resource.startswith("limits."))
    return [name(tree), requests, limits, age(tree)]


def _component_status(tree: Tree) -> list[Any]:
    healthy: Tree = next((c for c in tree.get("conditions", ()) if c.get("type") == "Healthy"), {})
    states = {"True": "Healthy", None: "Unknown"}
    state = states.get(healthy.get("status"), "Unhealthy")
    return [name(tree), state, healthy.get("message", ""), healthy.get("error", "")]


def _event(tree: Tree) -> list[Any]:
    regarding, series = part(tree, "involvedObject"), part(tree, "series")
    first = tree.get("firstTimestamp") or tree.get("eventTime")
    last = tree.get("lastTimestamp") or first
    kind, target = str(regarding.get("kind", "")).lower(), regarding.get("name", "")
    return [
        since(series.get("lastObservedTime") if series else last),
        tree.get("type", ""),
        tree.get("reason", ""),
        f"{kind}/{target}" if target else kind,
        regarding.get("fieldPath", ""),
        _source(tree),
        str(tree.get("message", "")).strip(),
        since(first),
        series.get("count", 0) if series else tree.get("count") or 1,
        name(tree),
    ]


def _grouped_event(tree: Tree) -> list[Any]:
    return _event(event_to_core(tree))


def _lease(tree: Tree) -> list[Any]:
    return [name(tree), part(tree, "spec").get("holderIdentity", ""), age(tree)]


def _node_state(tree: Tree) -> str:
    ready = condition(tree, "Ready")
    state = ("Ready" if ready == "True" else "NotReady") if ready else "Unknown"
    return f"{state},SchedulingDisabled" if part(tree, "spec").get("unschedulable") else state


def _roles(labels: dict[str, str]) -> list[str]:
    found = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {labels.get(_OLD_ROLE, "")}
    return sorted(found - {""})


def _address(status: Tree, type_: str) -> str:
    return next((a.get("address", "") for a in status.get("addresses", ()) if a.get("type") == type_), NONE)


def _source(tree: Tree) -> str:
    source = part(tree, "source")
    component = source.get("component") or tree.get("reportingComponent", "")
    host = source.get("host") or tree.get("reportingInstance")
    return f"{component}, {host}" if host else component


PRINTERS = {
    ("", "Pod"): Printer(columns("pod"), _pod, _pod_conditions),
    ("", "PodTemplate"): Printer(columns("podTemplate"), _pod_template),
    ("", "ComponentStatus"): Printer(columns("componentStatus"), _component_status),
    ("", "ConfigMap"): Printer(columns("configMap"), _config_map),
    ("", "Event"): Printer(columns("event"), _event),
    ("events.k8s.io", "Event"): Printer(columns("event"), _grouped_event),
    ("", "Namespace"): Printer(columns("namespace"), _namespace),
    ("", "Node"): Printer(columns("node"), _node),
    ("", "ResourceQuota"): Printer(columns("resourceQuota"), _resource_quota),
    ("", "Secret"): Printer(columns("secret"), _secret),
    ("", "ServiceAccount"): Printer(columns("serviceAccount"), _service_account),
    ("coordination.k8s.io", "Lease"): Printer(columns("lease"), _lease),
}
