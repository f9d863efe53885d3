"""Nodes: spec, status and taints."""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

# Labels for the location of a node.
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
VIRTUAL_POOL = f"virtual-node.x-{GROUP_DOMAIN}/pool"
"""The label of virtual nodes with the name of their pool."""

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
"""The declared feature of nodes that restart all containers of a pod when one exits (KEP-5532)."""


class Taint(Model):
    """`spec.taints[]`, complete."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeCondition(Condition):
    """`status.conditions[]`, complete."""

    last_heartbeat_time: str | None = None


class NodeSpec(Model):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")


class NodeAddress(Model):
    """`status.addresses[]`, complete."""

    type: str
    address: str


class AttachedVolume(Model):
    """`status.volumesAttached[]`, complete; the name is the unique volume name."""

    name: str
    device_path: str = ""


class DaemonEndpoint(Model):
    """`status.daemonEndpoints.kubeletEndpoint`, complete."""

    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(Model):
    """`status.daemonEndpoints`, complete."""

    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeStatus(Model):
    daemon_endpoints: DaemonEndpoints = DaemonEndpoints()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    allocatable: Mapping[str, str] | None = None
    declared_features: tuple[str, ...] = ()


class Node(Object):
    """A machine that runs pods."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NODES = Resource("", "v1", "nodes", "Node", False, Node)
