"""Node lifecycle controller: checks all nodes periodically and keeps conditions, taints and pods up to date."""

import asyncio
import contextlib
import math
from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.core import NODES, PODS, Node, Pod, is_pod_ready
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import loop_clock, utc_now
from controller_manager.common.base.deadlines import wait_or_set
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Duration,
    For,
    Informers,
    Int32,
    Mapped,
    Options,
    PolicyRule,
    flag,
)

from ..shared.pods import PODS_BY_NODE, pods_on
from .desired import (
    Evict,
    desired_taints,
    is_not_ready,
    silenced,
    status_of,
    unready,
    zone_of,
)
from .node_health import LEASES_NAMESPACE, Grace, HealthChanges, HeartbeatMonitor, NodeHealth, Silence
from .zones import EvictionRates, NodeMetrics

WORKERS = 8
LONGEST_REST = 600.0
"""Maximum seconds between two checks of all nodes."""


class NodeLifecycleOptions(Options):
    """Times after which nodes are given up, and rates at which their pods are"""

    title = "Node lifecycle controller"

    node_monitor_period: Duration = flag("5s", "How often the state of nodes is looked at.", minimum=0.001)
    node_monitor_grace_period: Duration = flag(
        "50s",
        "How long a running node may be silent before it is marked unhealthy; several times as long as a node takes "
        "to report, and longer than a dead connection takes to be noticed.",
        minimum=0.001,
    )
    node_startup_grace_period: Duration = flag(
        "1m", "How long a starting node may be silent before it is marked unhealthy.", minimum=0
    )
    node_eviction_rate: float = flag(
        0.1, "Nodes a second whose pods are deleted when they fail in a healthy zone.", minimum=0
    )
    secondary_node_eviction_rate: float = flag(
        0.01, "The same in an unhealthy zone; 0 in clusters that are not large.", minimum=0
    )
    large_cluster_size_threshold: Int32 = flag(
        50,
        "Number of nodes above which a cluster is large; counted in each zone if there are several.",
        minimum=0,
    )
    unhealthy_zone_threshold: float = flag(
        0.55,
        "Part of the nodes of a zone, three at least, that make it unhealthy when they fail.",
        minimum=0,
        maximum=1,
    )

    @model_validator(mode="after")
    def _looks_in_time(self) -> Self:
        if self.node_monitor_grace_period <= self.node_monitor_period:
            raise ValueError("--node-monitor-grace-period must be more than --node-monitor-period")
        return self


# Observed: nodes, their leases, their pods; all nodes together every --node-monitor-period, unless nothing has changed,
# and each node when it changes.
# Decided about a node:
#   silent for its grace period          its conditions become Unknown
#   any conditions                       NoSchedule taints, and deprecated labels as copies of new ones (desired.py)
#   not ready, and its turn in the zone  the NoExecute taint not-ready or unreachable (turns: node_health.py)
#   False turns Unknown, or vice versa   these two taints replace each other at once (desired.py)
#   ready, or all zones are disrupted    no NoExecute taint
#   Ready is Unknown                     its pods become not ready
#   Ready is Unknown or False            so does a pod that is newly bound to it
# The taint eviction controller evicts the pods of tainted nodes.


