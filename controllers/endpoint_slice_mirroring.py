"""Mirrors user-managed Endpoints of services without a selector to EndpointSlices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from controller_manager.common.api.core import (
    ENDPOINTS,
    NAMESPACES,
    SERVICES,
    TCP,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    Service,
)
from controller_manager.common.api.discovery import (
    ENDPOINT_SLICES,
    MANAGED_BY,
    SERVICE_NAME,
    SKIP_MIRROR,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    SlicePort,
)
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Duration,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    flag,
    try_write,
)

from .shared.pods import LEADER, TRIGGER_TIME, is_gone
from .shared.slice_writer import (
    PER_SYNC,
    RULES,
    SLICES_BY_SERVICE,
    SliceMetrics,
    SliceWriter,
    services_of_slice,
    settling,
    slices_of,
)
from .shared.slices import Arrangement, SliceGroup, SliceIdentity, Style, arrange, identity

MANAGER = f"endpointslicemirroring-controller.{GROUP_DOMAIN}"
LAST_APPLIED = f"kubectl.{PLATFORM_DOMAIN}/last-applied-configuration"


class MirroringOptions(Options):
    """Endpoint slice mirroring controller"""

    mirroring_concurrent_service_endpoint_syncs: Int32 = flag(
        5, "Endpoints objects mirrored to slices at the same time.", minimum=1, maximum=50
    )
    mirroring_endpointslice_updates_batch_period: Duration = flag(
        "0s",
        "How long changes of endpoints are gathered before their mirrors are updated; 0 updates at once.",
        minimum=0,
    )
    mirroring_max_endpoints_per_subset: Int32 = flag(
        1000, "Addresses of one subset that are mirrored at most.", minimum=1, maximum=1000
    )


# Observed: the Endpoints, the service of the same name, our slices of the service.
# Decided:                                               Done:
#   no Endpoints, or no service                          delete our slices
#   a service with a selector                            delete our slices
#   Endpoints with skip-mirror label, or an election     delete our slices
#     lock
#   otherwise, per family and set of ports               slices with the addresses of the subsets with these ports
#     invalid address, or over the limit                 skipped, with an event
#     no difference                                      no write


class EndpointSliceMirroringController:
    """Reconciles Endpoints objects."""

    def __init__(self, context: Context, options: MirroringOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._endpoints = context.informers.get(ENDPOINTS)
        self._services = context.informers.get(SERVICES)
        self._slices = context.informers.get(ENDPOINT_SLICES)
        self._limit = options.mirroring_max_endpoints_per_subset
        self._metrics = _Metrics(self._limit, context.runtime.registry)
        self._writer = SliceWriter(context.client, self._metrics.slices.changes)
        # The numbers of skipped addresses that were reported.
        self._reported: dict[Key, tuple[int, int]] = {}

    async def reconcile(self, key: Key) -> None:
        """Update the slices that mirror Endpoints `key`."""
        begin = clock.monotonic()
        try:
            await self._sync(key)
        finally:
            self._metrics.duration.observe(clock.monotonic() - begin)

    async def _sync(self, key: Key) -> None:
        endpoints, service = self._endpoints.get(key), self._services.get(key)
        slices = slices_of(self._slices, key, MANAGER)
        if endpoints is None or service is None:
            await self._clear_gone(key, slices)
        elif service.spec.selector or not is_mirrored(endpoints):
            await self._clear(key, slices)
        else:
            await self._mirror(key, endpoints, slices)

    async def _clear_gone(self, key: Key, slices: Sequence[EndpointSlice]) -> None:
        if not slices or await is_gone(self._client, SERVICES, key) or await is_gone(self._client, ENDPOINTS, key):
            await self._clear(key, slices)

    async def _clear(self, key: Key, slices: Sequence[EndpointSlice]) -> None:
        await self._writer.delete(slices)
        self._metrics.slices.gone(key)
        self._reported.pop(key, None)

    async def _mirror(self, key: Key, endpoints: Endpoints, slices: Sequence[EndpointSlice]) -> None:
        mirror = mirror_of(endpoints, self._limit)
        style = style_of(endpoints)
        arrangement = arrange(slices, mirror.wanted, self._limit, style.is_due)
        writes = style.writes(arrangement, dict)
        self._report(key, endpoints, mirror)
        if _is_going(endpoints):
            writes = writes._replace(create=())

        def report(error: ApiError) -> None:
            message = f"Failed to update the endpoint slices of endpoints {key}: {error}"
            self._events.warning(endpoints, "FailedToUpdateEndpointSlices", message)

        if await try_write(self._writer.write(writes), report):
            self._metrics.mirrored(key, arrangement, mirror, slices)

    def _report(self, key: Key, endpoints: Endpoints, mirror: "Mirror") -> None:
        left_out = mirror.invalid, mirror.too_many
        if self._reported.get(key, (0, 0)) == left_out:
            return
        self._reported[key] = left_out
        if mirror.invalid:
            message = f"Not mirrored to EndpointSlices, since invalid as IP addresses: {mirror.invalid} addresses"
            self._events.warning(endpoints, "InvalidIPAddress", message)
        if mirror.too_many:
            message = (
                f"At most {self._limit} addresses of a subset are mirrored to EndpointSlices: "
                f"{mirror.too_many} addresses were skipped"
            )
            self._events.warning(endpoints, "TooManyAddressesToMirror", message)


class Mirror(NamedTuple):
    """The endpoints of an Endpoints object, and the numbers of skipped addresses: invalid ones, and too many."""

    wanted: Mapping[SliceGroup, Mapping[SliceIdentity, Endpoint]]
    invalid: int
    too_many: int


def is_mirrored(endpoints: Endpoints) -> bool:
    """Return whether Endpoints of a service without a selector are mirrored."""
    labels, annotations = endpoints.metadata.labels or {}, endpoints.metadata.annotations or {}
    return labels.get(SKIP_MIRROR) != "true" and LEADER not in annotations


def mirror_of(endpoints: Endpoints, limit: int) -> Mirror:
    """Return the endpoints by family and ports, at most `limit` per subset, ready ones first."""
    wanted: dict[SliceGroup, dict[SliceIdentity, Endpoint]] = {}
    invalid = too_many = 0
    for subset in endpoints.subsets:
        ports = frozenset(map(_port, subset.ports))
        room = limit
        for address, ready in _addresses(subset):
            ip = canonical_ip(address.ip)
            if not room:
                too_many += 1
            elif not ip:
                invalid += 1
            else:
                room -= 1
                endpoint = _endpoint(address, ip, ready)
                group = SliceGroup("IPv6" if ":" in ip else "IPv4", ports)
                wanted.setdefault(group, {}).setdefault(identity(endpoint), endpoint)
    return Mirror(wanted, invalid, too_many)


def style_of(endpoints: Endpoints) -> Style:
    """Return the style of slices with the labels and annotations of the Endpoints."""
    meta = endpoints.metadata
    labels = {**(meta.labels or {}), SERVICE_NAME: meta.name, MANAGED_BY: MANAGER}
    kept = {name: value for name, value in (meta.annotations or {}).items() if name not in (TRIGGER_TIME, LAST_APPLIED)}
    return Style(endpoints, ENDPOINTS, labels, lambda _: kept)


@lru_cache(maxsize=4096)
def canonical_ip(text: str) -> str:
    """Return the canonical text of an address, without leading zeros that old servers allowed; empty if invalid."""
    plain = text if ":" in text else ".".join(part.lstrip("0") or part[:1] for part in text.split("."))
    try:
        found = ip_address(plain)
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)


def _addresses(subset: EndpointSubset) -> Iterator[tuple[EndpointAddress, bool]]:
    yield from ((address, True) for address in subset.addresses)
    yield from ((address, False) for address in subset.not_ready_addresses)


def _endpoint(address: EndpointAddress, ip: str, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=(ip,),
        conditions=EndpointConditions(ready=ready),
        hostname=address.hostname or None,
        node_name=address.node_name,
        target_ref=address.target_ref,
    )


def _port(port: EndpointPort) -> SlicePort:
    return SlicePort(name=port.name, port=port.port, protocol=port.protocol or TCP, app_protocol=port.app_protocol)


def _is_going(endpoints: Endpoints) -> bool:
    return endpoints.metadata.deletion_timestamp is not None


_PREFIX = "endpoint_slice_mirroring_controller_"
_DURATION = Family(
    f"{_PREFIX}endpoints_sync_duration",
    "Seconds one look at Endpoints takes.",
    "histogram",
    (),
    tuple(0.001 * 2**power for power in range(15)),
)
_UPDATED = Family(f"{_PREFIX}endpoints_updated_per_sync", "Endpoints updated by one look.", "histogram", (), PER_SYNC)
_SKIPPED = Family(f"{_PREFIX}addresses_skipped_per_sync", "Addresses left out by one look.", "histogram", (), PER_SYNC)


class _Metrics:
    """The metrics of the endpoint slice mirroring controller."""

    def __init__(self, limit: int, registry: CollectorRegistry) -> None:
        self.slices = SliceMetrics(_PREFIX, limit, registry)
        self.duration = Histograms(_DURATION, registry)
        self._updated = Histograms(_UPDATED, registry)
        self._skipped = Histograms(_SKIPPED, registry)

    def mirrored(self, key: Key, arrangement: Arrangement, mirror: Mirror, before: Iterable[EndpointSlice]) -> None:
        """Record a sync of an Endpoints object."""
        self.slices.arranged(key, arrangement)
        self._skipped.observe(mirror.invalid + mirror.too_many)
        known = {identity(endpoint): endpoint for slice_ in before for endpoint in slice_.endpoints or ()}
        after = (item for endpoints in mirror.wanted.values() for item in endpoints.items())
        self._updated.observe(sum(name in known and known[name] != endpoint for name, endpoint in after))


def endpoints_to_mirror(informers: Informers, change: Change[Endpoints]) -> Iterator[Key]:
    """Yield Endpoints that changed, if they are or were mirrored."""
    service = informers.get(SERVICES).get(change.key)
    states = [endpoints for endpoints in (change.before, change.after) if endpoints is not None]
    if (service is None or not service.spec.selector) and any(map(is_mirrored, states)):
        yield change.key


def service_without_selector(_: Informers, change: Change[Service]) -> Iterator[Key]:
    """Yield a service that lost or got its selector."""
    states = [service is not None and not service.spec.selector for service in (change.before, change.after)]
    if states[0] != states[1]:
        yield change.key


SPECS = (
    ControllerSpec(
        name="endpointslice-mirroring-controller",
        sharded_by=NAMESPACES,
        queue="endpoint_slice_mirroring",
        aliases=("endpointslicemirroring",),
        service_account="endpointslicemirroring-controller",
        reporter="endpoint-slice-mirroring-controller",
        reconciler=EndpointSliceMirroringController,
        options=MirroringOptions,
        workers=lambda options: options.mirroring_concurrent_service_endpoint_syncs,
        watches=(
            Mapped(
                ENDPOINTS,
                endpoints_to_mirror,
                delay=lambda options: options.mirroring_endpointslice_updates_batch_period,
            ),
            Mapped(SERVICES, service_without_selector),
            Mapped(
                ENDPOINT_SLICES,
                partial(services_of_slice, MANAGER),
                indexes=SLICES_BY_SERVICE,
                delay=settling("mirroring_endpointslice_updates_batch_period"),
                echoes=False,
            ),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("services", "endpoints"), verbs=("get", "list", "watch")),
            PolicyRule(groups=("",), resources=("endpoints/finalizers",), verbs=("update",)),
            *RULES,
        ),
    ),
)
