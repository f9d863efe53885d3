"""Tracks allocated devices, from the server and from our own pending writes; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

import msgspec

from controller_manager.common.api.devices import AllocatedDevice, AllocationResult, ResourceClaim
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage_migration import is_newer

from ..shared.device_claims import devices_of
from .device_pools import DeviceID


class _Assumed(NamedTuple):
    """A decided allocation of a claim, with the `version` once it is written. `uid` is empty before the claim
    is created.
    """

    uid: str
    allocation: AllocationResult
    version: str = ""


class DeviceUsage(msgspec.Struct):
    """Allocated devices.

    `whole` are exclusively allocated devices, `shared` those with several users, with their `consumed` capacity.
    Devices with admin access are in neither.
    """

    whole: Counter[DeviceID] = msgspec.field(default_factory=Counter)
    shared: Counter[DeviceID] = msgspec.field(default_factory=Counter)
    consumed: dict[DeviceID, dict[str, Decimal]] = {}
    _counted: dict[Key, tuple[AllocatedDevice, ...]] = {}
    _assumed: dict[Key, _Assumed] = {}

    def set_claim(self, key: Key, claim: ResourceClaim | None) -> None:
        """Update or remove a claim."""
        assumed = self._assumed.get(key)
        if assumed is not None and not _is_outdated(assumed, claim):
            return
        self._assumed.pop(key, None)
        self._count(key, devices_of(claim) if claim is not None else ())

    def assume(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        """Record a decided allocation of a claim."""
        self._assumed[key_of(claim)] = _Assumed(claim.metadata.uid, allocation)
        self._count(key_of(claim), allocation.devices.results)

    def written(self, claim: ResourceClaim) -> None:
        """Record that an allocation was written."""
        key = key_of(claim)
        assumed = self._assumed.get(key)
        if assumed is not None:
            self._assumed[key] = assumed._replace(uid=claim.metadata.uid, version=claim.metadata.resource_version)

    def forget(self, key: Key, claim: ResourceClaim | None) -> None:
        """Undo a decided allocation that was not written."""
        assumed = self._assumed.get(key)
        if assumed is not None and not assumed.version:
            del self._assumed[key]
            self._count(key, devices_of(claim) if claim is not None else ())

    def is_assumed(self, key: Key, uid: str) -> bool:
        """Return whether an allocation of a claim is being written."""
        found = self._assumed.get(key)
        return found is not None and found.uid == uid

    def _count(self, key: Key, devices: Iterable[AllocatedDevice]) -> None:
        before, after = self._counted.pop(key, ()), tuple(devices)
        for one in before:
            self._change(one, -1)
        for one in after:
            self._change(one, 1)
        if after:
            self._counted[key] = after

    def _change(self, one: AllocatedDevice, sign: int) -> None:
        if one.admin_access:
            return
        device = DeviceID(one.driver, one.pool, one.device)
        counts = self.whole if one.share_id is None else self.shared
        counts[device] += sign
        if not counts[device]:
            del counts[device]
        if one.share_id is not None:
            amounts = {name: sign * parse(amount).number for name, amount in one.consumed_capacity.items()}
            self.consumed[device] = added(self.consumed.get(device, {}), amounts)
            if device not in self.shared:
                del self.consumed[device]


def added(one: Mapping[str, Decimal], other: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Return the sums of amounts by name."""
    return {name: one.get(name, Decimal(0)) + other.get(name, Decimal(0)) for name in one.keys() | other.keys()}


def _is_outdated(assumed: _Assumed, claim: ResourceClaim | None) -> bool:
    """Return whether the server state of a claim supersedes a decided allocation."""
    if claim is None or claim.status.allocation is not None or assumed.uid not in ("", claim.metadata.uid):
        return True
    return bool(assumed.version) and is_newer(claim.metadata.resource_version, assumed.version)
