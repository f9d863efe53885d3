"""Node route controller: maintains a cloud route for each pod CIDR of each node."""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

import msgspec

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.common.base.errors import describe
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import (
    STRATEGIC_MERGE_PATCH,
    Add,
    Change,
    Context,
    ControllerSpec,
    Informers,
    Mapped,
    PolicyRule,
    Requeue,
    key_of,
)
from controller_manager.framework.cloud_provider import Route

from .shared.cloud import FAILURES, answer_of
from .shared.node_ranges import Network, NodeRangeOptions, ranges_of

WATCHES = "CloudControllerManagerWatchBasedRoutesReconciliation"
CONDITION = "NetworkUnavailable"
# One key stands for all routes.
ROUTES = "routes"
AT_ONCE = 200
# Minimum seconds between two syncs if nodes are watched.
LEAST_INTERVAL = 10.0

_LOOKS = Family("route_controller_route_sync_total", "Number of syncs of the cloud's routes.", "counter")


class Plan(msgspec.Struct, frozen=True):
    """Routes to delete, then routes to create, each with its node. `concerned` are nodes whose condition has to
    be written.
    """

    delete: Sequence[Route]
    create: Sequence[tuple[Node, Route]]
    concerned: frozenset[str]


# Observed: all routes of the cloud, all nodes; every --route-reconciliation-period, or with the gate when a node is
#   added, deleted, or changes its CIDRs or addresses, at most every ten seconds.
# Decided about a route, if it overlaps --cluster-cidr:
#   a blackhole, or no node has its range             delete
#   its node has other addresses now                  delete and recreate
# Decided about a node:
#   a range without a route                           create a route
#   all ranges have routes                            NetworkUnavailable=False
#   not all routes could be created                   NetworkUnavailable=True
#   no range, but the cloud has a route to it         NetworkUnavailable=True
#   no range and no route                             nothing


