"""Allocates the pod CIDRs of nodes."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.errors import ApiError, Conflict, Invalid, NotFound
from controller_manager.common.base.metrics import Family, Shown
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    PolicyRule,
    TerminalError,
    TransportError,
)

from ..shared.node_ranges import NodeRangeOptions, networks, ranges_of
from .cidr_set import TRIES, CIDRSet, RangeAllocator

WORKERS = 30
ATTEMPTS = 3
NOT_AVAILABLE = "CIDRNotAvailable"
ASSIGNMENT_FAILED = "CIDRAssignmentFailed"
# Number of nodes processed in a row at startup before other coroutines run.
_AT_ONCE = 500

_LABELS = ("clusterCIDR",)
_ALLOCATIONS = Family(
    "node_ipam_controller_cidrset_cidrs_allocations_total", "Parts of a range that came into use.", "counter", _LABELS
)
_RELEASES = Family(
    "node_ipam_controller_cidrset_cidrs_releases_total", "Parts of a range that went out of use.", "counter", _LABELS
)
_MOST = Family("node_ipam_controller_cirdset_max_cidrs", "Parts that a range has.", "gauge", _LABELS)
_USAGE = Family(
    "node_ipam_controller_cidrset_usage_cidrs", "Share of the parts of a range that is in use.", "gauge", _LABELS
)
_TRIES = Family(
    "node_ipam_controller_cidrset_allocation_tries_per_request",
    "Parts in use that were passed over to find a free one.",
    "histogram",
    _LABELS,
    TRIES,
)


# Observed: the node, the CIDRs held for it, and at the first reconcile all nodes on the server.
# Decided:                                       Done:
#   node gone or replaced                        release its CIDRs, once the server confirms it
#   it has CIDRs                                 hold them, instead of those being given
#   being deleted                                nothing
#   it has none                                  patch in the next free part of each cluster CIDR; after a failure
#                                                retry the same ones, until the node is gone
#   it has none, and no part is free             an event; retry when a part is released
#   it waited for a part, and needs none         offer the part to the next node
# A part is held from before the patch until the server confirms that the node is gone. The patch contains the uid of
# the
# node, so a late patch cannot reach another node. The server rejects changes of existing CIDRs.


class NodeIpamController:
    """Reconciles nodes, and retries waiting nodes when a part is released."""

    def __init__(self, context: Context, options: NodeRangeOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._nodes = context.informers.get(NODES)
        masks = options.node_masks
        sets = [CIDRSet(network, masks[network.version]) for network in options.cluster_networks]
        self._ranges = RangeAllocator(sets, networks(options.service_cluster_ip_range))
        self._begun = False
        self._beginning = asyncio.Lock()
        # Nodes that got no CIDR, in order.
        self._without: dict[Key, None] = {}
        self._released = asyncio.Event()
        context.runtime.registry.register(CIDRSetMetrics(sets))

    async def run(self, add: Add) -> None:
        """Enqueue waiting nodes, as many as there are free parts, after each release."""
        while True:
            await self._released.wait()
            self._released.clear()
            free = min(one.size - one.used for one in self._ranges.sets)
            for key in list(islice(self._without, free)):
                add(key, "a range is free")

    async def reconcile(self, key: Key) -> None:
        """Hold the CIDRs of node `key`, or allocate some."""
        await self._begin()
        node, held = self._nodes.get(key), self._ranges.held(key.name)
        if held is not None and (node is None or node.metadata.uid != held.uid):
            node = await self._read(key)
            if node is None or node.metadata.uid != held.uid:
                self._release(key)
        if node is not None and ranges_of(node):
            self._occupy(key, node)
        elif node is not None and node.metadata.deletion_timestamp is None:
            await self._assign(key, node)
        else:
            self._wait_no_more(key)

    async def _begin(self) -> None:
        """Read all allocations from the server, since the cache may lag behind a previous leader's writes."""
        async with self._beginning:
            if self._begun:
                return
            for count, node in enumerate((await self._client.list(NODES)).items):
                if ranges_of(node):
                    self._ranges.occupy(node.metadata.name, node.metadata.uid, ranges_of(node))
                if count % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
            self._begun = True

    async def _read(self, key: Key) -> Node | None:
        try:
            return await self._client.get(NODES, key)
        except NotFound:
            return None

    def _release(self, key: Key) -> None:
        if self._ranges.release(key.name):
            self._released.set()

    def _wait_no_more(self, key: Key) -> None:
        """Offer a part that the node may have been offered to the next waiting node."""
        if key in self._without:
            del self._without[key]
            self._released.set()

    def _occupy(self, key: Key, node: Node) -> None:
        """Hold the CIDRs of the node; raises TerminalError if one is outside the cluster CIDRs."""
        self._wait_no_more(key)
        before = self._ranges.held(key.name)
        strange = self._ranges.occupy(key.name, node.metadata.uid, ranges_of(node))
        if before is not None and before != self._ranges.held(key.name):
            self._released.set()
        if strange:
            raise TerminalError(f"node {key.name} has {', '.join(strange)}, which is not in --cluster-cidr")

    async def _assign(self, key: Key, node: Node) -> None:
        uid = node.metadata.uid
        ranges = self._ranges.assign(key.name, uid)
        if not ranges:
            self._without[key] = None
            self._events.normal(node, NOT_AVAILABLE, f"Node {key.name} status is now: {NOT_AVAILABLE}")
            raise TerminalError(f"no range is left for node {key.name}")
        self._without.pop(key, None)
        change = {"metadata": {"uid": uid}, "spec": {"podCIDR": ranges[0], "podCIDRs": ranges}}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._client.patch(NODES, key, change)
            except (Invalid, NotFound, Conflict):
                if not await self._is_settled(key, uid):
                    raise
                return
            except (ApiError, TransportError):
                if attempt == ATTEMPTS:
                    self._events.normal(node, ASSIGNMENT_FAILED, f"Node {key.name} status is now: {ASSIGNMENT_FAILED}")
                    raise
            else:
                self._log.info("gave a node its ranges", node=key.name, ranges=ranges)
                return

    async def _is_settled(self, key: Key, uid: str) -> bool:
        """Return whether the node needs no allocation any more, is gone or was replaced.

        CIDRs set by another client are held.
        """
        node = await self._read(key)
        if node is not None and node.metadata.uid == uid and ranges_of(node):
            self._occupy(key, node)
        return node is None or node.metadata.uid != uid or bool(ranges_of(node))


