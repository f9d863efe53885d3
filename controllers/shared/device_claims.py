"""Pods and their device claims (KEP-4381): claims of a pod, allocated devices, current pools, device taint
rules; pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from controller_manager.common.api.core import Pod, PodResourceClaim, is_pod_terminal
from controller_manager.common.api.devices import (
    AllocatedDevice,
    ConsumerReference,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceSlice,
)
from controller_manager.framework import Informer, Key, controller_of

_CLAIM = "resource claim"


def known_claims(pod: Pod) -> Iterator[tuple[PodResourceClaim, str]]:
    """Yield the entries of a pod whose claims are known, each with the name of its claim."""
    generated = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or (generated.get(entry.name) if entry.resource_claim_template_name else None)
        if name:
            yield entry, name


def belongs_to_entry(pod: Pod, entry: PodResourceClaim, claim: ResourceClaim) -> bool:
    """Return whether a claim of that name belongs to the entry. A claim of a template must be owned by this pod."""
    if entry.resource_claim_name:
        return True
    controller = controller_of(claim)
    return controller is not None and controller.uid == pod.metadata.uid


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether the claim is reserved for the pod."""
    return any(one.uid == pod.metadata.uid for one in claim.status.reserved_for)


def is_of_pod(consumer: ConsumerReference) -> bool:
    """Return whether the consumer of a claim is a pod."""
    return (consumer.api_group, consumer.resource) == ("", "pods")


def is_over(pod: Pod) -> bool:
    """Return whether no container of the pod runs or will run: it has ended, or was deleted before it was bound."""
    return is_pod_terminal(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def _claims_of(pod: Pod) -> Iterable[str]:
    return [f"{pod.metadata.namespace}/{name}" for _, name in known_claims(pod)] if pod.spec.resource_claims else ()


# The index that a controller declares for its watch of pods if it uses the function below.
PODS_BY_CLAIM: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_CLAIM: _claims_of})


def pods_with_claim(pods: Informer[Pod], claim: Key) -> list[Pod]:
    """Return the pods with an entry for the claim of that key."""
    return pods.by_index(_CLAIM, str(claim))


def devices_of(claim: ResourceClaim) -> Sequence[AllocatedDevice]:
    """Return the devices that are allocated to a claim."""
    allocation = claim.status.allocation
    return allocation.devices.results if allocation is not None else ()


def newest_generation(pool: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of the newest generation of a pool."""
    newest = max((one.spec.pool.generation for one in pool), default=0)
    return [one for one in pool if one.spec.pool.generation == newest]


def pools_of(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], list[ResourceSlice]]:
    """Return the current slices of each pool, by driver and pool name."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for one in slices:
        pools.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
    return {key: newest_generation(pool) for key, pool in pools.items()}


def selector_of(rule: DeviceTaintRule) -> Callable[[AllocatedDevice], bool]:
    """Return a predicate for the devices that a rule selects. A rule without a selector selects none."""
    wanted = rule.spec.device_selector
    return lambda device: wanted is not None and _selects(wanted, device)


def _selects(selector: DeviceTaintSelector, device: AllocatedDevice) -> bool:
    pairs = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(wanted is None or wanted == found for wanted, found in pairs)
