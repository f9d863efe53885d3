"""Deletes nodes whose cloud instances are gone, and taints those whose instances are shut down."""

import asyncio
from enum import Enum, auto

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES, Node, Taint
from controller_manager.common.api.errors import ApiError, Conflict, NotFound
from controller_manager.framework import Add, Context, ControllerSpec, Key, Mapped, PolicyRule, key_of

from .node_lifecycle.controller import NodeLifecycleOptions
from .shared.cloud import answer_of

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
WORKERS = 8


class NodeAction(Enum):
    """The action on a node."""

    NOTHING = auto()
    DELETE = auto()
    TAINT = auto()
    UNTAINT = auto()


# Observed: every --node-monitor-period, whether each node is ready; the state of its instance in the cloud.
# Decided:                                        Done:
#   ready                                         UNTAINT, if it has the taint; the cloud is not queried
#   not ready; instance gone                      DELETE, if the node has not changed
#   not ready; instance shut down                 TAINT
#   not ready; instance running                   NOTHING: the taint stays until the node is ready


class CloudNodeLifecycle:
    """Reconciles nodes with their instances."""

    def __init__(self, context: Context, options: NodeLifecycleOptions) -> None:
        assert context.cloud is not None
        assert context.cloud.instances is not None
        self._instances = context.cloud.instances
        self._client = context.client
        self._events = context.events
        self._nodes = context.informers.get(NODES)
        self._period = options.node_monitor_period

    async def run(self, add: Add) -> None:
        """Enqueue all nodes that are not ready or have the taint, every period."""
        while True:
            for node in self._nodes.list():
                if not is_ready(node) or has_taint(node):
                    add(key_of(node), "the period")
            await asyncio.sleep(self._period)

    async def reconcile(self, key: Key) -> None:
        """Query the cloud about node `key` and perform the action."""
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
        """Delete the node, if it has not changed since the cloud was queried; a node that is back has changed."""
        message = f"Deleting node {key.name} because it does not exist in the cloud provider"
        self._events.normal(node, "DeletingNode", message)
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
    """Return the action on a node, by the table above."""
    if is_ready(node):
        return NodeAction.UNTAINT if has_taint(node) else NodeAction.NOTHING
    if not exists:
        return NodeAction.DELETE
    return NodeAction.TAINT if shut_down and not has_taint(node) else NodeAction.NOTHING


def is_ready(node: Node) -> bool:
    """Return whether a node is ready."""
    condition = condition_of(node.status.conditions, "Ready")
    return condition is not None and condition.status == "True"


def has_taint(node: Node) -> bool:
    """Return whether a node has the shutdown taint."""
    return any(map(_is_shutdown, node.spec.taints))


def _is_shutdown(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (SHUTDOWN, "NoSchedule")
