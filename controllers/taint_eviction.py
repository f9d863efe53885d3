"""Deletes pods that do not, or no longer, tolerate the NoExecute taints of their node."""

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
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    key_of,
)

from .shared.pods import PODS_BY_NODE, Eviction, evict, pods_on

COMPARES = "TaintTolerationComparisonOperators"
REASON = "DeletionByTaintManager"
EVENT = "TaintManagerEviction"
AT_ONCE = 50
# Seconds until the next attempt if the node or the pod has changed meanwhile.
LATE = 1.0
# A node whose Ready condition turns from False to Unknown gets another taint. Both count as one, so the countdown does
# not restart.
_SIGN_OF = {f"node.{PLATFORM_DOMAIN}/unreachable": f"node.{PLATFORM_DOMAIN}/not-ready"}

_DELETIONS = Family(
    "taint_eviction_controller_pod_deletions_total",
    "Number of pods deleted because they do not tolerate a taint of their node.",
    "counter",
)
_LATENCY = Family(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Seconds from the expiry of a pod's toleration to its deletion.",
    "histogram",
    buckets=(0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240),
)


class TaintEvictionOptions(Options):
    """Taint eviction controller"""


# Observed: a pod, the NoExecute taints of its node, and since when this process has seen the pod tolerate them.
# Decided, by its tolerations:                           Done:
#   gone, being deleted, or not bound to a node          nothing; the countdown is dropped
#   no taints, or all tolerated without limit            nothing; a countdown is cancelled, with an event
#   all tolerated, some for a limited time               the countdown continues; requeue when the first one expires
#   one not tolerated, or expired                        condition, deletion, event; if the node or the pod has changed
#                                                        since it was read, retry later
# Time counts from when this process noticed the taint, not from `timeAdded`: a manager that was down must first receive
# node heartbeats, and clocks of different machines are never compared. A taint whose value changes keeps its countdown.
# A taint with another `timeAdded` starts a new one.


class Endured(NamedTuple):
    """A taint that a pod tolerates for a limited time, and since when (seconds of the process's clock)."""

    since: float
    taint: Taint


class Countdown(msgspec.Struct, frozen=True):
    """The taints that a pod tolerates for a limited time, by key, and the time when the first one expires."""

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
        """Delete pod `key` if the time for which it tolerates its node's taints has expired."""
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
        """Start, continue or cancel the countdown of a pod according to the taints of its node."""
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
        """Return whether the API server has the node at the cached version; no pod is evicted because of stale data."""
        try:
            found = await self._client.get(NODES, key_of(node))
        except NotFound:
            return False
        return found.metadata.resource_version == node.metadata.resource_version

    async def _evict(self, pod: Pod, due: float) -> bool:
        """Set the DisruptionTarget condition and delete the pod, if it has not changed since it was read."""
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
    """Yield the pods of a node whose NoExecute taints have changed."""
    if no_execute(change.before) != no_execute(change.after):
        yield from map(key_of, pods_on(informers.get(PODS), change.key.name))


def pod_on_tainted_node(informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield a pod that was bound to a tainted node, changed its tolerations, or was deleted."""
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
    """Return the taints that are tolerated for a limited time, by key, and when the first toleration expires.

    Return None if the pod may stay. `before` is the previous result for this pod.
    """
    endured: dict[str, Endured] = {}
    due = math.inf
    deciding = by_key(tolerations)
    for taint in taints:
        seconds = patience(taint, deciding(taint.key), compares=compares)
        if seconds != FOR_GOOD:
            cause = _SIGN_OF.get(taint.key, taint.key)
            endured[cause] = Endured(_since(before.get(cause), taint, now), taint)
            due = min(due, endured[cause].since + seconds)
    return (endured, due) if endured else None


def _since(before: Endured | None, taint: Taint, now: float) -> float:
    if before is None:
        return now
    came_back = before.taint.key == taint.key and before.taint.time_added != taint.time_added
    return now if came_back else before.since


def _facts(pod: Pod) -> tuple[object, ...]:
    return pod.metadata.uid, pod.spec.node_name, pod.spec.tolerations
