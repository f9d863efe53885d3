"""Reconciles a node with the range that it has for its pods."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.errors import ApiError, Conflict, Invalid, NotFound
from controller_manager.common.base.metrics import Family, Shown
from controller_manager.framework.client import TransportError
from controller_manager.framework.controller import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    PolicyRule,
    TerminalError,
)

from ..shared.node_ranges import NodeRangeOptions, networks, ranges_of
from .cidr_set import TRIES, CIDRSet, RangeAllocator

WORKERS = 30
ATTEMPTS = 3
NOT_AVAILABLE = "CIDRNotAvailable"
ASSIGNMENT_FAILED = "CIDRAssignmentFailed"
# So many nodes are read in a row at the start before others have their turn.
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


# Observed: the node, what is held for it, all nodes as the server has them when the first node is looked at.
# Decided:                                                Done:
#   the node is gone, or another one by its name          what was held is released, once the server says so, too
#   it has ranges                                         they are held, those instead of what was to be given to it
#   it is being deleted                                   nothing
#   it has none                                           the next free parts, of each range one, in one patch; after
#                                                         a failure the same ones again, until the node is gone
#   it has none, and no part is free                      an event; again when a part is released
#   it waited for a part, and needs none any more         what was offered to it is offered to the next
#
# A part is held from before the patch until the server says that the node is gone. The patch names the uid of the node:
# however late it comes, it is for that node or for none. The server refuses to change ranges that a node has.


class NodeIpamController:
    """Reconciles one node; has nodes without a range looked at again when one is free."""

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
        # Nodes that got no range, in order.
        self._without: dict[Key, None] = {}
        self._released = asyncio.Event()
        context.runtime.registry.register(CIDRSetMetrics(sets))

    async def run(self, add: Add) -> None:
        """Have nodes without a range looked at again, as many as there are free parts, after each release."""
        while True:
            await self._released.wait()
            self._released.clear()
            free = min(one.size - one.used for one in self._ranges.sets)
            for key in list(islice(self._without, free)):
                add(key, "a range is free")

    async def reconcile(self, key: Key) -> None:
        """Have node `key` hold its ranges, or give it some."""
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
        """Learn from the server what is given already: the local copy may lag behind what a leader before has given."""
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
        """Leave a part that the node may have been offered to the next one that waits."""
        if key in self._without:
            del self._without[key]
            self._released.set()

    def _occupy(self, key: Key, node: Node) -> None:
        """Hold what the node has; raises TerminalError if it is none of the cluster's."""
        self._wait_no_more(key)
        before = self._ranges.held(key.name)
        strange = self._ranges.occupy(key.name, node.metadata.uid, ranges_of(node))
        if before is not None and before != self._ranges.held(key.name):
            self._released.set()
        if strange:
            raise TerminalError(f"node {key.name} has {', '.join(strange)}, of which nothing is in --cluster-cidr")

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
        """Return whether the node needs nothing any more, or is gone, or another one by now, which a change will tell.

        If somebody else has given it ranges, those are held.
        """
        node = await self._read(key)
        if node is not None and node.metadata.uid == uid and ranges_of(node):
            self._occupy(key, node)
        return node is None or node.metadata.uid != uid or bool(ranges_of(node))


class CIDRSetMetrics(Collector):
    """Read from the ranges when somebody asks."""

    def __init__(self, sets: Iterable[CIDRSet]) -> None:
        self._sets = [((str(one.network),), one) for one in sets]

    def describe(self) -> Iterable[Metric]:
        """The families without their samples."""
        return [Shown(family) for family in (_ALLOCATIONS, _RELEASES, _MOST, _USAGE, _TRIES)]

    def collect(self) -> Iterable[Metric]:
        """One series of each family for each range, as far as anything has happened to it."""
        in_use = [(labels, one) for labels, one in self._sets if one.allocations]
        return (
            Shown(_ALLOCATIONS, [(labels, float(one.allocations)) for labels, one in in_use]),
            Shown(_RELEASES, [(labels, float(one.releases)) for labels, one in in_use if one.releases]),
            Shown(_MOST, [(labels, float(one.size)) for labels, one in self._sets]),
            Shown(_USAGE, [(labels, one.used / one.size) for labels, one in in_use]),
            Shown(_TRIES, [(labels, one.tries) for labels, one in in_use]),
        )


def _concerned(_: Informers, change: Change[Node]) -> Iterator[Key]:
    """A node that came, went, was replaced, was given ranges, or is being deleted."""
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
