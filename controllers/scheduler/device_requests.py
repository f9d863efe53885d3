"""The requests of device claims with their alternatives and device classes; pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from controller_manager.common.api.devices import DeviceClass, DeviceConstraint, DeviceSubRequest, ResourceClaim


class AllocationError(Exception):
    """Claims cannot be allocated because of their spec or the present pools; the message says why."""


class DeviceRequest(NamedTuple):
    """A request for devices, or an alternative of one."""

    base: str
    name: str
    wanted: DeviceSubRequest
    device_class: DeviceClass
    selectors: tuple[str, ...]
    admin: bool = False

    @property
    def full_name(self) -> str:
        """Return the name used in allocation results."""
        return self.name or self.base


class WantedClaim(msgspec.Struct, frozen=True, eq=False):
    """A claim to allocate, with the alternatives of each request."""

    claim: ResourceClaim
    requests: tuple[tuple[DeviceRequest, ...], ...]

    @property
    def constraints(self) -> Sequence[DeviceConstraint]:
        """Return the constraints over its devices."""
        return self.claim.spec.devices.constraints


def requests_of(claim: ResourceClaim, device_class: Callable[[str], DeviceClass | None]) -> WantedClaim:
    """Return the requests of a claim. Raises `AllocationError` for unknown classes or modes."""

    def read(base: str, name: str, wanted: DeviceSubRequest, *, admin: bool = False) -> DeviceRequest:
        found = device_class(wanted.device_class_name)
        if found is None:
            raise AllocationError(f"request {name or base}: device class {wanted.device_class_name} does not exist")
        every = (one.cel for one in (*found.spec.selectors, *wanted.selectors))
        return DeviceRequest(
            base, name, wanted, found, tuple(one.expression if one else "false" for one in every), admin
        )

    requests: list[tuple[DeviceRequest, ...]] = []
    for one in claim.spec.devices.requests:
        if one.exactly is not None:
            requests.append((read(one.name, "", one.exactly, admin=one.exactly.admin_access),))
        elif one.first_available:
            requests.append(tuple(read(one.name, f"{one.name}/{sub.name}", sub) for sub in one.first_available))
        else:
            raise AllocationError(f"request {one.name}: unknown request type")
    for constraint in claim.spec.devices.constraints:
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            raise AllocationError("a constraint is of a type that is not known")
    return WantedClaim(claim, tuple(requests))
