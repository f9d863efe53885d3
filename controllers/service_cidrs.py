"""Reports ServiceCIDRs as ready, and keeps deleted ones until no service address needs them."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum, auto
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeVar

from msgspec.structs import replace

from controller_manager.common.api.conditions import Condition, with_conditions
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import Object, PartialObject
from controller_manager.common.api.networking import GROUP, IP_ADDRESSES, SERVICE_CIDRS, ServiceCIDR
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import format_time, time_of
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    Resource,
    key_of,
    update_status,
)

FINALIZER = f"{GROUP}/service-cidr-finalizer"
WORKERS = 5
# Seconds after its deletion in which API servers that have not observed it may still allocate addresses.
GRACE = 10.0

_READY = Condition(type="Ready", status="True", message="Kubernetes Service CIDR is ready")
_TERMINATING = Condition(
    type="Ready",
    status="False",
    reason="Terminating",
    message="services have addresses that no other ServiceCIDR contains: delete these, or create such a ServiceCIDR",
)
_MANAGED_BY, _ALLOCATOR = f"ipaddress.{PLATFORM_DOMAIN}/managed-by", "ipallocator.k8s.io"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
T = TypeVar("T", bound=Object)


class ServiceCIDROptions(Options):
    """Service CIDR controller"""


class CIDRAction(Enum):
    """The next step for a ServiceCIDR."""

    FINALIZE = auto()
    """Add the finalizer, then set Ready=True."""
    READY = auto()
    """Set Ready=True."""
    KEEP = auto()
    """Set Ready=False, because addresses need it."""
    WAIT = auto()
    """Requeue after the grace period."""
    RELEASE = auto()
    """Remove the finalizer."""


# Observed: the ServiceCIDR, the others, the addresses that API servers allocated to services.
#   the ServiceCIDR is being deleted, and                                      done
#   one of its ranges is not within another's, and an address is in no other   Ready=False, Terminating
#   otherwise, within 10 s                                                     requeue after the rest of the time
#   otherwise                                                                  remove the finalizer, if addresses and
#                                                                              ranges on the server confirm it
#   it is not being deleted                                                    finalizer, then Ready=True
# Other ranges that are being deleted count if they outlive it: larger ones, and of equal ones the last by name. So one
# of two equal ranges stays while it is needed.


class ServiceCIDRController:
    """Reconciles ServiceCIDRs."""

    def __init__(self, context: Context, _: ServiceCIDROptions) -> None:
        self._client = context.client
        self._ranges = context.informers.get(SERVICE_CIDRS)
        self._addresses = context.informers.get(IP_ADDRESSES)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Update the condition of ServiceCIDR `key`, or remove its finalizer."""
        found = self._ranges.get(key)
        if found is None:
            return None
        deleted = time_of(found.metadata.deletion_timestamp)
        age = (utc_now() - deleted).total_seconds() if deleted else None
        with contextlib.suppress(NotFound):
            step = decide(found, self._ranges.list(), _given(self._addresses.list()), age)
            if step is CIDRAction.RELEASE:  # local copies may lag behind
                step = decide(found, await self._all(SERVICE_CIDRS), _given(await self._all(IP_ADDRESSES)), age)
            match step:
                case CIDRAction.FINALIZE:
                    found = await self._finalizers(found, (*found.metadata.finalizers, FINALIZER))
                    await self._set_condition(found, _READY)
                case CIDRAction.READY:
                    await self._set_condition(found, _READY)
                case CIDRAction.KEEP:
                    await self._set_condition(found, _TERMINATING)
                case CIDRAction.WAIT:
                    return Requeue(GRACE - (age or 0.0))
                case CIDRAction.RELEASE:
                    await self._finalizers(found, tuple(one for one in found.metadata.finalizers if one != FINALIZER))
        return None

    async def _all(self, resource: Resource[T]) -> Sequence[T]:
        return (await self._client.list(resource)).items

    async def _finalizers(self, found: ServiceCIDR, wanted: tuple[str, ...]) -> ServiceCIDR:
        if wanted == found.metadata.finalizers:
            return found
        changed = replace(found, metadata=replace(found.metadata, finalizers=wanted))
        return await self._client.update(SERVICE_CIDRS, changed)

    async def _set_condition(self, found: ServiceCIDR, wanted: Condition) -> None:
        conditions = with_conditions(found.status.conditions, (wanted,), format_time(utc_now()))
        changed = replace(found, status=replace(found.status, conditions=conditions))
        await update_status(self._client, SERVICE_CIDRS, found, changed)