class CIDRSetMetrics(Collector):
    """Metrics read from the sets when Prometheus scrapes."""

    def __init__(self, sets: Iterable[CIDRSet]) -> None:
        self._sets = [((str(one.network),), one) for one in sets]

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples."""
        return [Shown(family) for family in (_ALLOCATIONS, _RELEASES, _MOST, _USAGE, _TRIES)]

    def collect(self) -> Iterable[Metric]:
        """Return the samples of each CIDR that was used."""
        in_use = [(labels, one) for labels, one in self._sets if one.allocations]
        return (
            Shown(_ALLOCATIONS, [(labels, float(one.allocations)) for labels, one in in_use]),
            Shown(_RELEASES, [(labels, float(one.releases)) for labels, one in in_use if one.releases]),
            Shown(_MOST, [(labels, float(one.size)) for labels, one in self._sets]),
            Shown(_USAGE, [(labels, one.used / one.size) for labels, one in in_use]),
            Shown(_TRIES, [(labels, one.tries) for labels, one in in_use]),
        )


def _concerned(_: Informers, change: Change[Node]) -> Iterator[Key]:
    """Yield a node that was added, deleted or replaced, got CIDRs, or is being deleted."""
    if change.before is None or change.after is None or _facts(change.before) != _facts(change.after):
        yield change.key


def _facts(node: Node) -> tuple[object, ...]:
    return node.metadata.uid, ranges_of(node), node.metadata.deletion_timestamp


SPECS = (
    ControllerSpec(
        name="node-ipam-controller",
        queue="cidrallocator_node",
        aliases=("nodeipam",),
        service_account="node-controller",
        reporter="cidrAllocator",
        reconciler=NodeIpamController,
        options=NodeRangeOptions,
        asked_for=lambda options: options.allocate_node_cidrs,
        needs_flags=("allocate-node-cidrs",),
        workers=lambda _: WORKERS,
        watches=(Mapped(NODES, _concerned),),
        rbac=(PolicyRule(groups=("",), resources=("nodes",), verbs=("get", "list", "watch", "patch")),),
    ),
)
