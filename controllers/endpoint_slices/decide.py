"""Computes the slices of a service from the service, its pods, their nodes and the present slices; pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.core import (
    SERVICES,
    TCP,
    ObjectReference,
    Pod,
    Service,
    is_pod_ready,
    is_pod_terminal,
)
from controller_manager.common.api.discovery import (
    MANAGED_BY,
    SERVICE_NAME,
    Endpoint,
    EndpointConditions,
    EndpointHints,
    EndpointSlice,
    ForNode,
    ForZone,
    SlicePort,
)
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN

from ..shared.pods import (
    HEADLESS,
    TRIGGER_TIME,
    addresses_of,
    hostname_of,
    is_headless,
    offered_ports,
    target_port,
    trigger_time,
)
from ..shared.slices import Arrangement, SliceGroup, SliceIdentity, SliceWrites, Style, arrange, identity
from .zones import Refused, hinted, without_hints

MANAGER = f"endpointslice-controller.{GROUP_DOMAIN}"
TOPOLOGY_MODE = f"service.{PLATFORM_DOMAIN}/topology-mode"
_OLD_TOPOLOGY_MODE = f"service.{PLATFORM_DOMAIN}/topology-aware-hints"
_RESERVED = (HEADLESS, SERVICE_NAME, MANAGED_BY)
_CLOSE = ("PreferClose", "PreferSameZone", "PreferSameNode")
# By ready, serving and terminating. The few combinations are shared by many endpoints.
_CONDITIONS = {
    (ready, serving, terminating): EndpointConditions(ready=ready, serving=serving, terminating=terminating)
    for ready in (False, True)
    for serving in (False, True)
    for terminating in (False, True)
}

# Returns the zone of a node: empty without a zone, None for an unknown node.
ZoneOf = Callable[[str], str | None]
# Returns the share of capacity of each zone; raises `Refused` if it is unknown.
Ratios = Callable[[], Mapping[str, float]]


class SliceDecision(NamedTuple):
    """The writes, the resulting arrangement, and for each family why it has no zone hints.

    An empty reason means that it has hints. Families not in `hints` do not want hints.
    """

    writes: SliceWrites
    arrangement: Arrangement
    hints: Mapping[str, str]


def is_kept(service: Service) -> bool:
    """Return whether this controller manages the slices of a service."""
    return service.spec.type != "ExternalName" and bool(service.spec.selector)


def follows_zones(service: Service) -> bool:
    """Return whether the annotation enables topology hints."""
    annotations = service.metadata.annotations or {}
    return annotations.get(_OLD_TOPOLOGY_MODE, annotations.get(TOPOLOGY_MODE)) in ("Auto", "auto")


def distribution(service: Service) -> str:
    """Return the effective traffic distribution, or an empty string. The topology annotation has precedence."""
    wanted = service.spec.traffic_distribution or ""
    return wanted if wanted in _CLOSE and not follows_zones(service) else ""


def families(service: Service) -> tuple[str, ...]:
    """Return the address families of a service, which are derived for servers without dual stack."""
    spec = service.spec
    if spec.ip_families:
        return tuple(family for family in spec.ip_families if family in ("IPv4", "IPv6"))
    if is_headless(service):
        return ("IPv4", "IPv6")
    return ("IPv6" if ":" in spec.cluster_ip else "IPv4",)


def decide(
    service: Service,
    pods: Sequence[Pod],
    zone_of: ZoneOf,
    current: Iterable[EndpointSlice],
    limit: int,
    ratios: Ratios,
) -> SliceDecision:
    """Return the decision about the slices of a service with a selector."""
    supported = families(service)
    ours: list[EndpointSlice] = []
    foreign: list[EndpointSlice] = []
    for slice_ in current:
        is_ours = slice_.address_type in supported and _is_owned(slice_, service)
        (ours if is_ours else foreign).append(slice_)
    wanted = wanted_of(service, pods, zone_of)
    style = Style(service, SERVICES, _labels(service))
    hints: dict[str, str] = {}
    if follows_zones(service):
        wanted = _with_former_hints(wanted, ours)
    arrangement = arrange(ours, wanted, limit, style.is_due, supported)
    if follows_zones(service):
        arrangement, hints = with_zone_hints(arrangement, supported, style, ratios)
    arrangement = arrangement._replace(spare=(*arrangement.spare, *foreign))

    def stamp() -> dict[str, str | None]:
        before = _listed(e for slice_ in ours for e in slice_.endpoints or ()) if ours else None
        after = _listed(e for endpoints in wanted.values() for e in endpoints.values())
        return {TRIGGER_TIME: trigger_time(service, pods, before, after)}

    return SliceDecision(style.writes(arrangement, stamp), arrangement, hints)


def wanted_of(
    service: Service, pods: Iterable[Pod], zone_of: ZoneOf
) -> dict[SliceGroup, dict[SliceIdentity, Endpoint]]:
    """Return the endpoints of a service by family and ports."""
    by_name = _by_name(service)
    supported, nearby = families(service), distribution(service)
    shared: frozenset[SlicePort] | None = None
    wanted: dict[SliceGroup, dict[SliceIdentity, Endpoint]] = {}
    for pod in pods:
        zone = zone_of(pod.spec.node_name) if pod.spec.node_name else ""
        if is_pod_terminal(pod) or (zone is None and not service.spec.publish_not_ready_addresses):
            continue
        if shared is None or by_name:
            shared = frozenset(_ports(service, pod))
        for family in supported:
            addresses = addresses_of(pod, family)
            if addresses:
                endpoint = _endpoint(service, pod, addresses, zone or None, nearby)
                wanted.setdefault(SliceGroup(family, shared), {})[identity(endpoint)] = endpoint
    return wanted


def with_zone_hints(
    arrangement: Arrangement, supported: Iterable[str], style: Style, ratios: Ratios
) -> tuple[Arrangement, dict[str, str]]:
    """Return the arrangement with zone hints, and per family the reason for missing hints, which is empty otherwise."""
    drafts, reasons = list(arrangement.drafts), {}
    for family in supported:
        places = [place for place, draft in enumerate(drafts) if draft.group.family == family]
        slices = [drafts[place].endpoints for place in places]
        fixed = [n for n, place in enumerate(places) if not style.differs(drafts[place])]
        try:
            found = hinted(slices, fixed, ratios())
            reasons[family] = ""
        except Refused as reason:
            found = [without_hints(endpoints) for endpoints in slices]
            reasons[family] = str(reason)
        for place, endpoints in zip(places, found, strict=True):
            drafts[place] = drafts[place]._replace(endpoints=endpoints)
    return arrangement._replace(drafts=tuple(drafts)), reasons


def _with_former_hints(
    wanted: Mapping[SliceGroup, Mapping[SliceIdentity, Endpoint]], slices: Iterable[EndpointSlice]
) -> dict[SliceGroup, dict[SliceIdentity, Endpoint]]:
    """Return the wanted endpoints with the hints of the present slices."""
    former = {(s.address_type, identity(e)): e.hints for s in slices for e in s.endpoints or () if e.hints}
    return {
        group: {name: replace(endpoint, hints=former.get((group.family, name))) for name, endpoint in endpoints.items()}
        for group, endpoints in wanted.items()
    }


def _endpoint(service: Service, pod: Pod, addresses: tuple[str, ...], zone: str | None, nearby: str) -> Endpoint:
    meta, node = pod.metadata, pod.spec.node_name
    serving, terminating = is_pod_ready(pod), meta.deletion_timestamp is not None
    ready = service.spec.publish_not_ready_addresses or (serving and not terminating)
    return Endpoint(
        addresses=addresses,
        conditions=_CONDITIONS[ready, serving, terminating],
        hints=_hints_nearby(nearby, zone, node) if ready else None,
        hostname=hostname_of(pod, service) or None,
        node_name=node or None,
        target_ref=ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
        zone=zone,
    )


def _hints_nearby(wanted: str, zone: str | None, node: str) -> EndpointHints | None:
    """Return the hints of an endpoint for a traffic distribution."""
    if not wanted:
        return None
    zones = (ForZone(name=zone),) if zone else ()
    nodes = (ForNode(name=node),) if node and wanted == "PreferSameNode" else ()
    return EndpointHints(for_zones=zones, for_nodes=nodes) if zones or nodes else None


def _by_name(service: Service) -> bool:
    """Return whether the service has named target ports, whose numbers may differ between pods."""
    return any(isinstance(port.target_port, str) for port in service.spec.ports)


def _ports(service: Service, pod: Pod) -> Iterable[SlicePort]:
    offered = offered_ports(pod) if _by_name(service) else {}
    for port in service.spec.ports:
        number = target_port(port, offered)
        if number is not None:
            yield SlicePort(name=port.name, port=number, protocol=port.protocol or TCP, app_protocol=port.app_protocol)


def _labels(service: Service) -> dict[str, str]:
    labels = {name: value for name, value in (service.metadata.labels or {}).items() if name not in _RESERVED}
    labels |= {HEADLESS: ""} if is_headless(service) else {}
    return labels | {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}


def _is_owned(slice_: EndpointSlice, service: Service) -> bool:
    return any(
        (owner.api_version, owner.kind, owner.uid) == ("v1", "Service", service.metadata.uid)
        for owner in slice_.metadata.owner_references
    )


def _listed(endpoints: Iterable[Endpoint]) -> dict[str, bool]:
    """Return the uids of the listed pods and whether they are ready. Older servers only set `ready`."""
    listed = ((e.target_ref, e.conditions) for e in endpoints)
    return {ref.uid: bool(state.ready if state.serving is None else state.serving) for ref, state in listed if ref}
