"""The object, status and lease of a virtual node, and when they are updated; pure."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import HOSTNAME, REGION, RESTART_ALL_CONTAINERS, VIRTUAL_POOL, ZONE, Node
from controller_manager.common.api.platform import API_VERSION, PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import time_of

from .stages import DOMAIN

OF_FLAGS = "flags"
"""The pool of the nodes of --virtual-nodes."""
SILENT = f"{DOMAIN}/silent"
"""The annotation that makes a node appear disconnected."""
STATUS_EVERY = 300.0
"""Seconds between two status updates of an unchanged node, as of kubelets."""
CONDITIONS_ANNOTATION = f"{DOMAIN}/conditions"
"""The annotation with conditions of an unhealthy node, such as `Ready=False,DiskPressure=True`."""
# The conditions by type: the healthy status, and the reasons of True and False.
_CONDITIONS = {
    "MemoryPressure": ("False", {"True": "KubeletHasInsufficientMemory", "False": "KubeletHasSufficientMemory"}),
    "DiskPressure": ("False", {"True": "KubeletHasDiskPressure", "False": "KubeletHasNoDiskPressure"}),
    "PIDPressure": ("False", {"True": "KubeletHasInsufficientPID", "False": "KubeletHasSufficientPID"}),
    "Ready": ("True", {"True": "KubeletReady", "False": "KubeletNotReady"}),
}


class NodeSettings(NamedTuple):
    """Settings of all virtual nodes: capacity, kubelet address, zones."""

    capacity: Mapping[str, str]
    hostname: str = ""
    port: int = 0
    zones: Sequence[str] = ()


def name_of(number: int) -> str:
    """Return the name of the node with that number, starting at 0."""
    return f"virtual-node-{number + 1}"


def is_virtual(node: Node) -> bool:
    """Return whether a node is virtual and not silent."""
    meta = node.metadata
    return VIRTUAL_POOL in (meta.labels or {}) and (meta.annotations or {}).get(SILENT, "") != "true"


def conditions_of(node: Node | None) -> dict[str, str]:
    """Return the statuses of the conditions: healthy ones, overridden by the annotation."""
    statuses = {kind: status for kind, (status, _) in _CONDITIONS.items()}
    given = (node.metadata.annotations or {}).get(CONDITIONS_ANNOTATION, "") if node is not None else ""
    for kind, _, status in (one.strip().partition("=") for one in given.split(",")):
        if kind in statuses and status in ("True", "False"):
            statuses[kind] = status
    return statuses


def registration(name: str, number: int, settings: NodeSettings, address: str, now: str) -> dict[str, Any]:
    """Return the node to register, including its status."""
    zone = settings.zones[number % len(settings.zones)] if settings.zones else ""
    places = {ZONE: zone, REGION: "virtual"} if zone else {}
    labels = {**labels_of(name), VIRTUAL_POOL: OF_FLAGS, **places}
    meta = {"name": name, "labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status_of(None, settings, address, now)}


def labels_of(name: str) -> dict[str, str]:
    """Return the well-known labels of a node."""
    usual = {"os": "linux", "arch": "amd64"}
    return {
        HOSTNAME: name,
        **{f"{PLATFORM_DOMAIN}/{key}": value for key, value in usual.items()},
        **{f"beta.{PLATFORM_DOMAIN}/{key}": value for key, value in usual.items()},
    }


def status_of(node: Node | None, settings: NodeSettings, address: str, now: str) -> dict[str, Any]:
    """Return the status of a node. Its capacity is kept if it is set."""
    known = node.status if node is not None else None
    has_room = known is not None and bool(known.allocatable)
    room = {} if has_room else {"capacity": dict(settings.capacity), "allocatable": dict(settings.capacity)}
    addresses = [{"type": "InternalIP", "address": address}]
    if settings.hostname:
        addresses.append({"type": "InternalDNS", "address": settings.hostname})
    number = f"{zlib.crc32(address.encode()):08x}"
    return {
        **room,
        "addresses": addresses,
        "conditions": [_condition(node, kind, status, now) for kind, status in conditions_of(node).items()],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.port}},
        "declaredFeatures": [RESTART_ALL_CONTAINERS],
        "nodeInfo": {
            "machineID": number,
            "systemUUID": number,
            "bootID": number,
            "kernelVersion": "virtual",
            "osImage": "virtual",
            "containerRuntimeVersion": "virtual://1",
            "kubeletVersion": f"v{API_VERSION}.0",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def reports_now(node: Node, settings: NodeSettings, address: str, now: float) -> bool:
    """Return whether a status update is due: none yet, too old, or wrong."""
    status = node.status
    addresses = {one.type: one.address for one in status.addresses}
    if addresses.get("InternalIP") != address or addresses.get("InternalDNS", "") != settings.hostname:
        return True
    if not status.allocatable:
        return True
    if status.daemon_endpoints.kubelet_endpoint.port != settings.port:
        return True
    if RESTART_ALL_CONTAINERS not in status.declared_features:
        return True
    for kind, expected in conditions_of(node).items():
        found = condition_of(status.conditions, kind)
        if found is None or found.status != expected:
            return True
    return until_report(node, now) <= 0


def until_report(node: Node, now: float) -> float:
    """Return the seconds until the next status update."""
    ready = condition_of(node.status.conditions, "Ready")
    beat = time_of(ready.last_heartbeat_time) if ready is not None else None
    return STATUS_EVERY - (now - beat.timestamp()) if beat is not None else 0.0


def _condition(node: Node | None, kind: str, status: str, now: str) -> dict[str, str]:
    usual, reasons = _CONDITIONS[kind]
    found = condition_of(node.status.conditions, kind) if node is not None else None
    since = found.last_transition_time if found is not None and found.status == status else None
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
        "reason": reasons[status],
        "message": "virtual nodes are always healthy" if status == usual else f"set by {CONDITIONS_ANNOTATION}",
    }
