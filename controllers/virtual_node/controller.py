"""Runs virtual nodes and their pods: registers nodes, renews leases, and writes pod statuses."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import msgspec

from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import NODES, PODS, VIRTUAL_POOL, Node, Pod, is_pod_terminal
from controller_manager.common.api.errors import AlreadyExists, Conflict, NotFound
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.framework import (
    STRATEGIC_MERGE_PATCH,
    Add,
    Change,
    Context,
    ControllerSpec,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    StringList,
    StringMap,
    flag,
)

from ..scheduler.node_info import room_of
from ..scheduler.pod_requirements import requirements_of
from ..shared.pods import PODS_BY_NODE, pods_on
from .addresses import Addresses
from .admission import AdmittedPods, Refusal, refusal_of
from .critical_pods import victims_for
from .heartbeats import Heartbeats
from .lifecycle import Place, PodDecision, decide, preempted, refused
from .nodes import (
    OF_FLAGS,
    NodeSettings,
    is_virtual,
    name_of,
    registration,
    reports_now,
    status_of,
    until_report,
)
from .pods import POD, VirtualPod, moment
from .stages import load_stages

# Networks for benchmarks and shared address space: used for nodes, and for pods of nodes without a CIDR.
_NODE_NETWORK, _POD_NETWORK = "198.18.0.0/15", "100.64.0.0/10"
# How an API server on this machine addresses the local host.
_LOCAL = {"127.0.0.1": "localhost", "::1": "localhost", "0.0.0.0": "localhost", "::": "localhost"}  # noqa: S104
COMPARES = "TaintTolerationComparisonOperators"
# Minimum age in seconds before a pod is rejected, which limits the rate at which controllers recreate it.
_PATIENCE = 2.0
_NO_ADDRESS = 10.0  # seconds until a pod is looked at again for which there was no address


class VirtualNodeOptions(Options):
    """Flags of virtual nodes."""

    title: ClassVar[str] = "Virtual node controller"

    virtual_nodes: Int32 = flag(
        0, "number of virtual nodes; additional ones of an earlier start are deleted", minimum=0
    )
    virtual_node_capacity: StringMap = flag(
        {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"},
        "what a virtual node has room for",
    )
    virtual_node_zones: StringList = flag(
        ("zone-a", "zone-b", "zone-c"), "zones of the nodes that --virtual-nodes asks for, in turn"
    )
    virtual_node_stages: str = flag(
        "", "file (YAML or JSON) of stages of pods, which come before those that are built in", metavar="file"
    )
    virtual_node_instant: bool = flag(False, "the stages that are built in take no time")
    virtual_node_bind_address: str = flag(
        "127.0.0.1",
        "address at which logs of pods are served, with an answer to who wants more of them; if empty, nowhere",
    )
    virtual_node_port: Int32 = flag(
        0, "port at which logs of pods are served; 0 for any that is free", minimum=0, maximum=65535
    )
    concurrent_virtual_node_syncs: Int32 = flag(64, "nodes and pods that are looked at at the same time", minimum=1)


# Observed: nodes with the label of a pool; pods bound to them.
# Decided (`nodes.py`, `lifecycle.py`):             Done:
#   a configured node is missing                    register it, with a lease
#   five minutes have passed, or status is wrong    update the node status; leases: see `heartbeats.py`
#   pods: see `lifecycle.py`                        one patch of the status, or the final deletion


class VirtualNodeController:
    """Reconciles nodes (keys without a namespace) and pods."""

    def __init__(self, context: Context, options: VirtualNodeOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._nodes = context.informers.get(NODES)
        self._pods = context.informers.get(PODS)
        self._options = options
        self._settings = NodeSettings(options.virtual_node_capacity, zones=options.virtual_node_zones)
        self._stages = load_stages(options.virtual_node_stages, instant=options.virtual_node_instant)
        self._pod_addresses: Addresses | None = None
        self._admitted = AdmittedPods()
        self._add: Add | None = None
        self._compares = context.enabled(COMPARES)
        self._node_addresses = Addresses(_NODE_NETWORK)
        self._heartbeats = Heartbeats(context.client, context.log)
        # Nodes to register, with their numbers, and nodes to delete.
        self._wanted: dict[str, int] = {}
        self._unwanted: set[str] = set()
        self._ready = asyncio.Event()
        self._changes = Counters(_CHANGES, context.runtime.registry)
        self._worker = context.runtime.worker

    async def run(self, add: Add) -> None:
        """Register the configured nodes, delete others of their pool, and serve the kubelet API."""
        self._add = add
        self._wanted = {name_of(number): number for number in range(self._options.virtual_nodes)}
        for node in self._nodes.list():
            if (node.metadata.labels or {}).get(VIRTUAL_POOL) == OF_FLAGS and node.metadata.name not in self._wanted:
                self._unwanted.add(node.metadata.name)
        async with self._served():
            self._ready.set()
            for name in (*self._wanted, *self._unwanted):
                add(Key("", name), "nodes are asked for")
            await self._heartbeats.run()

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        """Serve the kubelet API and record its address."""
        host = self._options.virtual_node_bind_address
        if not host:
            yield
            return
        from .kubelet_api import KubeletAPI  # needs what serves HTTPS, which others have no use for

        api = KubeletAPI(host, self._options.virtual_node_port, self._virtual_pod)
        await api.start()
        self._settings = self._settings._replace(hostname=_LOCAL.get(host, host), port=api.port)
        try:
            yield
        finally:
            await api.stop()

    def _virtual_pod(self, key: Key) -> VirtualPod | None:
        pod = self._pods.get(key)
        return POD.decode(pod.raw) if pod is not None else None

    async def reconcile(self, key: Key) -> Requeue | None:
        """Reconcile a node or a pod."""
        await self._ready.wait()
        return await (self._pod(key) if key.namespace else self._node(key))

    # Nodes

    async def _node(self, key: Key) -> Requeue | None:
        node, name = self._nodes.get(key), key.name
        if name in self._unwanted:
            self._unwanted.discard(name)
            if node is not None:
                await self._client.delete(NODES, key, uid=node.metadata.uid)
            return None
        if node is None:
            if name not in self._wanted:
                self._heartbeats.end(name)
                self._node_addresses.release(name)
                return None
            node = await self._register(name)
        self._wanted.pop(name, None)
        if not is_virtual(node):
            self._heartbeats.end(name)
            return None
        self._heartbeats.begin(name, node.metadata.uid)
        now = clock.wall_seconds()
        if reports_now(node, self._settings, self._address(node), now):
            await self._report(node)
            return None  # the answer wakes it
        return Requeue(until_report(node, now))

    async def _register(self, name: str) -> Node:
        number, now = self._wanted[name], format_time(clock.utc_now())
        tree = registration(name, number, self._settings, self._node_addresses.of(name)[0], now)
        node = Node.decode(msgspec.json.encode(tree))
        try:
            return await self._client.create(NODES, node)
        except AlreadyExists:
            return await self._client.get(NODES, Key("", name))

    async def _report(self, node: Node) -> None:
        status = status_of(node, self._settings, self._address(node), format_time(clock.utc_now()))
        body = {"metadata": {"uid": node.metadata.uid}, "status": status}
        await self._client.patch(NODES, key_of(node), body, STRATEGIC_MERGE_PATCH, subresource="status")

    def _address(self, node: Node) -> str:
        """Return the address of a node: its present one, or a new one."""
        name = node.metadata.name
        self._node_addresses.mark(name, (one.address for one in node.status.addresses if one.type == "InternalIP"))
        return next(iter(self._node_addresses.of(name)), "")

    # Pods

    async def _pod(self, key: Key) -> Requeue | None:
        pod = self._pods.get(key)
        if pod is None:
            self._addresses.release(key)
            self._admitted.forget(key)
            return None
        node = self._nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
        if node is None or not is_virtual(node):
            return None
        view = POD.decode(pod.raw)
        if not self._admitted.has(pod):
            await self._worker.run_if_large(len(pod.raw), partial(requirements_of, pod))  # which is remembered
        try:
            refusal = None if self._admitted.ends(pod) else await self._refusal(pod, node)
            if refusal is not None:
                early = moment(pod.metadata.creation_timestamp) + _PATIENCE - clock.wall_seconds()
                if 0 < early <= _PATIENCE:
                    return Requeue(early)
                decision = refused(view, refusal, clock.wall_seconds())
            else:
                place = self._place(pod, view, node)
                if not place.pod_ips:
                    return Requeue(_NO_ADDRESS)
                decision = await self._decided(pod, view, place)
            await self._write(pod, decision)
        except (NotFound, Conflict):
            return None  # the pod or its node was deleted or recreated; the informer delivers the change
        for event in decision.events:
            self._events.event(pod, event.type, event.reason, event.message)
        return Requeue(max(0.0, decision.due - clock.wall_seconds())) if decision.due < math.inf else None

    async def _decided(self, pod: Pod, view: VirtualPod, place: Place) -> PodDecision:
        now = clock.wall_seconds()
        if self._admitted.ends(pod):
            step = partial(preempted, view, place, now)
        else:
            step = partial(decide, view, self._stages, place, now)
        return await self._worker.run_if_large(len(pod.raw), step)

    async def _refusal(self, pod: Pod, node: Node) -> Refusal | None:
        """Return why a pod is rejected by its node, or None.

        The node is read from the server first, since the cache may be older than the scheduler's.
        """
        if self._admitted.has(pod) or pod.metadata.deletion_timestamp is not None or is_pod_terminal(pod):
            return None
        if self._judge(pod, node) is not None:
            node = await self._client.get(NODES, key_of(node))
        refusal = self._judge(pod, node)
        if refusal is not None and refusal.lacking:
            refusal = self._make_room(pod, refusal)
        if refusal is None:
            self._admitted.add(pod)
        return refusal

    def _make_room(self, pod: Pod, refusal: Refusal) -> Refusal | None:
        """Preempt other pods for a critical pod, which is admitted at once. Return why that does not help."""
        assert self._add is not None
        there = self._admitted.occupants(pods_on(self._pods, pod.spec.node_name))
        victims = victims_for(requirements_of(pod), refusal.lacking, there)
        if victims is None:
            return Refusal(
                "UnexpectedAdmissionError", f"{refusal.message}, and too little of that by others that may end"
            )
        for one in victims:
            self._admitted.end(one.pod)
            self._add(key_of(one.pod), "a critical pod needs its room")
        return None

    def _judge(self, pod: Pod, node: Node) -> Refusal | None:
        others = self._admitted.requirements(pods_on(self._pods, node.metadata.name))
        room = room_of(node.status.allocatable or self._settings.capacity)
        return refusal_of(pod, node, room, others, compares=self._compares)

    async def _write(self, pod: Pod, decision: PodDecision) -> None:
        key, uid = key_of(pod), pod.metadata.uid
        if decision.status:
            body: Mapping[str, Any] = {"metadata": {"uid": uid}, "status": decision.status}
            written = await self._client.patch(PODS, key, body, STRATEGIC_MERGE_PATCH, subresource="status")
            self._changes.add("status")
            if pod.metadata.generation > 1 and "observedGeneration" in decision.status:
                self._admitted.add(written)  # it may have been resized
        if decision.removes:
            await self._client.delete(PODS, key, grace=0, uid=uid)
            self._changes.add("deletion")

    def _place(self, pod: Pod, view: VirtualPod, node: Node) -> Place:
        """Return the addresses of a pod: its present ones, those of its node, or newly allocated ones."""
        hosts = tuple(one.address for one in node.status.addresses if one.type == "InternalIP")
        hosts = hosts or (self._address(node),)
        if view.spec.host_network:
            return Place(hosts, hosts)
        known = tuple(one.ip for one in pod.status.pod_ips)
        return Place(hosts, known or self._addresses.of(key_of(pod), node.spec.pod_cidrs))

    @property
    def _addresses(self) -> Addresses:
        """Return the address allocations, initialized from existing pods."""
        if self._pod_addresses is None:
            self._pod_addresses = Addresses(_POD_NETWORK)
            for pod in self._pods.list():
                # A missing node may come back, with its pods.
                node = self._nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
                given = [one.ip for one in pod.status.pod_ips]
                self._pod_addresses.mark(key_of(pod), given, node.spec.pod_cidrs if node is not None else ())
        return self._pod_addresses


def _pods_woken(informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield a pod of a virtual node that changed, and any deleted pod."""
    node = informers.get(NODES).get(Key("", change.object.spec.node_name)) if change.object.spec.node_name else None
    if (node is not None and VIRTUAL_POOL in (node.metadata.labels or {})) or change.after is None:
        yield change.key