class NodeRoutes:
    """Reconciles all routes under one key."""

    def __init__(self, context: Context, options: NodeRangeOptions) -> None:
        assert context.cloud is not None
        assert context.cloud.routes is not None
        self._routes = context.cloud.routes
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._nodes = context.informers.get(NODES)
        self._networks = options.cluster_networks
        self._period = options.route_reconciliation_period
        self._watches = context.enabled(WATCHES)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._next = 0.0
        self._looks = Counters(_LOOKS, context.runtime.registry)

    async def run(self, add: Add) -> None:
        """Enqueue the key now, and every period unless nodes are watched."""
        while True:
            add(ROUTES, "the period")
            await (asyncio.Event().wait() if self._watches else asyncio.sleep(self._period))

    async def reconcile(self, _: str) -> Requeue | None:
        """Delete and create routes and update node conditions. Raises the first error after all attempts."""
        if self._watches and (left := self._next - clock.monotonic()) > 0:
            return Requeue(left)
        self._next = clock.monotonic() + LEAST_INTERVAL
        self._looks.add()
        routes = await answer_of(self._routes.list())
        nodes = self._nodes.list()
        plan = plan_routes(nodes, routes, self._networks)
        errors = await all_of(*(self._attempt(self._delete(route)) for route in plan.delete))
        made = await all_of(*(self._attempt(self._create(node, route)) for node, route in plan.create))
        without = {node.metadata.name for (node, _), error in zip(plan.create, made, strict=True) if error is not None}
        concerned = [node for node in nodes if node.metadata.name in plan.concerned]
        there = [bool(ranges_of(node)) and node.metadata.name not in without for node in concerned]
        reported = await all_of(
            *(self._attempt(self._set_condition(*one)) for one in zip(concerned, there, strict=True))
        )
        for error in filter(None, (*errors, *made, *reported)):
            raise error
        return None

    async def _attempt(self, call: Awaitable[None]) -> Exception | None:
        """Return the error of a call, so that the other calls continue."""
        async with self._turns:
            try:
                await call
            except FAILURES as error:  # raised when all have been made
                return error
        return None

    async def _delete(self, route: Route) -> None:
        await answer_of(self._routes.delete(route))
        self._log.info("deleted a route", route=route.name, destination=route.destination)

    async def _create(self, node: Node, route: Route) -> None:
        try:
            await answer_of(self._routes.create(node.metadata.uid, route))
        except FAILURES as error:
            message = f"Could not create route {route.destination} for node {route.node}: {describe(error)}"
            self._events.warning(node, "FailedToCreateRoute", message)
            raise
        self._log.info("created a route", node=route.node, destination=route.destination)

    async def _set_condition(self, node: Node, there: bool) -> None:
        wanted = condition_for(there)
        found = condition_of(node.status.conditions, CONDITION)
        if found is not None and (found.status, found.reason) == (wanted["status"], wanted["reason"]):
            return
        now = format_time(clock.utc_now())
        condition = {**wanted, "lastHeartbeatTime": now, "lastTransitionTime": now}
        change = {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": [condition]}}
        with contextlib.suppress(NotFound):
            await self._client.patch(NODES, key_of(node), change, STRATEGIC_MERGE_PATCH, subresource="status")


def _node_changed(_: Informers, change: Change[Node]) -> Iterator[str]:
    """Yield the key if a node was added, deleted, resynced, or changed its CIDRs or addresses."""
    before, after = change.before, change.after
    if (
        before is None
        or after is None
        or _facts(before) != _facts(after)
        or before.metadata.resource_version == after.metadata.resource_version
    ):
        yield ROUTES


def _facts(node: Node) -> tuple[object, ...]:
    return ranges_of(node), node.status.addresses


SPECS = (
    ControllerSpec(
        name="node-route-controller",
        queue="Routes",
        aliases=("route",),
        service_account="route-controller",
        reporter="route_controller",
        reconciler=NodeRoutes,
        options=NodeRangeOptions,
        asked_for=lambda options: options.configure_cloud_routes and bool(options.cluster_cidr),
        needs_flags=("cluster-cidr",),
        cloud="routes",
        retry_delays=(LEAST_INTERVAL, 300.0),
        watches=(Mapped(NODES), Mapped(NODES, _node_changed, gate=WATCHES)),
        rbac=(
            PolicyRule(groups=("",), resources=("nodes",), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("nodes/status",), verbs=("patch",)),
        ),
    ),
)


def plan_routes(nodes: Iterable[Node], routes: Sequence[Route], networks: Sequence[Network]) -> Plan:
    """Return the plan for the routes of the cloud, by the table above."""
    there: dict[tuple[str, str], Route] = {}
    for route in routes:
        if not route.blackhole:
            there.setdefault((route.node, route.destination), route)
    targets = {route.node for route in routes}
    kept, create, concerned = set[tuple[str, str]](), [], set[str]()
    for node in nodes:
        name, addresses = node.metadata.name, node.status.addresses
        if ranges_of(node) or name in targets:
            concerned.add(name)
        for destination in ranges_of(node):
            found = there.get((name, destination))
            if found is not None and (not found.by_address or set(found.addresses) == set(addresses)):
                kept.add((name, destination))
            else:
                create.append((node, Route(destination, name, addresses=addresses)))
    superfluous = (one for one in routes if one.blackhole or (one.node, one.destination) not in kept)
    return Plan([one for one in superfluous if is_ours(one, networks)], create, frozenset(concerned))


def is_ours(route: Route, networks: Sequence[Network]) -> bool:
    """Return whether the first or the last address of a route is in a CIDR of the cluster."""
    try:
        found = ip_network(route.destination, strict=False)
    except ValueError:
        return False
    return any(address in network for network in networks for address in (found[0], found[-1]))


def condition_for(there: bool) -> Mapping[str, Any]:
    """Return the condition of a node, given whether all its routes exist."""
    status, reason = ("False", "RouteCreated") if there else ("True", "NoRouteCreated")
    message = "the network of the cloud has its routes" if there else "the network of the cloud lacks a route to it"
    return {"type": CONDITION, "status": status, "reason": reason, "message": message}
