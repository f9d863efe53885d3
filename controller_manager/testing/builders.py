"""Builders of objects for tests."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.common.api.apps import Deployment
from controller_manager.common.api.core import HOSTNAME, VIRTUAL_POOL, Namespace, Node, Pod, Service
from controller_manager.common.api.tree import Tree

__all__ = ["deployment", "namespace", "pod", "service", "virtual_node"]

ROOM: Mapping[str, str] = MappingProxyType({"cpu": "32", "memory": "256Gi", "pods": "110"})
"""The default capacity of a virtual node."""


def namespace(name: str) -> Namespace:
    """Return a namespace."""
    return Namespace.decode(_json("Namespace", name, "", {}))


def virtual_node(name: str, labels: Mapping[str, str], capacity: Mapping[str, str]) -> Node:
    """Return a node that the virtual-node-controller manages; `capacity` is also its allocatable."""
    room = dict(capacity)
    parts = {"status": {"capacity": room, "allocatable": room}}
    return Node.decode(_json("Node", name, "", parts, labels={HOSTNAME: name, VIRTUAL_POOL: "kit", **labels}))


def pod(
    name: str,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    ip: str = "",
    ready: bool = True,
    ports: Mapping[str, int] | None = None,
    **metadata: Any,
) -> Pod:
    """Return a pod with one container and named `ports`. With an `ip`, its status is Running, with the readiness.

    The server drops the status of a created pod: write it with `update(..., subresource="status")`.
    """
    offered = [{"name": port, "containerPort": number} for port, number in (ports or {}).items()]
    spec = {"containers": [{"name": "main", "image": "example.org/app:1", "ports": offered}]}
    parts: Tree = {"spec": spec, "status": running(ip, ready=ready) if ip else {}}
    return Pod.decode(_json("Pod", name, namespace, parts, labels=dict(labels or {}), **metadata))


def running(ip: str, *, ready: bool = True) -> Tree:
    """Return the status of a running pod."""
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}


def deployment(
    name: str, replicas: int = 1, *, namespace: str = "default", image: str = "example.org/app:1", **spec: Any
) -> Deployment:
    """Return a deployment of pods with one container and the label `app`, whose value is the deployment's name."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    given = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    return Deployment.decode(_json("Deployment", name, namespace, {"spec": given}, api_version="apps/v1"))


def service(
    name: str,
    selector: Mapping[str, str] | None = None,
    *,
    namespace: str = "default",
    ports: Mapping[str, int | str] | None = None,
    **spec: Any,
) -> Service:
    """Return a service for `ports` (name to target port) of the selected pods; its own ports start at 80."""
    offered = [
        {"name": port, "port": 80 + index, "targetPort": target}
        for index, (port, target) in enumerate((ports or {"http": 80}).items())
    ]
    chosen = {"selector": dict(selector)} if selector else {}
    return Service.decode(_json("Service", name, namespace, {"spec": {"ports": offered, **chosen, **spec}}))


def _json(kind: str, name: str, namespace: str, parts: Tree, api_version: str = "v1", **metadata: Any) -> bytes:
    scope = {"namespace": namespace} if namespace else {}
    meta = {"name": name, **scope, **metadata}
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind, "metadata": meta, **parts})