def _woken_by_node(informers: Informers, change: Change[Node]) -> Iterator[Key]:
    """Yield a changed virtual node, and its pods if it is new or no longer silent."""
    yield change.key
    before, after = change.before, change.after
    if after is not None and is_virtual(after) and not change.initial and (before is None or not is_virtual(before)):
        yield from map(key_of, pods_on(informers.get(PODS), after.metadata.name))


_CHANGES = Family("virtual_node_pod_writes_total", "Writes of pods by their virtual nodes.", "counter", ("verb",))
SPECS = (
    ControllerSpec(
        name="virtual-node-controller",
        aliases=("virtual-node",),
        reconciler=VirtualNodeController,
        options=VirtualNodeOptions,
        check=lambda options: _check(options),
        default_on=False,
        workers=lambda options: options.concurrent_virtual_node_syncs,
        retry_delays=(0.1, 30.0),
        # Each kubelet has a limit of its own.
        qps_factor=500,
        watches=(
            Mapped(NODES, keys=_woken_by_node),
            Mapped(PODS, keys=_pods_woken, indexes=PODS_BY_NODE, echoes=False),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("nodes",), verbs=("get", "list", "watch", "create", "delete")),
            PolicyRule(groups=("",), resources=("nodes/status",), verbs=("patch",)),
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "delete")),
            PolicyRule(groups=("",), resources=("pods/status",), verbs=("patch",)),
            PolicyRule(groups=(LEASES.group,), resources=("leases",), verbs=("create", "patch")),
        ),
    ),
)


def _check(options: VirtualNodeOptions) -> None:
    """Raise ConfigError for invalid stages."""
    load_stages(options.virtual_node_stages, instant=options.virtual_node_instant)
