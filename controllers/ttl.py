"""Annotates nodes with the TTL for which the kubelet may cache secrets and config maps."""

import asyncio
import contextlib

from controller_manager.common.api.core import NODES
from controller_manager.common.api.errors import NotFound
from controller_manager.framework import Add, Context, ControllerSpec, For, Key, Options, PolicyRule, Priority, key_of

TTL = "node.alpha.kubernetes.io/ttl"
WORKERS = 5
# Minimum and maximum number of nodes, and the TTL in seconds. The ranges overlap, so that small changes of the cluster
# size do not update all nodes.
STEPS = (
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, float("inf"), 300),
)


class TtlOptions(Options):
    """TTL controller"""


# Observed: the node, and the number of nodes.
# Decided: the present step of the table, unless the number of nodes is out of its range. Nodes with another annotation
#   are updated, all of them when the step changes.


class TtlController:
    """Reconciles nodes, and enqueues all of them when the TTL changes."""

    def __init__(self, context: Context, _: TtlOptions) -> None:
        self._client = context.client
        self._nodes = context.informers.get(NODES)
        self._step = step_of(len(self._nodes), 0)
        self._stepped = asyncio.Event()

    async def run(self, add: Add) -> None:
        """Enqueue all nodes after each change of the step."""
        while True:
            await self._stepped.wait()
            self._stepped.clear()
            for node in self._nodes.list():
                add(key_of(node), "the size of the cluster", Priority.LOW)

    async def reconcile(self, key: Key) -> None:
        """Update the annotation of node `key`."""
        step = step_of(len(self._nodes), self._step)
        if step != self._step:
            self._step = step
            self._stepped.set()
        node = self._nodes.get(key)
        wanted = str(STEPS[step][2])
        if node is not None and (node.metadata.annotations or {}).get(TTL) != wanted:
            with contextlib.suppress(NotFound):
                await self._client.patch(NODES, key, {"metadata": {"annotations": {TTL: wanted}}})


SPECS = (
    ControllerSpec(
        name="ttl-controller",
        queue="ttlcontroller",
        aliases=("ttl",),
        reconciler=TtlController,
        options=TtlOptions,
        workers=lambda _: WORKERS,
        watches=(For(NODES),),
        rbac=(PolicyRule(groups=("",), resources=("nodes",), verbs=("patch",)),),
    ),
)


def step_of(nodes: int, step: int) -> int:
    """Return the step of the table for a number of nodes, starting at `step`."""
    while nodes > STEPS[step][1]:
        step += 1
    while nodes < STEPS[step][0]:
        step -= 1
    return step
