"""Builders of a service with pods and nodes, and readers of its endpoint slices."""

from typing import Any

import msgspec

from controller_manager.common.api.core import EVENTS, NODES, PODS, SERVICES, ZONE, Node, Service
from controller_manager.common.api.discovery import ENDPOINT_SLICES, MANAGED_BY, EndpointSlice
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster, builders
from controllers.endpoint_slices.decide import MANAGER

WEB = Key("default", "web")
ONLY = ("--leader-elect=false", "--controllers=endpointslice")


def node(name: str, zone: str = "", cpu: str = "4", ready: bool = True) -> Node:
    labels = {ZONE: zone} if zone else {}
    status = {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": str(ready)}]}
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    return Node.decode(msgspec.json.encode(tree))


async def run_node(cluster: Cluster, wanted: Node) -> None:
    made = await cluster.client.create(NODES, wanted)
    await cluster.client.update(NODES, msgspec.structs.replace(made, status=wanted.status), subresource="status")


async def run_pod(cluster: Cluster, number: int, *, node: str = "", **fields: Any) -> None:
    """Create a running pod of the service."""
    ip = f"10.1.{number // 250}.{number % 250 + 1}"
    pod = builders.pod(f"web-{number:03}", labels={"app": "web"}, ip=ip, **fields)
    placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
    made = await cluster.client.create(PODS, placed)
    await cluster.client.update(PODS, msgspec.structs.replace(made, status=pod.status), subresource="status")


async def serve(cluster: Cluster, **spec: Any) -> Service:
    selector = {"app": "web"} if spec.pop("selects", True) else None
    return await cluster.client.create(SERVICES, builders.service("web", selector, **spec))


async def slices(cluster: Cluster) -> list[EndpointSlice]:
    found = (await cluster.client.list(ENDPOINT_SLICES, "default")).items
    return [slice_ for slice_ in found if (slice_.metadata.labels or {}).get(MANAGED_BY) == MANAGER]


async def events(cluster: Cluster) -> list[tuple[str, str]]:
    """Return reason and reporter of each event in write order; event names are random."""
    listed = (await cluster.client.list(EVENTS, "default")).items
    found = sorted(listed, key=lambda event: int(event.metadata.resource_version))
    return [(event.reason, event.reporting_component) for event in found]
