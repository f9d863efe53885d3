"""Maintains the EndpointSlices of every service with a selector."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry

from controller_manager.common.api.core import NAMESPACES, NODES, PODS, SERVICES, ZONE, Node, Service
from controller_manager.common.api.discovery import ENDPOINT_SLICES, EndpointSlice
from controller_manager.common.api.errors import ApiError, Conflict
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Duration,
    For,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    flag,
    key_of,
    try_write,
)
from controller_manager.framework.client.events import Recorder

from ..shared.pods import (
    PODS_BY_LABEL,
    PODS_BY_NODE,
    SERVICES_BY_SELECTOR,
    is_gone,
    pods_of,
    pods_on,
    services_for,
    services_served_by,
)
from ..shared.slice_writer import (
    RULES,
    SLICES_BY_SERVICE,
    SliceMetrics,
    SliceWriter,
    services_of_slice,
    settling,
    slices_of,
)
from .decide import MANAGER, SliceDecision, decide, distribution, follows_zones, is_kept
from .zones import Capacity

_FOLLOW_ZONES = "follow-zones"


class EndpointSliceOptions(Options):
    """Endpoint slice controller"""

    concurrent_service_endpoint_syncs: Int32 = flag(
        5, "Services whose slices are computed at the same time.", minimum=1, maximum=50
    )
    endpointslice_updates_batch_period: Duration = flag(
        "0s", "How long pod changes are gathered before slices are updated; 0 updates at once.", minimum=0
    )
    max_endpoints_per_slice: Int32 = flag(100, "Endpoints in one slice at most.", minimum=1, maximum=1000)


# Observed: the service, the pods that its selector matches, the zones of their nodes, our slices of the service; for
# services with topology hints also the CPU of all ready nodes by zone.
# Decided, by the service:                            Done:
#   gone                                              delete the slices that it owned
#   type ExternalName, or without a selector          nothing; users manage the slices
#   being deleted                                     nothing; the garbage collector deletes the slices
#   otherwise, per address family and set of ports    slices filled as `shared/slices.py` describes
#     pods whose node is unknown                      omitted until it is known, unless unready pods are published
#     pods that have ended or have no address         omitted
#     slices of another family or a former service    delete
#     no endpoints                                    one empty slice
#     no difference                                   no write


class EndpointSliceController:
    """Reconciles services."""

    def __init__(self, context: Context, options: EndpointSliceOptions) -> None:
        self._client = context.client
        self._services = context.informers.get(SERVICES)
        self._pods = context.informers.get(PODS)
        self._nodes = context.informers.get(NODES)
        self._slices = context.informers.get(ENDPOINT_SLICES)
        self._limit = options.max_endpoints_per_slice
        self._capacity = Capacity()
        self._metrics = _Metrics(self._limit, context.runtime.registry)
        self._writer = SliceWriter(context.client, self._metrics.slices.changes)
        self._announcer = _Announcer(context.events)
        self._events = context.events

    async def run(self, add: Add) -> None:
        """Track the capacity of nodes. Services with topology hints are enqueued when it changes."""
        changed = asyncio.Event()

        def note(change: Change[Node]) -> None:
            if self._capacity.take(change.before, change.after):
                changed.set()

        end = self._nodes.subscribe(note)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for service in self._services.by_index(_FOLLOW_ZONES, _FOLLOW_ZONES):
                    add(key_of(service), "the capacity of zones changed")
        finally:
            end()

    async def reconcile(self, key: Key) -> None:
        """Update the slices of service `key`."""
        result = "error"
        try:
            await self._sync(key)
            result = "success"
        except Conflict:
            result = "stale"
            raise
        finally:
            self._metrics.syncs.add(result)

    async def _sync(self, key: Key) -> None:
        service = self._services.get(key)
        slices = slices_of(self._slices, key, MANAGER)
        if service is None:
            await self._clear(key, slices)
        elif is_kept(service):
            pods = pods_of(self._pods, service)
            made = decide(service, pods, self._zone_of, slices, self._limit, self._capacity.ratios)
            await self._write(service, made)
            self._metrics.decided(key, service, made)
            self._announcer.announce(service, made)

    async def _clear(self, key: Key, slices: Iterable[EndpointSlice]) -> None:
        """Delete the slices of a deleted service, as the garbage collector would."""
        owned = [
            s for s in slices if any((o.kind, o.name) == ("Service", key.name) for o in s.metadata.owner_references)
        ]
        if owned and not await is_gone(self._client, SERVICES, key):
            return
        await self._writer.delete(owned)
        self._metrics.gone(key)
        self._announcer.forget(key)

    async def _write(self, service: Service, made: SliceDecision) -> None:
        writes = made.writes
        if service.metadata.deletion_timestamp is not None:
            writes = writes._replace(create=())

        def report(error: ApiError) -> None:
            message = f"Failed to update the endpoint slices of service {key_of(service)}: {error}"
            self._events.warning(service, "FailedToUpdateEndpointSlices", message)

        await try_write(self._writer.write(writes), report)

    def _zone_of(self, node: str) -> str | None:
        found = self._nodes.get(Key("", node))
        return None if found is None else _zone(found)


class _Announcer:
    """Records an event when topology hints of a service are enabled, or why they are disabled."""

    def __init__(self, events: Recorder) -> None:
        self._events = events
        self._reported: dict[Key, dict[str, str]] = {}

    def announce(self, service: Service, made: SliceDecision) -> None:
        """Record events for changes."""
        reported = self._reported.get(key_of(service), {})
        if reported == made.hints:
            return
        for family, reason in made.hints.items():
            if reported.get(family) != reason:
                self._report(service, family, reason)
        for family, reason in reported.items():
            if family not in made.hints and not reason:
                self._report(service, family, "Topology Aware Hints are off from now")
        if made.hints:
            self._reported[key_of(service)] = dict(made.hints)
        else:
            self.forget(key_of(service))

    def forget(self, service: Key) -> None:
        """Drop the state of a deleted service."""
        self._reported.pop(service, None)

    def _report(self, service: Service, family: str, reason: str) -> None:
        if reason:
            self._events.warning(service, "TopologyAwareHintsDisabled", f"{reason}, addressType: {family}")
        else:
            message = f"Topology Aware Hints are on from now, addressType: {family}"
            self._events.normal(service, "TopologyAwareHintsEnabled", message)


_PREFIX = "endpoint_slice_controller_"
_SYNCS = Family(f"{_PREFIX}syncs", "Looks at services, by result: success, stale or error.", "counter", ("result",))
_CHANGED = Family(
    f"{_PREFIX}endpointslices_changed_per_sync",
    "Slices written by one look, by what decides from where endpoints are used.",
    "histogram",
    ("topology", "traffic_distribution"),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_DISTRIBUTIONS = Family(
    f"{_PREFIX}services_count_by_traffic_distribution",
    "Services by their traffic distribution.",
    "gauge",
    ("traffic_distribution",),
)


class _Metrics:
    """The metrics of the endpoint slice controller."""

    def __init__(self, limit: int, registry: CollectorRegistry) -> None:
        self.slices = SliceMetrics(_PREFIX, limit, registry)
        self.syncs = Counters(_SYNCS, registry)
        self._changed = Histograms(_CHANGED, registry)
        self._distributions = Gauges(_DISTRIBUTIONS, registry)
        self._by_service: dict[Key, str] = {}
        self._numbers: Counter[str] = Counter()

    def decided(self, key: Key, service: Service, made: SliceDecision) -> None:
        """Record a sync of a service."""
        wanted = distribution(service)
        self.slices.arranged(key, made.arrangement)
        topology = "Auto" if follows_zones(service) else "Disabled"
        self._changed.observe(made.writes.size, topology, wanted)
        self._note(key, wanted)

    def gone(self, key: Key) -> None:
        """Remove a deleted service from the metrics."""
        self.slices.gone(key)
        self._note(key, "")

    def _note(self, key: Key, wanted: str) -> None:
        before = self._by_service.pop(key, "")
        if wanted:
            self._by_service[key] = wanted
        for name, change in ((before, -1), (wanted, 1)):
            if name and before != wanted:
                self._numbers[name] += change
                self._distributions.set(self._numbers[name], name)


def services_to_check(informers: Informers, change: Change[EndpointSlice]) -> Iterator[Key]:
    """Yield the services of a changed slice. In the initial list only missing services, since the others are
    synced anyway.
    """
    services = informers.get(SERVICES)
    for key in services_of_slice(MANAGER, informers, change):
        if not change.initial or services.get(key) is None:
            yield key


def services_of_node(informers: Informers, change: Change[Node]) -> Iterator[Key]:
    """Yield the services with pods on a node that is new, gone or in another zone."""
    before, after = change.before, change.after
    if before is not None and after is not None and _zone(before) == _zone(after):
        return
    for pod in pods_on(informers.get(PODS), change.key.name):
        yield from services_for(informers.get(SERVICES), pod)


def _zone(node: Node) -> str:
    return (node.metadata.labels or {}).get(ZONE, "")


def _follows_zones(service: Service) -> tuple[str, ...]:
    return (_FOLLOW_ZONES,) if follows_zones(service) else ()


SPECS = (
    ControllerSpec(
        name="endpointslice-controller",
        sharded_by=NAMESPACES,
        queue="endpoint_slice",
        aliases=("endpointslice",),
        service_account="endpointslice-controller",
        reporter="endpoint-slice-controller",
        reconciler=EndpointSliceController,
        options=EndpointSliceOptions,
        workers=lambda options: options.concurrent_service_endpoint_syncs,
        watches=(
            For(SERVICES, indexes={**SERVICES_BY_SELECTOR, _FOLLOW_ZONES: _follows_zones}),
            Mapped(
                PODS,
                services_served_by,
                indexes={**PODS_BY_LABEL, **PODS_BY_NODE},
                delay=lambda options: options.endpointslice_updates_batch_period,
            ),
            Mapped(NODES, services_of_node),
            Mapped(
                ENDPOINT_SLICES,
                services_to_check,
                indexes=SLICES_BY_SERVICE,
                delay=settling("endpointslice_updates_batch_period"),
                echoes=False,
            ),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("services", "pods", "nodes"), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("services/finalizers",), verbs=("update",)),
            *RULES,
        ),
    ),
)
