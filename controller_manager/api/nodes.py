"""Nodes of the core group: what they say of themselves, and what is said of them."""

from collections.abc import Mapping

import msgspec

from controller_manager.api.conditions import Condition
from controller_manager.api.model import Model, Object
from controller_manager.api.resource import Resource

# Labels that place a node.
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"


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


class NodeStatus(Model):
    conditions: tuple[NodeCondition, ...] = ()
    allocatable: Mapping[str, str] | None = None


class Node(Object):
    """A machine that runs pods."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NODES = Resource("", "v1", "nodes", "Node", False, Node)
