"""Deletes finished pods beyond a threshold, and pods whose nodes are gone or out of service."""

import asyncio
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controller_manager.common.api.conditions import is_condition_true
from controller_manager.common.api.core import NODES, PODS, Node, Pod, is_pod_terminal
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import (
    STRATEGIC_MERGE_PATCH,
    Add,
    Change,
    Context,
    ControllerSpec,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    flag,
    key_of,
)

from .shared.pods import disruption, status_patch

PERIOD = 20.0
# Seconds for which a node must be missing in the cache before the API server is queried.
QUARANTINE = 40.0
# Seconds for which the server's response is valid while the pods of a node are deleted.
CREDIBLE = 2.0
AT_ONCE = 16
OUT_OF_SERVICE = f"node.{PLATFORM_DOMAIN}/out-of-service"

# Reasons of deletions, as metric labels.
TERMINATED, OUT, ORPHANED, UNSCHEDULED = "terminated", "out-of-service", "orphaned", "unscheduled"

_DELETED = Family(
    "pod_gc_collector_force_delete_pods_total",
    "Pods whose deletion was forced, or tried to be, by namespace and reason.",
    "counter",
    ("namespace", "reason"),
)
_FAILED = Family(
    "pod_gc_collector_force_delete_pod_errors_total",
    "Pods that could not be deleted, by namespace and reason; the next pass tries again.",
    "counter",
    ("namespace", "reason"),
)


class PodGarbageOptions(Options):
    """Pod garbage collector"""

    terminated_pod_gc_threshold: Int32 = flag(
        12500, "Number of ended pods that are kept; beyond it the oldest are deleted. 0 or less keeps them all."
    )


class Victim(NamedTuple):
    """A pod to delete, and the reason."""

    pod: Pod
    reason: str


# Observed, every 20 seconds if something has changed: all pods and nodes; nodes of lost pods also on the API server.
# Pod to delete:                                                 reason           status set before
#   being deleted, on a node that is not ready and has the       out-of-service   Failed, unless it has ended
#     out-of-service taint
#   bound to a node that has been missing for the quarantine     orphaned         Failed with a condition, unless it
#     and that the API server does not have                                       has ended
#   being deleted, and was never bound                           unscheduled      Failed, unless it has ended
#   finished, beyond the threshold: evicted ones first, then     terminated       -
#     the oldest
# Pods that have ended and whose grace period is 0 are skipped, because only finalizers keep them.


class PodGarbageCollector:
    """Reconciles all pods under one key."""

    def __init__(self, context: Context, options: PodGarbageOptions) -> None:
        self._client = context.client
        self._log = context.log
        self._pods = context.informers.get(PODS)
        self._nodes = context.informers.get(NODES)
        self._threshold = options.terminated_pod_gc_threshold
        # Since when each node of a bound pod is missing.
        self._missing: dict[str, float] = {}
        self._passed_at = 0.0
        self._is_ordered = False  # the pass that a change asks for
        # The uids of pods whose deletion was requested, while the cache still has them.
        self._asked: set[str] = set()
        self._deleted = Counters(_DELETED, context.runtime.registry)
        self._failed = Counters(_FAILED, context.runtime.registry)

    async def run(self, add: Add) -> None:
        """Enqueue the first pass, and one at the end of each period with a change of a pod or a node."""

        def note(_: Change[Pod] | Change[Node]) -> None:
            if not self._is_ordered:
                self._is_ordered = True
                since = clock.monotonic() - self._passed_at
                add("pods", "pods or nodes changed", after=PERIOD - since % PERIOD)

        self._is_ordered = True
        add("pods", "started")
        ends = self._pods.subscribe(note), self._nodes.subscribe(note)
        try:
            await asyncio.Event().wait()
        finally:
            for end in ends:
                end()

    async def reconcile(self, _: str) -> Requeue | None:
        """Check all pods once. Requeue if work is left."""
        pods, nodes, now = self._pods.list(), self._nodes.list(), clock.monotonic()
        self._is_ordered, self._passed_at = False, now
        self._missing = missing(pods, {node.metadata.name for node in nodes}, self._missing, now)
        overdue = {name for name, since in self._missing.items() if now - since >= QUARANTINE}
        self._asked = {pod.metadata.uid for pod in pods if pod.metadata.uid in self._asked}
        bound, unbound = [*out_of_service(pods, nodes), *orphans(pods, overdue)], list(unscheduled(pods))
        ended = surplus(without(pods, [*bound, *unbound]), self._threshold, self._asked)
        gate = asyncio.Semaphore(AT_ONCE)
        await all_of(
            *(self._clear(node, victims, gate) for node, victims in by_node(bound).items()),
            *(self._delete_at(gate, victim) for victim in (*unbound, *ended) if not is_done_with(victim.pod)),
        )
        return Requeue(PERIOD) if self._missing or bound or unbound or ended else None

    async def _clear(self, name: str, victims: Sequence[Victim], gate: asyncio.Semaphore) -> None:
        """Delete the pods of one node as long as the API server confirms that they are lost."""
        confirmed = -math.inf
        for victim in victims:
            async with gate:
                if clock.monotonic() - confirmed > CREDIBLE:
                    if not await self._is_lost(name, victim.reason):
                        return
                    confirmed = clock.monotonic()
                await self._delete(victim)

    async def _is_lost(self, name: str, reason: str) -> bool:
        """Return whether the API server confirms that the node is gone, or out of service, depending on the reason."""
        try:
            node = await self._client.get(NODES, Key("", name))
        except NotFound:
            return reason == ORPHANED
        except (ApiError, OSError) as error:
            self._log.warning("cannot find out about a node", node=name, error=error)
            return False
        self._missing.pop(name, None)  # its period of absence restarts
        return reason == OUT and is_out_of_service(node)

    async def _delete_at(self, gate: asyncio.Semaphore, victim: Victim) -> None:
        async with gate:
            await self._delete(victim)

    async def _delete(self, victim: Victim) -> None:
        """Delete one pod. An error does not affect the others."""
        labels = victim.pod.metadata.namespace, victim.reason
        self._deleted.add(*labels)
        self._asked.add(victim.pod.metadata.uid)
        try:
            await self._fail_and_delete(victim)
        except NotFound:
            return
        except (ApiError, OSError) as error:
            self._failed.add(*labels)
            self._log.warning("cannot delete a pod", pod=str(key_of(victim.pod)), error=error)

    async def _fail_and_delete(self, victim: Victim) -> None:
        pod, key = victim.pod, key_of(victim.pod)
        if not is_pod_terminal(pod):
            lost = victim.reason == ORPHANED
            why = disruption(pod, "DeletionByPodGC", "Its node no longer exists", clock.utc_now()) if lost else None
            patch = status_patch(pod, phase="Failed", conditions=(why,) if why else ())
            await self._client.patch(PODS, key, patch, STRATEGIC_MERGE_PATCH, subresource="status")
        if not _is_out_of_grace(pod):
            await self._client.delete(PODS, key, grace=0, uid=pod.metadata.uid)


