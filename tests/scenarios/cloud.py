"""Builders of nodes, services and managers for a simulated cloud."""

from typing import Any

import msgspec

from controller_manager.common.api.core import EVENTS, NODES, SERVICES, Node, Service
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.cloud import SimulatedCloud

FLAGS = ("--leader-elect=false", "--kube-api-qps=-1", "--cloud-provider=simulated")
WEB = Key("default", "web")
ALLOW = "--authorization-always-allow-paths=/metrics"


async def manage(
    cluster: Cluster, cloud: SimulatedCloud, *flags: str, faults: float = 0.0, strict: bool = True
) -> Replica:
    clouds = {"simulated": cloud.provide}
    return await cluster.manage(*FLAGS, *flags, faults=faults, strict=strict, cloud_providers=clouds)


async def add_node(cluster: Cluster, name: str, *, ready: bool = True, spec: Any = None, **metadata: Any) -> Node:
    tree = {"metadata": {"name": name, **metadata}, "spec": spec or {}}
    await cluster.client.create(NODES, Node.decode(msgspec.json.encode(tree)))
    return await set_ready(cluster, name, ready="True" if ready else "False")


async def set_ready(cluster: Cluster, name: str, *, ready: str) -> Node:
    change = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
    return await cluster.client.patch(NODES, Key("", name), change, subresource="status")


async def add_service(cluster: Cluster, name: str = "web", **spec: Any) -> Service:
    tree = {"metadata": {"name": name, "namespace": "default"}}
    full = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": name}, **spec}
    return await cluster.client.create(SERVICES, Service.decode(msgspec.json.encode({**tree, "spec": full})))


async def events(cluster: Cluster, component: str) -> list[str]:
    """Return the reasons of events by first occurrence; warnings end with `!`."""
    found = [one for one in (await cluster.client.list(EVENTS)).items if one.source.component == component]
    found.sort(key=lambda one: one.event_time or "")
    return [f"{one.reason}!" if one.type == "Warning" else one.reason for one in found]
