"""Creates, updates and deletes cloud load balancers of services of type LoadBalancer."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from controller_manager.common.api.core import NODES, SERVICES, Node, Service
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base import clock
from controller_manager.common.base.errors import describe
from controller_manager.common.base.metrics import Counters, Family, Histograms
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
    flag,
    key_of,
)
from controller_manager.framework.cloud_provider import ImplementedElsewhere, RetryLater

from .shared.cloud import FAILURES, answer_of, backends, identities, is_included

FINALIZER = f"service.{PLATFORM_DOMAIN}/load-balancer-cleanup"
# Seconds of the first and the longest retry delay.
RETRY_DELAYS = (5.0, 300.0)

_SECONDS = tuple(2.0**step for step in range(15))
_UPDATES = Family(
    "service_controller_loadbalancer_sync_total", "Load balancers that were led to other nodes.", "counter"
)
_ROUNDS = Family(
    "service_controller_nodesync_latency_seconds",
    "How long it took until all load balancers led to the nodes there were.",
    "histogram",
    buckets=_SECONDS,
)
_FAILED = Family(
    "service_controller_nodesync_error_total", "Load balancers that could not be led to other nodes.", "counter"
)
_UPDATING = Family(
    "service_controller_update_loadbalancer_host_latency_seconds",
    "How long it took to lead a load balancer to other nodes.",
    "histogram",
    buckets=_SECONDS,
)


class ServiceLoadBalancerOptions(Options):
    """Service load balancer controller"""

    concurrent_service_syncs: Int32 = flag(1, "load balancers worked on at the same time", minimum=1)


class LoadBalancerAction(Enum):
    """The action on a service."""

    NOTHING = auto()
    ENSURE = auto()
    """Create or update its load balancer."""
    UPDATE = auto()
    """Update the nodes of its load balancer."""
    CLEAN_UP = auto()
    """Delete its load balancer, then remove its finalizer and status."""


class Ensured(msgspec.Struct, frozen=True):
    """A service whose load balancer was ensured, with the nodes used."""

    service: Service
    nodes: Mapping[str, str]


# Observed: the service, and with which service and nodes this process last ensured its load balancer.
# Decided:
#   our finalizer, and being deleted or of another type      CLEAN_UP
#   wants none, but had one                                  CLEAN_UP
#   wants none: another type, or with a class                NOTHING
#   not ensured yet, or relevant fields have changed         ENSURE
#   other nodes or provider IDs                              UPDATE; ENSURE after a failure
# If a service without our finalizer is gone or replaced, its load balancer is deleted.


class ServiceLoadBalancers:
    """Reconciles services."""

    def __init__(self, context: Context, _: ServiceLoadBalancerOptions) -> None:
        assert context.cloud is not None
        assert context.cloud.load_balancers is not None
        self._balancers = context.cloud.load_balancers
        self._client = context.client
        self._events = context.events
        self._services = context.informers.get(SERVICES)
        self._nodes = context.informers.get(NODES)
        self._ensured: dict[Key, Ensured] = {}
        self._nodes_changed = asyncio.Event()
        # Services not yet synced since the nodes changed, and since when.
        self._behind: set[Key] = set()
        self._behind_since = 0.0
        registry = context.runtime.registry
        self._updates, self._failed = Counters(_UPDATES, registry), Counters(_FAILED, registry)
        self._rounds, self._updating = Histograms(_ROUNDS, registry).of(), Histograms(_UPDATING, registry).of()

    async def run(self, add: Add) -> None:
        """Enqueue all services with load balancers when their nodes have changed."""
        end = self._nodes.subscribe(self._note)
        try:
            while True:
                await self._nodes_changed.wait()
                self._nodes_changed.clear()
                keys = [key_of(service) for service in self._services.list() if wants_load_balancer(service)]
                if not self._behind:
                    self._behind_since = clock.monotonic()
                self._behind.update(keys)
                for key in keys:
                    add(key, "the nodes changed")
        finally:
            end()

    def _note(self, change: Change[Node]) -> None:
        if nodes_changed(change):
            self._nodes_changed.set()

    async def reconcile(self, key: Key) -> Requeue | None:
        """Create, update or delete the load balancer of service `key`."""
        service, ensured = self._services.get(key), self._ensured.get(key)
        if ensured is not None and (service is None or service.metadata.uid != ensured.service.metadata.uid):
            await self._delete(key, ensured.service)
            ensured = None
        nodes = backends(self._nodes.list())
        step = decide(service, ensured, identities(nodes)) if service is not None else LoadBalancerAction.NOTHING
        if service is None or step is LoadBalancerAction.NOTHING:
            self._caught_up(key)
            return None
        if step is LoadBalancerAction.UPDATE:
            return await self._update(key, service, nodes)
        try:
            await (
                self._clean_up(key, service)
                if step is LoadBalancerAction.CLEAN_UP
                else self._ensure(key, service, nodes)
            )
        except RetryLater as error:
            self._warn(service, error)
            return Requeue(error.seconds)
        except FAILURES as error:
            self._warn(service, error)
            raise
        finally:
            self._caught_up(key)
        return None

    def _warn(self, service: Service, error: Exception) -> None:
        self._events.warning(service, "SyncLoadBalancerFailed", f"Error syncing load balancer: {describe(error)}")

    async def _ensure(self, key: Key, service: Service, nodes: list[Node]) -> None:
        self._ensured.pop(key, None)
        self._events.normal(service, "EnsuringLoadBalancer", "Ensuring load balancer")
        held = {"metadata": {"finalizers": [FINALIZER]}}
        if not _has_finalizer(service) and not await self._patch(key, service, held):
            return  # the service is gone; its load balancer would never be deleted
        if not nodes:
            self._no_nodes(service)
        try:
            status = await answer_of(self._balancers.ensure(service, nodes))
        except ImplementedElsewhere:
            self._ensured[key] = Ensured(service, identities(nodes))
            return
        self._events.normal(service, "EnsuredLoadBalancer", "Ensured load balancer")
        if status != service.status.load_balancer:
            await self._patch(key, service, {"status": {"loadBalancer": {"ingress": status.ingress or None}}})
        self._ensured[key] = Ensured(service, identities(nodes))

    async def _clean_up(self, key: Key, service: Service) -> None:
        if await answer_of(self._balancers.get(service)) is not None:
            self._events.normal(service, "DeletingLoadBalancer", "Deleting load balancer")
            with contextlib.suppress(ImplementedElsewhere):
                await answer_of(self._balancers.delete(service))
        status = {"status": {"loadBalancer": {"ingress": None}}} if service.status.load_balancer.ingress else {}
        held = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}} if _has_finalizer(service) else {}
        if status or held:
            await self._patch(key, service, {**status, **held})
        self._events.normal(service, "DeletedLoadBalancer", "Deleted load balancer")
        self._ensured.pop(key, None)

    async def _delete(self, key: Key, service: Service) -> None:
        """Delete the load balancer of a service that is gone although it had one, because its finalizer was removed."""
        self._events.normal(service, "DeletingLoadBalancer", "Deleting load balancer")
        try:
            with contextlib.suppress(ImplementedElsewhere):
                await answer_of(self._balancers.delete(service))
        except FAILURES as error:
            self._events.warning(
                service, "DeleteLoadBalancerFailed", f"Error deleting load balancer: {describe(error)}"
            )
            raise
        self._events.normal(service, "DeletedLoadBalancer", "Deleted load balancer")
        self._ensured.pop(key, None)

    async def _update(self, key: Key, service: Service, nodes: list[Node]) -> Requeue | None:
        """Update the nodes of a load balancer. After a failure, or if it is missing, it is ensured completely."""
        began = clock.monotonic()
        self._updates.add()
        del self._ensured[key]
        try:
            with contextlib.suppress(ImplementedElsewhere):
                await answer_of(self._balancers.update(service, nodes))
        except FAILURES as error:
            if await answer_of(self._balancers.get(service)) is None:
                return Requeue(0)
            self._failed.add()
            message = f"Error updating load balancer with {len(nodes)} nodes: {describe(error)}"
            self._events.warning(service, "UpdateLoadBalancerFailed", message)
            raise
        finally:
            self._updating.observe(clock.monotonic() - began)
            self._caught_up(key)
        if nodes:
            self._events.normal(service, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._no_nodes(service)
        self._ensured[key] = Ensured(service, identities(nodes))
        return None

    def _no_nodes(self, service: Service) -> None:
        self._events.warning(service, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")

    def _caught_up(self, key: Key) -> None:
        if key in self._behind:
            self._behind.discard(key)
            if not self._behind:
                self._rounds.observe(clock.monotonic() - self._behind_since)

    async def _patch(self, key: Key, service: Service, change: Mapping[str, Any]) -> bool:
        """Patch status and finalizers of the service with that uid. Return whether it exists.

        Raises `Conflict` if it was replaced.
        """
        metadata = {"uid": service.metadata.uid, **change.get("metadata", {})}
        try:
            body = {**change, "metadata": metadata}
            await self._client.patch(SERVICES, key, body, STRATEGIC_MERGE_PATCH, subresource="status")
        except NotFound:
            return False
        return True


def nodes_changed(change: Change[Node]) -> bool:
    """Return whether a node was added, deleted, changed its eligibility or its provider ID.

    A node being deleted is removed only with other changes, so that its connections can end by themselves.
    """
    before, after = change.before, change.after
    return before is None or after is None or _facts_of_node(before) != _facts_of_node(after)


def _facts_of_node(node: Node) -> tuple[object, ...]:
    return is_included(node), node.spec.provider_id


def service_changed(_: Informers, change: Change[Service]) -> Iterator[Key]:
    """Yield a service with a present or former load balancer, if more than its status has changed."""
    before, after = change.before, change.after
    concerned = [
        one for one in (before, after) if one is not None and (wants_load_balancer(one) or _has_finalizer(one))
    ]
    if concerned and (before is None or after is None or needs_update(before, after) or needs_cleanup(after)):
        yield change.key


SPECS = (
    ControllerSpec(
        name="service-lb-controller",
        queue="service",
        aliases=("service",),
        service_account="service-controller",
        reporter="service-controller",
        reconciler=ServiceLoadBalancers,
        options=ServiceLoadBalancerOptions,
        cloud="load_balancers",
        retry_delays=RETRY_DELAYS,
        workers=lambda options: options.concurrent_service_syncs,
        watches=(Mapped(SERVICES, service_changed), Mapped(NODES)),
        rbac=(
            PolicyRule(groups=("",), resources=("services",), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("services/status",), verbs=("patch",)),
            PolicyRule(groups=("",), resources=("nodes",), verbs=("list", "watch")),
        ),
    ),
)


def decide(service: Service, ensured: Ensured | None, nodes: Mapping[str, str]) -> LoadBalancerAction:
    """Return the action on a service, by the table above."""
    wants = wants_load_balancer(service)
    if needs_cleanup(service) or (not wants and ensured is not None):
        return LoadBalancerAction.CLEAN_UP
    if not wants:
        return LoadBalancerAction.NOTHING
    if ensured is None or needs_update(ensured.service, service):
        return LoadBalancerAction.ENSURE
    return LoadBalancerAction.NOTHING if nodes == ensured.nodes else LoadBalancerAction.UPDATE


def wants_load_balancer(service: Service) -> bool:
    """Return whether a service wants a load balancer of this cloud, without a load balancer class."""
    return service.spec.type == "LoadBalancer" and service.spec.load_balancer_class is None


def needs_cleanup(service: Service) -> bool:
    """Return whether our finalizer is on a service that no longer wants a load balancer."""
    gone = service.metadata.deletion_timestamp is not None or service.spec.type != "LoadBalancer"
    return gone and _has_finalizer(service)


def needs_update(before: Service, after: Service) -> bool:
    """Return whether fields have changed that affect the load balancer."""
    wanted, wants = wants_load_balancer(before), wants_load_balancer(after)
    return (wanted or wants) and (wanted != wants or _facts(before) != _facts(after))


def _has_finalizer(service: Service) -> bool:
    return FINALIZER in service.metadata.finalizers


def _facts(service: Service) -> tuple[object, ...]:
    spec = service.spec
    return (
        service.metadata.uid,
        service.metadata.annotations or {},
        [(port.name, port.protocol, port.port, port.node_port) for port in spec.ports],
        spec.session_affinity,
        bytes(spec.session_affinity_config),
        spec.load_balancer_ip,
        spec.load_balancer_source_ranges,
        spec.external_ips,
        spec.external_traffic_policy,
        spec.health_check_node_port,
        len(spec.ip_families),
    )
