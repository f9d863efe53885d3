"""Rows of the core group's other kinds, of events and of leases."""

from typing import Any

from apiserver_stub.kinds.convert import event_to_core
from apiserver_stub.kinds.printers.cells import (
    NONE,
    UNKNOWN,
    age,
    columns,
    condition,
    joined,
    name,
    part,
    since,
)
from apiserver_stub.kinds.resource_info import Printer
from apiserver_stub.kinds.schema import Tree
from controller_manager.api.platform import PLATFORM_DOMAIN

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
