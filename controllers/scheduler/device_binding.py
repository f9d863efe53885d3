"""Allocates and reserves the device claims of a pod before it is bound. A claim for extended resources is
created first.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.devices import DELETE_PROTECTION, RESOURCE_CLAIMS, ConsumerReference, ResourceClaim
from controller_manager.common.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from controller_manager.common.api.resource import key_of
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.framework import STRATEGIC_MERGE_PATCH, Client

from ..shared.device_claims import is_reserved_for
from .devices import ClaimPlan, DevicePlan, Devices, has_failed, is_ready
from .extended_resources import is_for_extended

LONGEST = 600.0
"""Maximum seconds that a pod waits for its devices to be ready."""
# Maximum attempts to write a claim after conflicts.
_ATTEMPTS = 5


class DevicesLostError(Exception):
    """The devices of a pod are not available on the chosen node; the message says why."""


class DeviceBinding(msgspec.Struct):
    """The device binding of a pod: the plan, and since when it runs.

    `written` are the written claims, `made` is the claim created for the pod.
    `reported` means that the wait was reported. `created` counts creations by result.
    """

    pod: Pod
    plan: DevicePlan
    since: float
    created: Callable[[str], None]
    written: list[ResourceClaim] = []
    made: ResourceClaim | None = None
    reported: bool = False

    @property
    def until(self) -> float:
        """Return the deadline."""
        return self.since + LONGEST

    async def go_on(self, client: Client, devices: Devices, now: float) -> bool:
        """Perform the plan once. Return whether all devices are ready. Raises `DevicesLostError`."""
        for one in self.plan[len(self.written) :]:
            claim = await self._write(client, one)
            self.written.append(claim)
            devices.usage.written(claim)
        unready = [devices.claim(key_of(each)) for each in self.written if not is_ready(each)]
        if any(one is None or has_failed(one) for one in unready):
            raise DevicesLostError("one of its devices will not be ready")
        if all(one is not None and is_ready(one) for one in unready):
            return True
        if now >= self.until:
            raise DevicesLostError(f"its devices were not ready within {LONGEST:.0f} seconds")
        return False

    async def give_up(self, client: Client) -> None:
        """Release the claims reserved by this binding, and delete the claim created for it."""
        if self.made is not None:
            await discard(client, self.made)
        for claim in self.written:
            change = {
                "metadata": {"uid": claim.metadata.uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": self.pod.metadata.uid}]},
            }
            try:
                await client.patch(RESOURCE_CLAIMS, key_of(claim), change, STRATEGIC_MERGE_PATCH, subresource="status")
            except (NotFound, Conflict):
                continue  # it is gone, or another one

    async def _write(self, client: Client, one: ClaimPlan) -> ResourceClaim:
        """Return a claim that is allocated and reserved for the pod."""
        if one.mappings:
            if self.made is None:
                self.made = await self._make(client, one.claim)
            written = await self._reserve(client, one._replace(claim=self.made))
            await self._write_mappings(client, written, one)
            return written
        return await self._reserve(client, one)

    async def _make(self, client: Client, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim, or return the one created by an earlier request without a response."""
        try:
            made = await client.create(RESOURCE_CLAIMS, claim)
        except AlreadyExists:
            made = await client.get(RESOURCE_CLAIMS, key_of(claim))
            if not any(one.uid == self.pod.metadata.uid for one in made.metadata.owner_references or ()):
                raise DevicesLostError(f"claim {key_of(claim)} is there already, and another one") from None
        except ApiError:
            self.created("failure")
            raise
        self.created("success")
        return made

    async def _write_mappings(self, client: Client, claim: ResourceClaim, one: ClaimPlan) -> None:
        """Record in the pod's status which requests of a claim belong to its containers."""
        mappings = [msgspec.to_builtins(each) for each in one.mappings]
        status = {"resourceClaimName": claim.metadata.name, "requestMappings": mappings}
        change = {"metadata": {"uid": self.pod.metadata.uid}, "status": {"extendedResourceClaimStatus": status}}
        await client.patch(PODS, key_of(self.pod), change, STRATEGIC_MERGE_PATCH, subresource="status")

    async def _reserve(self, client: Client, one: ClaimPlan) -> ResourceClaim:
        claim = one.claim
        for _ in range(_ATTEMPTS):
            try:
                return await self._write_over(client, claim, one)
            except Conflict:
                claim = await client.get(RESOURCE_CLAIMS, key_of(claim))
        raise DevicesLostError(f"claim {key_of(claim)} is written by others all the time")

    async def _write_over(self, client: Client, claim: ResourceClaim, one: ClaimPlan) -> ResourceClaim:
        meta = claim.metadata
        if meta.uid != one.claim.metadata.uid or meta.deletion_timestamp is not None:
            raise DevicesLostError(f"claim {key_of(claim)} got deleted in the meantime")
        if is_reserved_for(claim, self.pod) and claim.status.allocation is not None:
            return claim  # it was written so, and that was not answered
        allocation = claim.status.allocation
        if one.allocation is not None:
            if allocation is not None:
                raise DevicesLostError(f"claim {key_of(claim)} got allocated elsewhere in the meantime")
            if DELETE_PROTECTION not in meta.finalizers:
                meta = replace(meta, finalizers=(*meta.finalizers, DELETE_PROTECTION))
                claim = await client.update(RESOURCE_CLAIMS, replace(claim, metadata=meta))
            allocation = replace(one.allocation, allocation_timestamp=format_time(clock.utc_now()))
        if allocation is None:
            raise DevicesLostError(f"claim {key_of(claim)} got deallocated elsewhere in the meantime")
        mine = ConsumerReference(resource="pods", name=self.pod.metadata.name, uid=self.pod.metadata.uid)
        reserved = (*claim.status.reserved_for, mine)
        status = replace(claim.status, allocation=allocation, reserved_for=reserved)
        return await client.update(RESOURCE_CLAIMS, replace(claim, status=status), subresource="status")


async def take_back(client: Client, claim: ResourceClaim) -> None:
    """Remove the allocation of a claim; a claim for extended resources is deleted. Nothing is done if it has
    changed.
    """
    if is_for_extended(claim):
        await discard(client, claim)
        return
    status = replace(claim.status, allocation=None, reserved_for=(), devices=())
    try:
        await client.update(RESOURCE_CLAIMS, replace(claim, status=status), subresource="status")
    except (NotFound, Conflict):
        return


async def discard(client: Client, claim: ResourceClaim) -> None:
    """Delete a claim for extended resources."""
    key, uid = key_of(claim), claim.metadata.uid
    for _ in range(_ATTEMPTS):
        try:
            kept = tuple(one for one in claim.metadata.finalizers if one != DELETE_PROTECTION)
            if kept != claim.metadata.finalizers:
                claim = await client.update(
                    RESOURCE_CLAIMS, replace(claim, metadata=replace(claim.metadata, finalizers=kept))
                )
            await client.delete(RESOURCE_CLAIMS, key, uid=uid)
            return
        except NotFound:
            return
        except Conflict:
            try:
                claim = await client.get(RESOURCE_CLAIMS, key)
            except NotFound:
                return
            if claim.metadata.uid != uid:
                return
    raise DevicesLostError(f"claim {key} is written by others all the time")
