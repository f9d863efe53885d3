"""Decides which device taints evict a pod and when, and the status of a taint rule; pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import Pod, Taint, Toleration
from controller_manager.common.api.devices import AllocatedDevice, DeviceTaintRule, ResourceClaim, ResourceSlice
from controller_manager.common.api.scheduling import FOR_GOOD, NO_EXECUTE, tolerates
from controller_manager.common.api.timestamps import time_of
from controller_manager.framework import Key

from ..shared.device_claims import (
    belongs_to_entry,
    is_reserved_for,
    known_claims,
    newest_generation,
    pools_of,
    selector_of,
)

IN_PROGRESS = "EvictionInProgress"

TaintSource = ResourceSlice | DeviceTaintRule


class Cause(NamedTuple):
    """A NoExecute taint of a device, tolerated until `due` (seconds since the Unix epoch), and where it comes from."""

    origin: TaintSource
    due: float


class Counts(NamedTuple):
    """What a rule does: devices published and allocated that it taints, pods to evict, and in how many namespaces."""

    published: int
    allocated: int
    pods: int
    namespaces: int


def claims_in_use(pod: Pod, claim_of: Callable[[Key], ResourceClaim | None]) -> list[ResourceClaim]:
    """Return the claims of a pod that are allocated and reserved for it."""
    known = ((entry, claim_of(Key(pod.metadata.namespace, name))) for entry, name in known_claims(pod))
    meant = (claim for entry, claim in known if claim is not None and belongs_to_entry(pod, entry, claim))
    return [claim for claim in meant if claim.status.allocation is not None and is_reserved_for(claim, pod)]


def published_devices(slices: Iterable[ResourceSlice]) -> Iterator[AllocatedDevice]:
    """The devices of current slices, named as those of allocations."""
    for (driver, pool), of_pool in pools_of(slices).items():
        for one in of_pool:
            yield from (AllocatedDevice(driver=driver, pool=pool, device=device.name) for device in one.spec.devices)


def causes(
    allocated: AllocatedDevice, pool: Sequence[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> Iterator[Cause]:
    """Yield the NoExecute taints of an allocated device that are not tolerated for good, of its pool and of rules."""
    taints: list[tuple[TaintSource, Taint]] = [
        (one, taint)
        for one in newest_generation(pool)
        for device in one.spec.devices
        if device.name == allocated.device
        for taint in device.taints
    ]
    taints += [(rule, rule.spec.taint) for rule in rules if selector_of(rule)(allocated)]
    for origin, taint in taints:
        seconds = tolerated_seconds(taint, allocated.tolerations) if taint.effect == NO_EXECUTE else FOR_GOOD
        if seconds != FOR_GOOD:
            added = time_of(taint.time_added)
            yield Cause(origin, added.timestamp() + seconds if added is not None else 0.0)


def tolerated_seconds(taint: Taint, tolerations: Iterable[Toleration]) -> float:
    """Return how long a taint of a device is tolerated: `FOR_GOOD` if any toleration says so, else the shortest time
    of those that match (resource/v1 DeviceToleration), 0 if none does.
    """
    limits = [one.toleration_seconds for one in tolerations if tolerates(one, taint)]
    if None in limits:
        return FOR_GOOD
    return max(0.0, min((float(limit) for limit in limits if limit is not None), default=0.0))


def progress(rule: DeviceTaintRule, counts: Counts, evicted: int) -> Condition:
    """Return the condition of a rule without its transition time."""
    effect, pods = rule.spec.taint.effect, _some(counts.pods, "pod")
    namespaces = "1 namespace" if counts.namespaces == 1 else f"{counts.namespaces} different namespaces"
    status, reason, message = "False", "OtherEffect", "Eviction only happens for the NoExecute effect."
    if effect == NO_EXECUTE and counts.pods:
        need = "needs" if counts.pods == 1 else "need"
        status, reason, message = "True", "PodsPendingEviction", f"{pods} {need} to be evicted in {namespaces}."
    elif effect == NO_EXECUTE:
        reason, message = "Completed" if evicted else "NotStarted", ""
    elif effect == "None":
        reason = "NoEffect"
        message = (
            f"{_some(counts.published, 'published device')} selected. "
            f"{_some(counts.allocated, 'allocated device')} selected. "
            f"{pods} would be evicted in {namespaces} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    so_far = f"{_some(evicted, 'pod')} evicted since starting the controller." if evicted else ""
    return Condition(
        type=IN_PROGRESS,
        status=status,
        reason=reason,
        message=f"{message} {so_far}".strip(),
        observed_generation=rule.metadata.generation,
    )


def _some(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