SPECS = (
    ControllerSpec(
        name="pod-garbage-collector-controller",
        queue="orphaned_pods_nodes",
        aliases=("podgc",),
        service_account="pod-garbage-collector",
        reconciler=PodGarbageCollector,
        options=PodGarbageOptions,
        # A change has a pass ordered: see `run`.
        watches=(Mapped(PODS), Mapped(NODES)),
        rbac=(
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "delete")),
            PolicyRule(groups=("",), resources=("pods/status",), verbs=("patch",)),
            PolicyRule(groups=("",), resources=("nodes",), verbs=("get", "list", "watch")),
        ),
    ),
)


def surplus(pods: Iterable[Pod], threshold: int, asked: Collection[str] = ()) -> list[Victim]:
    """Return the finished pods beyond the threshold: evicted ones first, then the oldest.

    Pods in `asked`, whose deletion was requested before, count as deleted since the cache may lag. They are deleted
    again.
    """
    if threshold <= 0:
        return []
    ended = [pod for pod in pods if is_pod_terminal(pod)]
    again = [pod for pod in ended if pod.metadata.uid in asked]
    excess = len(ended) - len(again) - threshold
    if excess > 0:
        again += sorted((pod for pod in ended if pod.metadata.uid not in asked), key=_worth)[:excess]
    return [Victim(pod, TERMINATED) for pod in again]


def out_of_service(pods: Iterable[Pod], nodes: Iterable[Node]) -> Iterator[Victim]:
    """Yield the pods being deleted on nodes out of service."""
    out = {node.metadata.name for node in nodes if is_out_of_service(node)}
    return (Victim(pod, OUT) for pod in pods if pod.spec.node_name in out and _is_going(pod))


def missing(pods: Iterable[Pod], nodes: Collection[str], since: Mapping[str, float], now: float) -> dict[str, float]:
    """Return since when each node of a bound pod is missing, given the previous result."""
    names = {pod.spec.node_name for pod in pods} - {""}
    return {name: since.get(name, now) for name in sorted(names.difference(nodes))}


def orphans(pods: Iterable[Pod], gone: Collection[str]) -> Iterator[Victim]:
    """Yield the pods bound to nodes that are gone."""
    return (Victim(pod, ORPHANED) for pod in pods if pod.spec.node_name in gone)


def by_node(victims: Iterable[Victim]) -> Mapping[str, list[Victim]]:
    """Return the victims by node, without those that need no action."""
    found: dict[str, list[Victim]] = {}
    for victim in victims:
        if not is_done_with(victim.pod):
            found.setdefault(victim.pod.spec.node_name, []).append(victim)
    return found


def unscheduled(pods: Iterable[Pod]) -> Iterator[Victim]:
    """Yield the pods being deleted that were never bound."""
    return (Victim(pod, UNSCHEDULED) for pod in pods if _is_going(pod) and not pod.spec.node_name)


def without(pods: Sequence[Pod], victims: Collection[Victim]) -> Sequence[Pod]:
    """Return the pods without those victims."""
    doomed = {key_of(victim.pod) for victim in victims}
    return [pod for pod in pods if key_of(pod) not in doomed] if doomed else pods


def is_done_with(pod: Pod) -> bool:
    """Return whether a pod has ended and only finalizers keep it."""
    return is_pod_terminal(pod) and _is_out_of_grace(pod)


def is_out_of_service(node: Node) -> bool:
    """Return whether a node has the out-of-service taint and is not ready (KEP-2268)."""
    is_ready = is_condition_true(node.status.conditions, "Ready")
    return not is_ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _worth(pod: Pod) -> tuple[bool, str, str, str]:
    """Return a sort key that puts evicted pods first, then the oldest. RFC 3339 texts sort chronologically."""
    evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not evicted, pod.metadata.creation_timestamp or "", pod.metadata.name, pod.metadata.namespace


def _is_going(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _is_out_of_grace(pod: Pod) -> bool:
    return _is_going(pod) and not pod.metadata.deletion_grace_period_seconds
