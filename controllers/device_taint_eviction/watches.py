"""Which pods, and which rules that taint devices, a change concerns; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from controller_manager.common.api.core import Pod
from controller_manager.common.api.devices import (
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    AllocatedDevice,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from controller_manager.common.api.scheduling import NO_EXECUTE
from controller_manager.framework import Change, Informer, Informers, Key

from ..shared.device_claims import devices_of, is_of_pod, selector_of
from .decide import claims_in_use

_POOL = "device pool"


class OfRule(NamedTuple):
    """A rule whose status has to show the progress of evictions."""

    name: str


def _pool_key(driver: str, pool: str) -> str:
    """The key of a pool in the indexes of slices and claims."""
    return f"{driver}/{pool}"


def _pool_of(one: ResourceSlice) -> Iterable[str]:
    return (_pool_key(one.spec.driver, one.spec.pool.name),)


def _pools_of(claim: ResourceClaim) -> Iterable[str]:
    return {_pool_key(device.driver, device.pool) for device in devices_of(claim)}


# What the controller declares of its watches.
SLICES_BY_POOL: Mapping[str, Callable[[ResourceSlice], Iterable[str]]] = MappingProxyType({_POOL: _pool_of})
CLAIMS_BY_POOL: Mapping[str, Callable[[ResourceClaim], Iterable[str]]] = MappingProxyType({_POOL: _pools_of})


def slices_of_pool(slices: Informer[ResourceSlice], driver: str, pool: str) -> list[ResourceSlice]:
    """Return the slices of a pool, those that are out of date too."""
    return slices.by_index(_POOL, _pool_key(driver, pool))


def changed_pod(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    """A pod with claims that came, went, was bound, or was given other claims."""
    before, after = change.before, change.after
    if not change.object.spec.resource_claims:
        return
    if before is None or after is None or _facts(before) != _facts(after):
        yield change.key


def _facts(pod: Pod) -> object:
    meta = pod.metadata
    return meta.uid, meta.deletion_timestamp, pod.spec.node_name, pod.status.resource_claim_statuses


def pods_of_claim(_: Informers, change: Change[ResourceClaim]) -> Iterator[Key]:
    """The pods that a claim is or was reserved for, if that or its allocation has changed."""
    before, after = change.before, change.after
    if before is not None and after is not None and before.status == after.status:
        return
    for claim in (before, after):
        if claim is not None:
            yield from (Key(claim.metadata.namespace, name) for name in pods_of(claim))


def pods_of_slice(informers: Informers, change: Change[ResourceSlice]) -> Iterator[Key]:
    """The pods with devices of a pool whose slices change, if there are or were taints that evict."""
    states = [one for one in (change.before, change.after) if one is not None]
    if len(states) == 2 and states[0].spec == states[1].spec:
        return
    for pool in {_pool_key(one.spec.driver, one.spec.pool.name) for one in states}:
        if any(map(_evicts, (*states, *informers.get(RESOURCE_SLICES).by_index(_POOL, pool)))):
            for claim in informers.get(RESOURCE_CLAIMS).by_index(_POOL, pool):
                yield from (Key(claim.metadata.namespace, name) for name in pods_of(claim))


def _evicts(one: ResourceSlice) -> bool:
    return any(taint.effect == NO_EXECUTE for device in one.spec.devices for taint in device.taints)


def work_of_rule(informers: Informers, change: Change[DeviceTaintRule]) -> Iterator[Key | OfRule]:
    """The status of a rule that has changed, first, and the pods with devices that it selects, or did."""
    before, after = change.before, change.after
    states = [(one.metadata.uid, one.spec) for one in (before, after) if one is not None]
    if len(states) == 2 and states[0] == states[1]:
        return
    yield OfRule(change.key.name)
    selectors = [selector_of(rule) for rule in (before, after) if rule is not None and _acts(rule)]
    for claim in informers.get(RESOURCE_CLAIMS).list() if selectors else ():
        if any(selects(device) for device in devices_of(claim) for selects in selectors):
            yield from (Key(claim.metadata.namespace, name) for name in pods_of(claim))


def _acts(rule: DeviceTaintRule) -> bool:
    return rule.spec.taint.effect == NO_EXECUTE


def rules_of_claim(informers: Informers, change: Change[ResourceClaim]) -> Iterator[OfRule]:
    """The rules that taint devices of a claim whose pods may be others now."""
    yield from _rules_of(informers, devices_of(change.object))


def rules_of_pod(informers: Informers, change: Change[Pod]) -> Iterator[OfRule]:
    """The rules that taint devices of a pod which came, went, was bound or is being deleted."""
    for _ in changed_pod(informers, change):
        for claim in claims_in_use(change.object, informers.get(RESOURCE_CLAIMS).get):
            yield from _rules_of(informers, devices_of(claim))


def _rules_of(informers: Informers, devices: Sequence[AllocatedDevice]) -> Iterator[OfRule]:
    for rule in informers.get(DEVICE_TAINT_RULES).list() if devices else ():
        if _acts(rule) and any(map(selector_of(rule), devices)):
            yield OfRule(rule.metadata.name)


def pods_of(claim: ResourceClaim) -> list[str]:
    """The names of the pods that a claim is reserved for."""
    return [one.name for one in claim.status.reserved_for if is_of_pod(one)]
