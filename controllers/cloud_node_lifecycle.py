"""Deletes nodes whose machines are gone from the cloud, and taints those whose machines are shut down."""

import asyncio
from enum import Enum, auto

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES, Node, Taint
from controller_manager.common.api.errors import ApiError, Conflict, NotFound
from controller_manager.framework.controller import Add, Context, ControllerSpec, Key, Mapped, PolicyRule, key_of

from .node_lifecycle.controller import NodeLifecycleOptions
from .shared.cloud import answer_of

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
WORKERS = 8


class NodeAction(Enum):
    """What is to be done about a node."""

    NOTHING = auto()
    DELETE = auto()
    TAINT = auto()
    UNTAINT = auto()


# Observed: every --node-monitor-period, whether each node says that it is ready; what the cloud says of its machine.
# Decided:                                          Done:
#   ready                                           UNTAINT, if it has the taint; the cloud is not asked
#   not ready, or silent; its machine is gone       DELETE, if it is still the node that was seen
#   not ready, or silent; its machine is shut down  TAINT
#   not ready, or silent; its machine runs          NOTHING: the taint stays until it is ready


class CloudNodeLifecycle:
    """Reconciles one node with its machine."""

    def __init__(self, context: Context, options: NodeLifecycleOptions) -> None:
        assert context.cloud is not None
        assert context.cloud.instances is not None
        self._instances = context.cloud.instances
        self._client = context.client
        self._events = context.events
        self._nodes = context.informers.get(NODES)
        self._period = options.node_monitor_period

    async def run(self, add: Add) -> None:
        """Have all nodes looked at that are not ready, or have the taint, every period."""
        while True:
            for node in self._nodes.list():
                if not is_ready(node) or has_taint(node):
                    add(key_of(node), "the period")
            await asyncio.sleep(self._period)

    async def reconcile(self, key: Key) -> None:
        """Ask the cloud about node `key`, and do what follows."""
        node = self._nodes.get(key)
        if node is None or node.metadata.deletion_timestamp is not None:
            return
        exists = is_ready(node) or await answer_of(self._instances.exists(node))
        shut_down = exists and not is_ready(node) and await answer_of(self._instances.is_shut_down(node))
        match decide(node, exists=exists, shut_down=shut_down):
            case NodeAction.DELETE:
                await self._delete(key, node)
            case NodeAction.TAINT:
                await self._set_taints(key, node, (*node.spec.taints, Taint(key=SHUTDOWN, effect="NoSchedule")))
            case NodeAction.UNTAINT:
                await self._set_taints(key, node, tuple(one for one in node.spec.taints if not _is_shutdown(one)))

    async def _delete(self, key: Key, node: Node) -> None:
        """Delete the node, if it is as it was when the cloud was asked: one that is back again says so."""
        told = f"Deleting node {key.name} because it does not exist in the cloud provider"
        self._events.normal(node, "DeletingNode", told)
        meta = node.metadata
        try:
            await self._client.delete(NODES, key, uid=meta.uid, resource_version=meta.resource_version)
        except (NotFound, Conflict):
            return  # it is looked at again in a period
        except ApiError as error:
            self._events.warning(node, "DeletingNodeFailed", f"Failed deleting node {key.name}: {error}")
            raise

    async def _set_taints(self, key: Key, node: Node, taints: tuple[Taint, ...]) -> None:
        meta = node.metadata
        seen = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        try:
            await self._client.patch(NODES, key, {"metadata": seen, "spec": {"taints": taints or None}})
        except (NotFound, Conflict):
            return  # it is looked at again in a period


SPECS = (
    ControllerSpec(
        name="cloud-node-lifecycle-controller",
        aliases=("cloud-node-lifecycle",),
        service_account="node-controller",
        reporter="cloud-node-lifecycle-controller",
        reconciler=CloudNodeLifecycle,
        options=NodeLifecycleOptions,
        cloud="instances",
        retry_delays=(5.0, 300.0),
        workers=lambda _: WORKERS,
        watches=(Mapped(NODES),),
        rbac=(PolicyRule(groups=("",), resources=("nodes",), verbs=("get", "list", "watch", "patch", "delete")),),
    ),
)


def decide(node: Node, *, exists: bool, shut_down: bool) -> NodeAction:
    """Return what is to be done about a node, by the table above."""
    if is_ready(node):
        return NodeAction.UNTAINT if has_taint(node) else NodeAction.NOTHING
    if not exists:
        return NodeAction.DELETE
    return NodeAction.TAINT if shut_down and not has_taint(node) else NodeAction.NOTHING


def is_ready(node: Node) -> bool:
    """Return whether a node says that it is ready."""
    condition = condition_of(node.status.conditions, "Ready")
    return condition is not None and condition.status == "True"


def has_taint(node: Node) -> bool:
    """Return whether a node has the taint of those that are shut down."""
    return any(map(_is_shutdown, node.spec.taints))


def _is_shutdown(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (SHUTDOWN, "NoSchedule")
