"""Deletes pods from nodes with NoExecute taints once they tolerate them no longer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from controller_manager.common.api.core import NODES, PODS, Node, Pod, Taint, Toleration
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.scheduling import FOR_GOOD, by_key, no_execute, patience
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.options import Options
from controller_manager.framework.controller import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    PolicyRule,
    Requeue,
    key_of,
)

from .shared.pods import PODS_BY_NODE, Eviction, evict, pods_on

COMPARES = "TaintTolerationComparisonOperators"
REASON = "DeletionByTaintManager"
EVENT = "TaintManagerEviction"
AT_ONCE = 50
# Seconds until another look when what was seen is no longer so.
LATE = 1.0
# Two signs of one trouble: a node that says it is not ready, and then says nothing, has been ill all the while.
_SIGN_OF = {f"node.{PLATFORM_DOMAIN}/unreachable": f"node.{PLATFORM_DOMAIN}/not-ready"}

_DELETIONS = Family(
    "taint_eviction_controller_pod_deletions_total", "Pods deleted since they tolerate a taint no longer.", "counter"
)
_LATENCY = Family(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Time from when a pod's toleration had run out until it was deleted.",
    "histogram",
    buckets=(0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240),
)


class TaintEvictionOptions(Options):
    """Taint eviction controller"""


# Observed: a pod, the NoExecute taints of its node, and since when this process has known it to endure them.
# Decided, by its tolerations:                           Done:
#   gone, or being deleted, or bound to no node          nothing; a countdown is forgotten
#   no taints, or all tolerated for good                 nothing; a countdown is cancelled, and an event says so
#   all tolerated, some for so many seconds              the countdown goes on; look again when the first runs out
#   one not tolerated, or run out                        condition, deletion, event; but if the node or the pod is no
#                                                        longer what was seen, wait for what they are
# Time counts from when it was noticed here, not from `timeAdded`: a manager that was away must let the nodes be heard
# first, and clocks are never compared. A taint that changes its value goes on counting; one that was added at another
# time than before is another one.


class Endured(NamedTuple):
    """A taint that a pod tolerates for a time only, and since when (seconds of the process's clock) it does."""

    since: float
    taint: Taint


class Countdown(msgspec.Struct, frozen=True):
    """The taints that a pod endures, by trouble, and when its time runs out."""

    uid: str
    endured: Mapping[str, Endured]
    due: float


class TaintEvictionController:
    """Reconciles one pod with the taints of its node."""

    def __init__(self, context: Context, options: TaintEvictionOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._pods = context.informers.get(PODS)
        self._nodes = context.informers.get(NODES)
        self._compares = context.enabled(COMPARES)
        self._countdowns: dict[Key, Countdown] = {}
        self._deletions = Counters(_DELETIONS, context.runtime.registry)
        self._latency = Histograms(_LATENCY, context.runtime.registry).of()

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete pod `key` if its time on its node has run out."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or not pod.spec.node_name:
            self._countdowns.pop(key, None)
            return None
        node = self._nodes.get(Key("", pod.spec.node_name))
        running = self._count_down(pod, node)
        if running is None or node is None:
            return None
        left = running.due - clock.monotonic()
        if left > 0:
            return Requeue(left)
        if not await self._is_current(node) or not await self._evict(pod, running.due):
            return Requeue(LATE)
        self._countdowns.pop(key, None)
        return None

    def _count_down(self, pod: Pod, node: Node | None) -> Countdown | None:
        """Go on with the countdown of the pod, begin or cancel it, as the node's taints have it."""
        key, meta = key_of(pod), pod.metadata
        known = self._countdowns.get(key)
        before = known.endured if known is not None and known.uid == meta.uid else {}
        running = countdown(no_execute(node), pod.spec.tolerations, before, clock.monotonic(), compares=self._compares)
        if running is not None:
            self._countdowns[key] = found = Countdown(meta.uid, *running)
            return found
        if self._countdowns.pop(key, None) is not None and before:
            self._events.normal(pod, EVENT, f"Pod {key} may stay: the taints of its node are tolerated again, or gone")
        return None

    async def _is_current(self, node: Node) -> bool:
        """Return whether the API server has the node as it was seen: no pod is evicted by hearsay."""
        try:
            found = await self._client.get(NODES, key_of(node))
        except NotFound:
            return False
        return found.metadata.resource_version == node.metadata.resource_version

    async def _evict(self, pod: Pod, due: float) -> bool:
        """Tell the pod why and delete it, if it is still as it was seen."""
        match await evict(self._client, pod, REASON, "A NoExecute taint of its node is not tolerated (any longer)"):
            case Eviction.CHANGED:
                return False
            case Eviction.GONE:
                return True
        self._deletions.add()
        self._latency.observe(clock.monotonic() - due)
        self._events.normal(
            pod, EVENT, f"Pod {key_of(pod)} is deleted: a taint of its node is not tolerated, or no longer"
        )
        return True


def pods_of_node(informers: Informers, change: Change[Node]) -> Iterator[Key]:
    """The pods of a node whose NoExecute taints have changed."""
    if no_execute(change.before) != no_execute(change.after):
        yield from map(key_of, pods_on(informers.get(PODS), change.key.name))


def pod_on_tainted_node(informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """A pod that came to a node with such taints, changed what it tolerates there, or went."""
    if change.before is not None and change.after is not None and _facts(change.before) == _facts(change.after):
        return
    if no_execute(informers.get(NODES).get(Key("", change.object.spec.node_name))):
        yield change.key


SPECS = (
    ControllerSpec(
        name="taint-eviction-controller",
        queue="noexec_taint_pod",
        service_account="node-controller",
        reconciler=TaintEvictionController,
        options=TaintEvictionOptions,
        workers=lambda _: AT_ONCE,
        watches=(
            Mapped(PODS, pod_on_tainted_node, indexes=PODS_BY_NODE),
            Mapped(NODES, pods_of_node),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "delete")),
            PolicyRule(groups=("",), resources=("pods/status",), verbs=("patch",)),
            PolicyRule(groups=("",), resources=("nodes",), verbs=("get", "list", "watch")),
        ),
    ),
)


def countdown(
    taints: Sequence[Taint],
    tolerations: Sequence[Toleration],
    before: Mapping[str, Endured],
    now: float,
    *,
    compares: bool = False,
) -> tuple[Mapping[str, Endured], float] | None:
    """Return what is endured that is not tolerated for good, by trouble, and when the first toleration runs out.

    None where the pod may stay. `before` is what this returned of the pod before.
    """
    endured: dict[str, Endured] = {}
    due = math.inf
    deciding = by_key(tolerations)
    for taint in taints:
        seconds = patience(taint, deciding(taint.key), compares=compares)
        if seconds != FOR_GOOD:
            trouble = _SIGN_OF.get(taint.key, taint.key)
            endured[trouble] = Endured(_since(before.get(trouble), taint, now), taint)
            due = min(due, endured[trouble].since + seconds)
    return (endured, due) if endured else None


def _since(before: Endured | None, taint: Taint, now: float) -> float:
    if before is None:
        return now
    came_back = before.taint.key == taint.key and before.taint.time_added != taint.time_added
    return now if came_back else before.since


def _facts(pod: Pod) -> tuple[object, ...]:
    return pod.metadata.uid, pod.spec.node_name, pod.spec.tolerations