def _of_range(informers: Informers, change: Change[ServiceCIDR]) -> Iterator[Key]:
    """Yield the ServiceCIDRs being deleted, since another range may now contain their addresses, or no longer."""
    return (key_of(one) for one in informers.get(SERVICE_CIDRS).list() if one.metadata.deletion_timestamp)


def _of_address(informers: Informers, change: Change[PartialObject]) -> Iterator[Key]:
    """Yield the ServiceCIDRs being deleted that contain the changed address."""
    if _is_given(change.object):
        address = ip_address(change.object.metadata.name)
        for one in informers.get(SERVICE_CIDRS).list():
            if one.metadata.deletion_timestamp and _contains(one, address):
                yield key_of(one)


SPECS = (
    ControllerSpec(
        name="service-cidr-controller",
        queue="ipaddresses",
        service_account="service-cidrs-controller",
        reconciler=ServiceCIDRController,
        options=ServiceCIDROptions,
        workers=lambda _: WORKERS,
        watches=(For(SERVICE_CIDRS), Mapped(SERVICE_CIDRS, _of_range), Mapped(IP_ADDRESSES, _of_address)),
        rbac=(
            PolicyRule(groups=(GROUP,), resources=("servicecidrs",), verbs=("get", "list", "watch", "update")),
            PolicyRule(
                groups=(GROUP,), resources=("servicecidrs/finalizers", "servicecidrs/status"), verbs=("update",)
            ),
            PolicyRule(groups=(GROUP,), resources=("ipaddresses",), verbs=("get", "list", "watch")),
        ),
    ),
)


def decide(mine: ServiceCIDR, every: Iterable[ServiceCIDR], addresses: Iterable[str], age: float | None) -> CIDRAction:
    """Return the next step for `mine`, one of `every` ServiceCIDR.

    It was deleted `age` seconds ago (None: not deleted), while services have these addresses.
    """
    if age is None:
        return CIDRAction.READY if FINALIZER in mine.metadata.finalizers else CIDRAction.FINALIZE
    others = [one for one in every if one.metadata.name != mine.metadata.name]
    if not _is_within(mine, others) and _is_needed(mine, others, addresses):
        return CIDRAction.KEEP
    return CIDRAction.WAIT if age < GRACE else CIDRAction.RELEASE


def _is_within(mine: ServiceCIDR, others: Collection[ServiceCIDR]) -> bool:
    """Return whether each of the ranges is within a range of another ServiceCIDR that outlives it."""
    return all(
        any(
            range_.network_address in wider and wider.prefixlen <= range_.prefixlen and _outlives(other, wider, mine)
            for other in others
            for wider in _networks(other)
        )
        for range_ in _networks(mine)
    )


def _is_needed(mine: ServiceCIDR, others: Collection[ServiceCIDR], addresses: Iterable[str]) -> bool:
    """Return whether an address is in `mine` and in no other ServiceCIDR that outlives it."""
    return any(
        _contains(mine, address)
        and not any(
            _gives(network, address) and _outlives(other, network, mine)
            for other in others
            for network in _networks(other)
        )
        for address in map(ip_address, addresses)
    )


def _outlives(other: ServiceCIDR, range_: Network, mine: ServiceCIDR) -> bool:
    """Return whether an overlapping range of another ServiceCIDR remains when `mine` is gone."""
    if other.metadata.deletion_timestamp is None:
        return True
    met = next((one for one in _networks(mine) if one.version == range_.version), range_)
    return range_.prefixlen < met.prefixlen or (range_ == met and other.metadata.name > mine.metadata.name)


def _contains(one: ServiceCIDR, address: Address) -> bool:
    return any(_gives(network, address) for network in _networks(one))


def _gives(network: Network, address: Address) -> bool:
    """Return whether the range can allocate an address. The first and, for IPv4, the last address are excluded."""
    if address not in network or address == network.network_address:
        return False
    return address.version == 6 or address != network.broadcast_address


def _networks(one: ServiceCIDR) -> list[Network]:
    return [ip_network(text, strict=False) for text in one.spec.cidrs]


def _given(addresses: Iterable[PartialObject]) -> Iterator[str]:
    return (one.metadata.name for one in addresses if _is_given(one))


def _is_given(address: PartialObject) -> bool:
    """Return whether an API server allocated the address to a service."""
    return (address.metadata.labels or {}).get(_MANAGED_BY) == _ALLOCATOR
