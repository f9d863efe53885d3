"""Builders of workloads, and readers of their pods and events."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.apps import (
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    DaemonSet,
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from controller_manager.common.api.core import EVENTS, PODS, Pod, is_pod_ready, is_pod_terminal
from controller_manager.common.api.resource import Key
from controller_manager.framework import controller_of
from controller_manager.testing import Cluster
from controllers.daemon_set.placement import node_of
from controllers.deployment.templates import HASH

Tree = dict[str, Any]


def template(image: str = "example.org/app:1", **labels: str) -> Tree:
    """Return a pod template with a field that no controller models."""
    container = {"name": "main", "image": image, "env": [{"name": "A", "value": "b"}]}
    return {"metadata": {"labels": labels or {"app": "web"}}, "spec": {"containers": [container]}}


def replica_set(name: str = "web", replicas: int = 3, **spec: Any) -> ReplicaSet:
    labels = {"app": name}
    given = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(**labels), **spec}
    return ReplicaSet.decode(_json(REPLICA_SETS, name, given))


def replication_controller(name: str = "web", replicas: int = 3, **spec: Any) -> ReplicationController:
    given = {"replicas": replicas, "selector": {"app": name}, "template": template(app=name), **spec}
    return ReplicationController.decode(_json(REPLICATION_CONTROLLERS, name, given))


def deployment(name: str = "web", replicas: int = 3, image: str = "example.org/app:1", **spec: Any) -> Deployment:
    labels = {"app": name}
    made = template(image, **labels)
    given = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": made, **spec}
    return Deployment.decode(_json(DEPLOYMENTS, name, given))


def daemon_set(name: str = "web", image: str = "example.org/app:1", **spec: Any) -> DaemonSet:
    labels = {"app": name}
    given = {"selector": {"matchLabels": labels}, "template": template(image, **labels), **spec}
    return DaemonSet.decode(_json(DAEMON_SETS, name, given))


def stateful_set(name: str = "web", replicas: int = 3, image: str = "example.org/app:1", **spec: Any) -> StatefulSet:
    labels = {"app": name}
    made = {"selector": {"matchLabels": labels}, "serviceName": name, "template": template(image, **labels)}
    return StatefulSet.decode(_json(STATEFUL_SETS, name, {"replicas": replicas, **made, **spec}))


def claim_template(name: str = "data", **metadata: Any) -> Tree:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def _json(kind: Any, name: str, spec: Tree) -> bytes:
    meta = {"name": name, "namespace": "default"}
    return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec})


async def pods(cluster: Cluster) -> list[Pod]:
    return (await cluster.client.list(PODS, "default")).items


async def owned(cluster: Cluster, owner: str = "web") -> list[Pod]:
    """Return the pods with a controller of that name that are not being deleted."""
    found = [(controller_of(pod), pod) for pod in await pods(cluster)]
    return [pod for ref, pod in found if ref and ref.name == owner and pod.metadata.deletion_timestamp is None]


async def label(cluster: Cluster, pod: Pod, **labels: str | None) -> None:
    await cluster.client.patch(PODS, Key("default", pod.metadata.name), {"metadata": {"labels": labels}})


async def set_status(cluster: Cluster, pod: Pod, **status: Any) -> None:
    await cluster.client.patch(PODS, Key("default", pod.metadata.name), {"status": status}, subresource="status")


async def events(cluster: Cluster) -> list[tuple[str, str]]:
    """Return type and reason of each event, in write order."""
    listed = (await cluster.client.list(EVENTS, "default")).items
    found = sorted(listed, key=lambda event: int(event.metadata.resource_version))
    return [(event.type, event.reason) for event in found]


class Counted:
    """Records the numbers of active and ready pods after each change, in all and by node."""

    def __init__(self, cluster: Cluster) -> None:
        rows = cluster.api.store.snapshot(PODS.name).items()
        self._pods: dict[str, Pod] = {row.key: Pod.decode(row.data) for row in rows}
        self.active: list[int] = []
        self.ready: list[int] = []
        self.templates: list[int] = []
        """Numbers of templates of unfinished pods, after each change."""
        self.on_nodes: list[Counter[str]] = []
        self.ready_on_nodes: list[Counter[str]] = []
        cluster.api.store.subscribe(self._note)

    def _note(self, changes: Sequence[Change]) -> None:
        for one in changes:
            if one.row.resource == PODS.name:
                self._take(one)
        alive = [pod for pod in self._pods.values() if not is_pod_terminal(pod)]
        active = [pod for pod in alive if pod.metadata.deletion_timestamp is None]
        self.active.append(len(active))
        self.ready.append(sum(map(is_pod_ready, active)))
        self.templates.append(len({(pod.metadata.labels or {}).get(HASH) for pod in alive}))
        self.on_nodes.append(Counter(map(node_of, active)))
        self.ready_on_nodes.append(Counter(node_of(pod) for pod in active if is_pod_ready(pod)))

    def _take(self, one: Change) -> None:
        if one.deleted:
            self._pods.pop(one.row.key, None)
        else:
            self._pods[one.row.key] = Pod.decode(one.row.data)