class NodeLifecycleController:
    """Reconciles a node, or a pod newly bound to a node that is not ready; also checks all nodes periodically."""

    def __init__(self, context: Context, options: NodeLifecycleOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._nodes = context.informers.get(NODES)
        self._leases = context.informers.get(LEASES)
        self._pods = context.informers.get(PODS)
        self._metrics = NodeMetrics(context.runtime.registry)
        self._period = options.node_monitor_period
        self._heartbeats = HeartbeatMonitor(options.node_monitor_grace_period / 2)
        self._health = NodeHealth(
            Grace(startup=options.node_startup_grace_period, running=options.node_monitor_grace_period),
            EvictionRates(
                rate=options.node_eviction_rate,
                secondary_rate=options.secondary_node_eviction_rate,
                threshold=options.unhealthy_zone_threshold,
                large=options.large_cluster_size_threshold,
            ),
        )
        # Set when an eviction has ended, or by the first change of a node or lease since the last check, because the
        # next action may be due sooner.
        self._woken = asyncio.Event()
        self._changed_at = math.inf
        self._time = loop_clock()

    async def run(self, add: Add) -> None:
        """Check all nodes every period unless nothing can have changed, and enqueue nodes with pending work or whose
        turn it is.
        """
        ends = self._nodes.subscribe(self._note), self._leases.subscribe(self._note)
        try:
            next_look = self._time()
            while True:
                late, self._changed_at = self._time() - next_look, math.inf
                until = self._look(add, late)
                looked_at = self._time()
                while self._time() < (next_look := self._next_look(looked_at, until)):
                    await self._wait(self._order_evictions(add, next_look))
        finally:
            for end in ends:
                end()

    def _next_look(self, looked_at: float, until: float) -> float:
        """Return the end of the first period in which a check may find something: after `until`, or after a change."""
        periods = math.floor(min(until - looked_at, LONGEST_REST) / self._period) + 1
        if self._changed_at < math.inf:
            periods = min(periods, math.ceil((self._changed_at - looked_at) / self._period))
        return looked_at + self._period * max(1, periods)

    def _note(self, change: Change[Node] | Change[Lease]) -> None:
        if self._changed_at == math.inf and change.key.namespace in ("", LEASES_NAMESPACE):
            self._changed_at = self._time()
            self._woken.set()

    async def reconcile(self, key: Key) -> None:
        """Update the node or pod `key`."""
        if key.namespace:
            await self._mark_new_pod(key)
        elif (node := self._nodes.get(key)) is not None:
            await self._reconcile_node(key, node)

    async def _reconcile_node(self, key: Key, node: Node) -> None:
        began = self._time()
        lease = self._leases.get(Key(LEASES_NAMESPACE, key.name))
        with contextlib.suppress(NotFound):
            if self._health.update(node, lease, began):
                node = await self._mark_silent(node)
            await self._update_taints(node)
            if status_of(node) == "Unknown":
                await self._mark_pods(node)
        self._metrics.one.observe(self._time() - began)

    def _look(self, add: Add, late: float) -> float:
        """Check all nodes. Return the time until which another check finds nothing new unless a node or a lease
        changes.
        """
        began, age = self._time(), self._leases.age()
        watch = self._leases.reflector
        verdict = self._heartbeats.judge(age, (watch.lists, watch.watches), late)
        if verdict is Silence.RESTART:
            self._log.warning("lease watch was interrupted; resetting node grace periods")
            self._health.restart_grace_periods(began)
        was_disrupted = self._health.disrupted
        found = self._health.look(self._nodes.list(), self._leases.get, began, judge=verdict is Silence.REAL)
        for name in found.pending:
            add(Key("", name), "a look at all nodes")
        self._report(found, was_disrupted)
        self._metrics.all.observe(self._time() - began)
        return min(found.until, self._heartbeats.patient_until(began, age))

    def _report(self, found: HealthChanges, was_disrupted: bool) -> None:
        """Report changes as events, log messages and metrics."""
        for node in found.new:
            name = node.metadata.name
            self._events.normal(node, "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller")
        for node in found.gone:
            name = node.metadata.name
            self._events.normal(node, "RemovingNode", f"Node {name} event: Removing Node {name} from Controller")
        for zone, state in found.zones.items():
            self._log.info("a zone is in another state", zone=zone, state=state)
        if self._health.disrupted is not was_disrupted:
            now = "all zones are disrupted" if self._health.disrupted else "some zone is no longer disrupted"
            self._log.warning(now, evictions="stopped" if self._health.disrupted else "go on")
        for zone in found.emptied:
            self._metrics.show(zone, None)
        for zone, census in self._health.zones.items():
            self._metrics.show(zone, census)

    def _order_evictions(self, add: Add, until: float) -> float:
        """Enqueue the nodes whose turn to be evicted has come. Return when to check for the next one."""
        now = self._time()
        for name, due in self._health.turns():
            if due <= now:
                add(Key("", name), "its turn to be evicted")
            else:
                until = min(until, due)
        return until

    async def _wait(self, until: float) -> None:
        await wait_or_set(self._woken, until)
        self._woken.clear()

    async def _mark_silent(self, node: Node) -> Node:
        wanted = silenced(node, _now())
        if wanted is node:
            return node
        written = await self._client.update(NODES, wanted, subresource="status")
        if status_of(node) == "True":
            name = node.metadata.name
            self._events.normal(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        return written

    async def _update_taints(self, node: Node) -> None:
        """Write the taints and labels of a node, and evict it if that is due."""
        name = node.metadata.name
        zone = self._health.begin(name, self._time())
        if zone is None:
            await self._write(node, Evict.NEVER if self._health.disrupted else Evict.WAIT)
            return
        evicted = False
        try:
            await self._write(node, Evict.NOW)
            evicted = True
            self._metrics.evictions.add(zone_of(node))
        finally:
            zone.end(name, self._time(), evicted=evicted)
            self._woken.set()

    async def _write(self, node: Node, evict: Evict) -> None:
        wanted = desired_taints(node, evict, _now())
        if wanted is not node:
            await self._client.update(NODES, wanted)

    async def _mark_pods(self, node: Node) -> None:
        """Mark the pods of a silent node as not ready. A pod that cannot be written does not block the others."""
        failures: list[Exception] = []
        for pod in pods_on(self._pods, node.metadata.name):
            try:
                await self._mark_pod(pod)
            except (ApiError, OSError) as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def _mark_new_pod(self, key: Key) -> None:
        pod = self._pods.get(key)
        node = self._nodes.get(Key("", pod.spec.node_name)) if pod is not None else None
        if pod is not None and is_not_ready(node):
            await self._mark_pod(pod)

    async def _mark_pod(self, pod: Pod) -> None:
        wanted = unready(pod, _now())
        if wanted is not pod:
            with contextlib.suppress(NotFound):
                await self._client.update(PODS, wanted, subresource="status")
                self._events.warning(pod, "NodeNotReady", "Node is not ready")


def newcomers(informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield a ready pod that was newly bound to a node that is not ready. Pods of the initial list are skipped."""
    pod, before = change.after, change.before
    if pod is None or change.initial or not pod.spec.node_name:
        return
    came = before is None or before.spec.node_name != pod.spec.node_name
    if came and is_not_ready(informers.get(NODES).get(Key("", pod.spec.node_name))) and is_pod_ready(pod):
        yield change.key


SPECS = (
    ControllerSpec(
        name="node-lifecycle-controller",
        queue="node_lifecycle_controller",
        aliases=("nodelifecycle",),
        service_account="node-controller",
        reporter="node-controller",
        reconciler=NodeLifecycleController,
        options=NodeLifecycleOptions,
        workers=lambda _: WORKERS,
        # A renewal wakes no reconcile: leases are looked at with all nodes.
        watches=(For(NODES), Mapped(LEASES), Mapped(PODS, newcomers, indexes=PODS_BY_NODE)),
        rbac=(
            PolicyRule(groups=("",), resources=("nodes",), verbs=("update",)),
            PolicyRule(groups=("",), resources=("nodes/status", "pods/status"), verbs=("update",)),
        ),
    ),
)


def _now() -> str:
    return format_time(utc_now())
