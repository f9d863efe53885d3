"""Filters nodes by the device claims of a pod (KEP-4381), and plans the allocations; pure.

claim of a pod                                        nodes
not created, missing, or being deleted                none
allocated, at its maximum of consumers, or its        none
  devices are being allocated for another pod
allocated                                             those that can access its devices
not allocated                                         those with devices for all such claims
                                                        (`allocator.py`) and for missing extended
                                                        resources (`extended_resources.py`)

An allocation that no node can use is removed, if the claim is not reserved for another pod.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import ContainerExtendedResourceRequest, Node, Pod, Taint
from controller_manager.common.api.devices import (
    AllocatedDevice,
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
)
from controller_manager.common.api.resource import Key
from controller_manager.common.api.scheduling import NodeMatcher
from controller_manager.common.base.random import random_source

from ..shared.device_claims import belongs_to_entry, devices_of, is_reserved_for, known_claims, selector_of
from .allocation import allocation_of
from .allocator import Allocation, Attempt, InvalidPoolsError, Picks, allocate
from .device_pools import Candidate, DevicePools
from .device_requests import AllocationError, WantedClaim, requests_of
from .device_usage import DeviceUsage
from .extended_resources import ClassByResource, claim_for, is_for_extended
from .filters import Rejection, Rejections
from .node_info import NodeInfo
from .time_slice import TimeSlice

# Cost of reading the pools of a node, and of a step of the device search, in units of a filter check.
_POOLS, _STEP = 2.0, 0.3
DEVICES = "DynamicResources"
MOST_CONSUMERS = 256
"""Maximum consumers of a claim."""
_MOST_ALTERNATIVES = 8
_ELSEWHERE = (Rejection(DEVICES, "resourceclaim not available on the node", final=True),)
_NOT_ALL = (Rejection(DEVICES, "cannot allocate all claims", final=True),)
_LEFT_OVER = (Rejection(DEVICES, "cannot schedule extended resource claim", final=True),)


def _none_for(_: str) -> None:
    return None


def _no_claims(_: str) -> Iterable[ResourceClaim]:
    return ()


class Devices(msgspec.Struct, frozen=True):
    """Access to claims, classes and device usage.

    `rules` add taints to devices. `class_for` returns the class of an extended resource, `claims_of` the claims
    controlled by a pod's uid.
    """

    claim: Callable[[Key], ResourceClaim | None]
    device_class: Callable[[str], DeviceClass | None]
    class_for: ClassByResource = _none_for
    claims_of: Callable[[str], Iterable[ResourceClaim]] = _no_claims
    rules: Callable[[], Iterable[DeviceTaintRule]] = tuple
    tainted: bool = True
    pools: DevicePools = msgspec.field(default_factory=DevicePools)
    usage: DeviceUsage = msgspec.field(default_factory=DeviceUsage)

    def taints(self) -> Callable[[Candidate], Sequence[Taint]]:
        """Return a function that returns the taints of devices."""
        if not self.tainted:
            return lambda _: ()
        rules = [(selector_of(one), one.spec.taint) for one in self.rules()]

        def of(candidate: Candidate) -> Sequence[Taint]:
            driver, pool, device = candidate.id
            named = AllocatedDevice(driver=driver, pool=pool, device=device)
            return (*candidate.device.taints, *(taint for selects, taint in rules if selects(named)))

        return of if rules else lambda candidate: candidate.device.taints


class ClaimPlan(NamedTuple):
    """A claim to reserve for a pod, with its allocation if it has none. A claim with `mappings` is created first."""

    claim: ResourceClaim
    allocation: AllocationResult | None = None
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


DevicePlan = tuple[ClaimPlan, ...]


class ExtendedClaim(NamedTuple):
    """A claim for extended resources of a pod, and which request belongs to which container."""

    wanted: WantedClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


class _Found(NamedTuple):
    """The result for a node: why it is rejected, or the devices of each claim."""

    rejections: Rejections = ()
    claims: Sequence[WantedClaim] = ()
    picks: Picks = ()


class PodDevices:
    """The device claims of one pod at present.

    `hindrance` rejects every node. `failure` was found at one node and rejects all, since the pod itself is wrong.
    Results of a node are cached until it changes, but not across changes of claims or devices.
    """

    def __init__(self, pod: Pod, devices: Devices, extended: frozenset[str] = frozenset()) -> None:
        self.hindrance: Rejection | None = None
        self.failure: Rejection | None = None
        self._pod = pod
        self._devices = devices
        self._allocated: list[tuple[ResourceClaim, NodeMatcher | None]] = []
        self._wanted: list[WantedClaim] = []
        self._attempt = Attempt(devices.usage, devices.taints())
        self._found: dict[str, tuple[int, _Found]] = {}
        # The node of the paused device search, with its generation.
        self._searched: tuple[str, int, Allocation] | None = None
        self._unusable: dict[Key, ResourceClaim] = {}
        # Extended resources that devices may provide, and the claims for those that nodes lack.
        self._extended = extended
        self._for_extended: dict[frozenset[str], ExtendedClaim] = {}
        self._left_over = next(filter(is_for_extended, devices.claims_of(pod.metadata.uid)), None) if extended else None
        made = {one.name for one in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name and entry.name not in made:
                self._hinder(f"waiting for the resourceclaim of {entry.name} to be created")
        for entry, name in known_claims(pod):
            found = devices.claim(Key(pod.metadata.namespace, name))
            if found is None or not belongs_to_entry(pod, entry, found):
                self._hinder(f'resourceclaim "{name}" not found')
            else:
                self._note(Key(pod.metadata.namespace, name), found)

    def look(self, node: NodeInfo, time: TimeSlice) -> Rejections | None:
        """Return why the pod does not fit on a node; None if the time slice ends before that is known."""
        if node.node is None:
            return _ELSEWHERE
        found = self._look(node, time)
        return found.rejections if found is not None else None

    def rejects(self, node: NodeInfo) -> Rejections:
        """Return why the pod does not fit on a node; empty if it fits."""
        return self._found_at(node).rejections if node.node is not None else _ELSEWHERE

    def preference(self, node: NodeInfo) -> int:
        """Return a score for how early in the lists of alternatives the devices of a node are."""
        every = self._found_at(node).picks if node.node is not None else ()
        chosen = {id(pick.request) for picks in every for pick in picks}
        requests = (every for one in self._wanted for every in one.requests if every[0].name)
        places = (place for every in requests for place, one in enumerate(every) if id(one) in chosen)
        return sum(_MOST_ALTERNATIVES - place for place in places)

    def plan(self, node: NodeInfo) -> DevicePlan:
        """Return the claims to allocate and reserve on a feasible node."""
        there = node.node
        assert there is not None
        found = self._found_at(node)
        reserved = (ClaimPlan(claim) for claim, _ in self._allocated if not is_reserved_for(claim, self._pod))
        new_id = random_source().uid
        given = [
            ClaimPlan(one.claim, allocation_of(one, picks, there, new_id))
            for one, picks in zip(found.claims, found.picks, strict=True)
        ]
        if len(given) > len(self._wanted):
            given[-1] = given[-1]._replace(mappings=self._extended_claim(node).mappings)
        return (*reserved, *given)

    @property
    def unusable(self) -> ResourceClaim | None:
        """Return an allocated claim that rejected nodes and has no other consumer, or a leftover claim for
        extended resources.
        """
        if self._left_over is not None:
            return self._left_over
        uid = self._pod.metadata.uid
        free = (one for one in self._unusable.values() if all(each.uid == uid for each in one.status.reserved_for))
        return next(free, None)

    def _found_at(self, info: NodeInfo) -> _Found:
        found = self._look(info, TimeSlice())
        assert found is not None
        return found

    def _look(self, info: NodeInfo, time: TimeSlice) -> _Found | None:
        known = self._found.get(info.name)
        if known is not None and known[0] == info.generation:
            return known[1]
        if time.is_over:
            return None
        assert info.node is not None
        found = self._find(info.node, info, time)
        if found is not None:
            self._found[info.name] = info.generation, found
        return found

    def _claims_at(self, info: NodeInfo) -> Sequence[WantedClaim]:
        """Return the claims to allocate on a node."""
        lacking = self._lacking(info)
        return (*self._wanted, self._extended_claim(info).wanted) if lacking else self._wanted

    def _lacking(self, info: NodeInfo) -> frozenset[str]:
        return self._extended.difference(info.allocatable.others)

    def _extended_claim(self, info: NodeInfo) -> ExtendedClaim:
        """Return the claim for the extended resources that a node lacks."""
        lacking = self._lacking(info)
        found = self._for_extended.get(lacking)
        if found is None:
            claim, mappings = claim_for(self._pod, lacking, self._devices.class_for)
            wanted = requests_of(claim, self._devices.device_class)
            found = self._for_extended[lacking] = ExtendedClaim(wanted, mappings)
        return found

    def _find(self, node: Node, info: NodeInfo, time: TimeSlice) -> _Found | None:
        away = [
            one for one, nodes in self._allocated if (nodes is not None and not nodes.matches(node)) or has_failed(one)
        ]
        self._unusable.update((Key(one.metadata.namespace, one.metadata.name), one) for one in away)
        if self._left_over is not None:
            return _Found(_LEFT_OVER)
        if away:
            return _Found(_ELSEWHERE)
        claims = self._claims_at(info)
        if not claims:
            return _Found()
        if self._searched is None or self._searched[:2] != (info.name, info.generation):
            pools = self._devices.pools.of(node)
            time.spend(_POOLS)
            self._searched = info.name, info.generation, allocate(self._attempt, node, pools, claims)
        try:
            while not time.is_over:
                self._search_on(self._searched[2], time)
            return None
        except StopIteration as end:
            found: Picks | None = end.value
        except AllocationError as error:
            why = Rejection(DEVICES, str(error), final=True)
            if not isinstance(error, InvalidPoolsError):
                self.failure = self.failure or why
            return _Found((why,))
        return _Found(_NOT_ALL) if found is None else _Found((), claims, found)

    def _search_on(self, search: Allocation, time: TimeSlice) -> None:
        """Run the search to its next pause. Raises `StopIteration` with the result."""
        before = self._attempt.steps
        try:
            next(search)
        finally:
            time.spend(_STEP * (before - self._attempt.steps))

    def _note(self, key: Key, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        if claim.metadata.deletion_timestamp is not None:
            self._hinder(f'resourceclaim "{key.name}" is being deleted')
        elif allocation is not None:
            if not is_reserved_for(claim, self._pod) and len(claim.status.reserved_for) >= MOST_CONSUMERS:
                self._hinder("resourceclaim in use")
            nodes = NodeMatcher.of(allocation.node_selector) if allocation.node_selector is not None else None
            self._allocated.append((claim, nodes))
        elif self._devices.usage.is_assumed(key, claim.metadata.uid):
            self._hinder(f"resource claim {key} is in the process of being allocated")
        elif all(claim is not one.claim for one in self._wanted):
            try:
                self._wanted.append(requests_of(claim, self._devices.device_class))
            except AllocationError as error:
                self._hinder(str(error))

    def _hinder(self, reason: str) -> None:
        self.hindrance = self.hindrance or Rejection(DEVICES, reason, final=True)


def is_ready(claim: ResourceClaim) -> bool:
    """Return whether a claim is allocated and all binding conditions of its devices are met."""
    return claim.status.allocation is not None and all(
        all(_is_true(claim, one, condition) for condition in one.binding_conditions) for one in devices_of(claim)
    )


def has_failed(claim: ResourceClaim) -> bool:
    """Return whether a binding failure condition of a claim's device is met."""
    return any(
        _is_true(claim, one, condition) for one in devices_of(claim) for condition in one.binding_failure_conditions
    )


def _is_true(claim: ResourceClaim, device: AllocatedDevice, condition: str) -> bool:
    named = (device.driver, device.pool, device.device, device.share_id)
    for one in claim.status.devices:
        if (one.driver, one.pool, one.device, one.share_id) == named:
            found = condition_of(one.conditions, condition)
            return found is not None and found.status == "True"
    return False
