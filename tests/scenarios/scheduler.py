"""Builders of nodes and pods for the scheduler, and readers of its events and conditions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import EVENTS, NODES, PODS, Node, Pod
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controllers.scheduler.pod_requirements import nominated_node

FLAGS = ("--leader-elect=false", "--controllers=scheduler")
Tree = Mapping[str, Any]


async def make_node(cluster: Cluster, name: str, cpu: str = "4", pods: str = "110", **parts: Any) -> None:
    labels = {"kubernetes.io/hostname": name, **parts.pop("labels", {})}
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": pods}
    tree = {"metadata": {"name": name, "labels": labels}, "spec": parts, "status": {"allocatable": allocatable}}
    await cluster.client.create(NODES, Node.decode(msgspec.json.encode(tree)))
    taints = parts.get("taints", [])  # remove the not-ready taint of a new node
    await cluster.client.patch(NODES, Key("", name), {"spec": {"taints": taints}})


async def make_pod(cluster: Cluster, name: str, cpu: str = "1", labels: Tree | None = None, **spec: Any) -> None:
    container = {"name": "c", "image": "example.org/app:1", "resources": {"requests": {"cpu": cpu}}}
    tree = {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }
    await cluster.client.create(PODS, Pod.decode(msgspec.json.encode(tree)))


async def nodes_of(cluster: Cluster) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in (await cluster.client.list(PODS, "default")).items}


async def events_of(cluster: Cluster, reason: str) -> list[str]:
    return [one.message for one in (await cluster.client.list(EVENTS, "default")).items if one.reason == reason]


async def condition(cluster: Cluster, name: str) -> tuple[str, str, str]:
    pod = await cluster.client.get(PODS, Key("default", name))
    found = condition_of(pod.status.conditions, "PodScheduled")
    assert found is not None
    return found.status, found.reason, found.message


async def nominated(cluster: Cluster) -> str:
    return nominated_node(await cluster.client.get(PODS, Key("default", "p")))
