"""Endpoints controller: maintains the Endpoints of every service with a selector."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from controller_manager.common.api.core import (
    ENDPOINTS,
    NAMESPACES,
    PODS,
    SERVICES,
    TCP,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    ObjectReference,
    Pod,
    Service,
    ServicePort,
    is_pod_ready,
    is_pod_terminal,
)
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.framework import (
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

from .shared.pods import (
    HEADLESS,
    LEADER,
    PODS_BY_LABEL,
    SERVICES_BY_SELECTOR,
    TRIGGER_TIME,
    addresses_of,
    hostname_of,
    is_gone,
    is_headless,
    offered_ports,
    pods_of,
    services_served_by,
    target_port,
    trigger_time,
)

MAX_ADDRESSES = 1000
OVER_CAPACITY = f"endpoints.{PLATFORM_DOMAIN}/over-capacity"
MANAGED_BY = f"endpoints.{PLATFORM_DOMAIN}/managed-by"
MANAGER = "endpoint-controller"


def desired(service: Service, pods: Iterable[Pod], current: Endpoints | None) -> Endpoints | None:
    """Return the Endpoints to write for `service`, or None if `current` is up to date."""
    pods = list(pods)
    subsets, truncated = truncate(subsets_of(service, pods))
    labels = _labels(service)
    capacity = {OVER_CAPACITY: "truncated"} if truncated else {}
    before = current or Endpoints(
        api_version=ENDPOINTS.api_version,
        kind=ENDPOINTS.kind,
        metadata=ObjectMeta(namespace=service.metadata.namespace, name=service.metadata.name),
    )
    kept = before.metadata.annotations or {}
    same_metadata = labels == before.metadata.labels and capacity.get(OVER_CAPACITY) == kept.get(OVER_CAPACITY)
    if current and same_metadata and _is_same(current.subsets, subsets):
        return None
    trigger = trigger_time(service, pods, _listed(current.subsets) if current else None, _listed(subsets))
    annotations = {name: value for name, value in kept.items() if name not in (OVER_CAPACITY, TRIGGER_TIME)}
    annotations |= capacity | ({TRIGGER_TIME: trigger} if trigger else {})
    metadata = msgspec.structs.replace(before.metadata, labels=labels, annotations=annotations)
    return msgspec.structs.replace(before, metadata=metadata, subsets=subsets)


class _Placed(NamedTuple):
    """An address. Ready addresses sort first within a subset."""

    address: EndpointAddress
    ready: bool


# None means all ports, if the service has no ports.
_Ports = frozenset[EndpointPort | None]


def subsets_of(service: Service, pods: Iterable[Pod]) -> tuple[EndpointSubset, ...]:
    """Return the subsets of a service. Ports with the same addresses share a subset."""
    groups: dict[_Ports, set[_Placed]] = defaultdict(set)
    ports, headless = service.spec.ports, service.spec.cluster_ip == "None"
    by_number: _Ports = frozenset(
        _endpoint_port(p, p.target_port or p.port) for p in ports if not isinstance(p.target_port, str)
    )
    by_number = frozenset((None,)) if headless and not ports else by_number
    by_name = [port for port in ports if isinstance(port.target_port, str)]
    for pod in pods:
        ip = _address(service, pod)
        if not ip or not _may_serve(service, pod):
            continue
        reached = by_number | _named_ports(pod, by_name) if by_name else by_number
        if reached:
            ready = service.spec.publish_not_ready_addresses or is_pod_ready(pod)
            groups[reached].add(_Placed(_endpoint(service, pod, ip), ready))
    return _packed(groups)


def _named_ports(pod: Pod, ports: Iterable[ServicePort]) -> _Ports:
    """Return the endpoint ports of service ports with a named target port in a pod."""
    offered = offered_ports(pod)
    found = ((port, target_port(port, offered)) for port in ports)
    return frozenset(_endpoint_port(port, number) for port, number in found if number is not None)


def canonical(subsets: Sequence[EndpointSubset]) -> tuple[EndpointSubset, ...]:
    """Return the same endpoints in the canonical form that this controller writes."""
    homes: dict[_Placed, list[int]] = defaultdict(list)
    for index, subset in enumerate(subsets):
        for placed in _places(subset):
            homes[placed].append(index)
    unions: dict[tuple[int, ...], _Ports] = {}
    groups: dict[_Ports, set[_Placed]] = defaultdict(set)
    for placed, home in homes.items():
        together = tuple(home)
        if together not in unions:
            unions[together] = frozenset(port for index in together for port in subsets[index].ports or (None,))
        groups[unions[together]].add(placed)
    return _packed(groups)


def _places(subset: EndpointSubset) -> set[_Placed]:
    return {_Placed(a, True) for a in subset.addresses} | {_Placed(a, False) for a in subset.not_ready_addresses}


def _packed(groups: Mapping[_Ports, Collection[_Placed]]) -> tuple[EndpointSubset, ...]:
    """Return the subsets of grouped addresses. An address that several groups share is listed once, with all
    its ports.
    """
    behind: dict[EndpointPort | None, list[int]] = defaultdict(list)
    for number, reached in enumerate(groups):
        for port in reached:
            behind[port].append(number)
    ports: dict[tuple[int, ...], list[EndpointPort]] = defaultdict(list)
    for port, numbers in behind.items():
        ports[tuple(numbers)].extend([] if port is None else [port])
    members = tuple(groups.values())
    subsets = [
        _subset([one for number in numbers for one in members[number]], found) for numbers, found in ports.items()
    ]
    return tuple(sorted(subsets, key=lambda s: ([(p.name, p.port, p.protocol) for p in s.ports])))


def _subset(placed: Sequence[_Placed], ports: Iterable[EndpointPort]) -> EndpointSubset:
    return EndpointSubset(
        addresses=tuple(sorted((p.address for p in placed if p.ready), key=_by_ip)),
        not_ready_addresses=tuple(sorted((p.address for p in placed if not p.ready), key=_by_ip)),
        ports=tuple(sorted(ports, key=lambda p: (p.name, p.port, p.protocol))),
    )


def _is_same(subsets: Sequence[EndpointSubset], wanted: tuple[EndpointSubset, ...]) -> bool:
    """Return whether both are equivalent. Sizes are compared first, because foreign subsets may expand to very
    many pairs.
    """
    return tuple(subsets) == wanted or (_pairs(subsets) == _pairs(wanted) and canonical(subsets) == wanted)


def _pairs(subsets: Iterable[EndpointSubset]) -> int:
    """Return the number of pairs of an address and a port."""
    return sum((len(s.addresses) + len(s.not_ready_addresses)) * max(1, len(s.ports)) for s in subsets)


def truncate(
    subsets: tuple[EndpointSubset, ...], limit: int = MAX_ADDRESSES
) -> tuple[tuple[EndpointSubset, ...], bool]:
    """Return at most `limit` addresses, ready ones first and in proportion to the subsets, and whether any were
    dropped.
    """
    ready = sum(len(s.addresses) for s in subsets)
    waiting = sum(len(s.not_ready_addresses) for s in subsets)
    if ready + waiting <= limit:
        return subsets, False
    ready_shares = shares([len(s.addresses) for s in subsets], min(ready, limit))
    waiting_shares = shares([len(s.not_ready_addresses) for s in subsets], max(0, limit - ready))
    kept = (
        msgspec.structs.replace(s, addresses=s.addresses[:r], not_ready_addresses=s.not_ready_addresses[:w])
        for s, r, w in zip(subsets, ready_shares, waiting_shares, strict=True)
    )
    return tuple(s for s in kept if s.addresses or s.not_ready_addresses), True


def shares(sizes: Sequence[int], limit: int) -> list[int]:
    """Return parts proportional to `sizes` whose sum is `limit`, or `sizes` if their sum is lower."""
    total = sum(sizes)
    if total <= limit:
        return list(sizes)
    parts = [size * limit // total for size in sizes]
    for index, size in enumerate(sizes):
        if sum(parts) < limit and parts[index] < size:
            parts[index] += 1
    return parts


def _listed(subsets: Sequence[EndpointSubset]) -> dict[str, bool]:
    """Return the uids of the listed pods, and whether they are ready."""
    addresses = [(a, True) for s in subsets for a in s.addresses]
    addresses += [(a, False) for s in subsets for a in s.not_ready_addresses]
    return {address.target_ref.uid: ready for address, ready in addresses if address.target_ref}


def _may_serve(service: Service, pod: Pod) -> bool:
    if is_pod_terminal(pod):
        return False
    return pod.metadata.deletion_timestamp is None or service.spec.publish_not_ready_addresses


def _address(service: Service, pod: Pod) -> str:
    cluster_ip = service.spec.cluster_ip
    known = cluster_ip if cluster_ip not in ("", "None") else pod.status.pod_ip
    six = service.spec.ip_families[0] == "IPv6" if service.spec.ip_families else ":" in known
    return next(iter(addresses_of(pod, "IPv6" if six else "IPv4")), "")


def _endpoint(service: Service, pod: Pod, ip: str) -> EndpointAddress:
    meta = pod.metadata
    return EndpointAddress(
        ip=ip,
        hostname=hostname_of(pod, service),
        node_name=pod.spec.node_name or None,
        target_ref=ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _endpoint_port(port: ServicePort, number: int) -> EndpointPort:
    return EndpointPort(name=port.name, port=number, protocol=port.protocol or TCP, app_protocol=port.app_protocol)


def _labels(service: Service) -> dict[str, str]:
    labels = {k: v for k, v in (service.metadata.labels or {}).items() if k != HEADLESS}
    labels |= {HEADLESS: ""} if is_headless(service) else {}
    return labels | {MANAGED_BY: MANAGER}


def _by_ip(address: EndpointAddress) -> tuple[str, str]:
    return address.ip, address.target_ref.uid if address.target_ref else ""


class EndpointsOptions(Options):
    """Endpoints controller"""

    concurrent_endpoint_syncs: Int32 = flag(5, "Services whose endpoints are computed at the same time.", minimum=1)
    endpoint_updates_batch_period: Duration = flag(
        "0s", "How long pod changes are gathered before the endpoints are updated; 0 updates at once.", minimum=0
    )


# Observed: the service, the pods that its selector matches, the Endpoints of the same name.
# Decided, by the service:                        Done:
#   gone                                          delete the Endpoints
#   type ExternalName, or without a selector      nothing; users manage the Endpoints
#   Endpoints up to date                          nothing
#   otherwise                                     create or update


class EndpointsController:
    """Reconciles services."""

    def __init__(self, context: Context, options: EndpointsOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._services = context.informers.get(SERVICES)
        self._pods = context.informers.get(PODS)
        self._endpoints = context.informers.get(ENDPOINTS)

    async def reconcile(self, key: Key) -> None:
        """Update the Endpoints of service `key`."""
        service = self._services.get(key)
        current = self._endpoints.get(key)
        if service is None:
            await self._delete(current)
        elif service.spec.type != "ExternalName" and service.spec.selector:
            pods = pods_of(self._pods, service)
            wanted = desired(service, pods, current)
            if wanted is not None:
                await self._write(wanted, new=current is None)

    async def _delete(self, current: Endpoints | None) -> None:
        if current is not None and await is_gone(self._client, SERVICES, key_of(current)):
            with contextlib.suppress(NotFound):
                await self._client.delete(ENDPOINTS, key_of(current), uid=current.metadata.uid)

    async def _write(self, wanted: Endpoints, *, new: bool) -> None:
        verb = "create" if new else "update"
        write = self._client.create if new else self._client.update

        def report(error: ApiError) -> None:
            message = f"Failed to {verb} the endpoints of {key_of(wanted)}: {error}"
            self._events.warning(wanted, f"FailedTo{verb.capitalize()}Endpoint", message)

        await try_write(write(ENDPOINTS, wanted), report)


def service_of_endpoints(informers: Informers, change: Change[Endpoints]) -> Iterator[Key]:
    """Yield the service of Endpoints that changed, since another leader may have written them from an older state.

    Without such a service the key is yielded if they were deleted, if they are ours (a late write), or at startup,
    when those of other writers count as leftovers too.
    """
    found_at_start = change.initial and change.before is None and not _is_election(change.object)
    looked_at = change.after is None or found_at_start or _is_ours(change.after)
    if looked_at or informers.get(SERVICES).get(change.key) is not None:
        yield change.key


SPECS = (
    ControllerSpec(
        name="endpoints-controller",
        sharded_by=NAMESPACES,
        queue="endpoint",
        aliases=("endpoint",),
        service_account="endpoint-controller",
        reporter="endpoint-controller",
        reconciler=EndpointsController,
        options=EndpointsOptions,
        workers=lambda options: options.concurrent_endpoint_syncs,
        watches=(
            For(SERVICES, indexes=SERVICES_BY_SELECTOR),
            Mapped(
                PODS,
                services_served_by,
                indexes=PODS_BY_LABEL,
                delay=lambda options: options.endpoint_updates_batch_period,
            ),
            Mapped(ENDPOINTS, service_of_endpoints, echoes=False),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("services", "pods"), verbs=("get", "list", "watch")),
            PolicyRule(
                groups=("",), resources=("endpoints",), verbs=("get", "list", "watch", "create", "update", "delete")
            ),
            PolicyRule(groups=("",), resources=("endpoints/restricted",), verbs=("create",)),
        ),
    ),
)


def _is_election(endpoints: Endpoints) -> bool:
    """Return whether these Endpoints are the lock of an old kind of leader election, which has no service."""
    return LEADER in (endpoints.metadata.annotations or {})


def _is_ours(endpoints: Endpoints) -> bool:
    return (endpoints.metadata.labels or {}).get(MANAGED_BY) == MANAGER
