"""Allocation of devices to claims on a node, also compared with an exhaustive search of small cases."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.devices import AllocationResult, ResourceClaim, ResourceSlice
from controllers.scheduler import allocator
from controllers.scheduler.allocator import Attempt, allocate
from controllers.scheduler.device_requests import AllocationError, requests_of
from controllers.scheduler.devices import Devices, PodDevices
from controllers.scheduler.node_info import NodeInfo
from tests.controllers.device_builders import (
    Tree,
    allocated_claim,
    claim,
    device,
    device_class,
    device_slice,
    devices_of,
    exactly,
    pod_with_claims,
    request,
)
from tests.controllers.scheduling_builders import cluster, node

BIG = 'device.capacity["d.org"].memory.compareTo(quantity("40Gi")) >= 0'
SAME = {"matchAttribute": "d.org/numa"}
DISTINCT = {"distinctAttribute": "d.org/numa"}
TAINT = {"key": "broken", "effect": "NoSchedule"}
LATER = {"apiVersion": "v1"}


def info(name: str = "a", **labels: str) -> NodeInfo:
    return cluster([node(name, labels)]).nodes[name]


def search(devices: Devices, claims: Sequence[ResourceClaim], on: NodeInfo | None = None) -> str:
    """Return the devices that the claims of a pod get on a node, or the reason for none."""
    there = on or info()
    found = PodDevices(pod_with_claims(*(one.metadata.name for one in claims)), devices)
    if found.hindrance is not None:
        return found.hindrance.reason
    why = found.rejects(there)
    if why:
        return why[0].reason
    allocations = [one.allocation for one in found.plan(there) if one.allocation is not None]
    return "; ".join(_shown(one) for one in allocations)


def _shown(allocation: AllocationResult) -> str:
    return " ".join(f"{one.request}={one.device}" for one in allocation.devices.results)


def allocated(
    slices: Sequence[ResourceSlice], *claims: ResourceClaim, others: Sequence[ResourceClaim] = (), **more: Any
) -> str:
    devices = devices_of(slices, [*claims, *others], more.pop("classes", ()))
    return search(devices, claims, **more)


NONE = "cannot allocate all claims"
GPUS = device_slice("a", device("g0", {"memory": "16Gi"}, numa=0), device("g1", {"memory": "40Gi"}, numa=1),
                 device("g2", {"memory": "80Gi"}, numa=1))  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ([claim("c", request())], "r=g0"),
        ([claim("c", request("r", BIG))], "r=g1"),
        ([claim("c", request("r", BIG)), claim("d", request("r", BIG))], "r=g1; r=g2"),
        ([claim("c", request("r", BIG, count=3))], NONE),
        ([claim("c", request(count=3))], "r=g0 r=g1 r=g2"),
        ([claim("c", request(count=4))], NONE),
        ([claim("c", request(allocationMode="All"))], "r=g0 r=g1 r=g2"),
        ([claim("c", request("r", "false", allocationMode="All"))], NONE),
        ([claim("c", request("x", allocationMode="All"), request("y"))], NONE),
        ([claim("c", request(count=2), constraints=[SAME])], "r=g1 r=g2"),
        ([claim("c", request("x"), request("y"), constraints=[SAME])], "x=g1 y=g2"),
        ([claim("c", request("x"), request("y"), constraints=[DISTINCT])], "x=g0 y=g1"),
        ([claim("c", request("x"), request("y"), request("z"), constraints=[DISTINCT])], NONE),
        ([claim("c", request("x"), request("y"), request("z"), constraints=[{**SAME, "requests": ["x", "z"]}])],
         "x=g1 y=g0 z=g2"),
        ([claim("c", request(), constraints=[{"matchAttribute": "d.org/other"}])], NONE),
        ([claim("c", request("x"), request("y", BIG, count=2))], "x=g0 y=g1 y=g2"),
        # The first alternative that can be allocated.
        ([claim("c", {"name": "r", "firstAvailable": [{"name": "s", **exactly(BIG)}, {"name": "t", **exactly()}]})],
         "r/s=g1"),
        ([claim("c", {"name": "r", "firstAvailable": [{"name": "s", **exactly("false")}, {"name": "t", **exactly()}]})],
         "r/t=g0"),
        ([claim("c", {"name": "r", "firstAvailable": [
            {"name": "s", **exactly(BIG, count=2)}, {"name": "t", **exactly()}]}, request("q", BIG))], "r/t=g0 q=g1"),
        ([claim("c", request("r", 'device.attributes["d.org"].numa == 1 && device.driver == "d.org"'))], "r=g1"),
        ([claim("c", request("r", 'device.attributes["d.org"].none'))], "CEL runtime error: no such key: none"),
        ([claim("c", request("r", "1 +"))], "CEL compile error"),
        ([claim("c", request(of="none"))], "request r: device class none does not exist"),
        ([claim("c", request(count=33))], NONE),
    ],
)  # fmt: skip
def test_devices_are_allocated_in_order(claims: Sequence[ResourceClaim], found: str) -> None:
    assert allocated([GPUS], *claims).startswith(found)


def test_selectors_of_class_apply() -> None:
    assert allocated([GPUS], claim("c", request(of="big")), classes=[device_class("big", BIG)]) == "r=g1"


def test_devices_of_other_claims_are_not_allocated() -> None:
    assert allocated([GPUS], claim("c", request()), others=[allocated_claim("o", "g0")]) == "r=g1"
    assert allocated([GPUS], claim("c", request()), others=[allocated_claim("o", "g0", "g1", "g2")]) == NONE
    assert allocated([GPUS], claim("c", request(allocationMode="All")), others=[allocated_claim("o", "g0")]) == NONE


def test_admin_access_shares_allocated_devices() -> None:
    everything = allocated_claim("o", "g0", "g1", "g2")
    admin = claim("c", request("r", adminAccess=True, count=2))
    assert allocated([GPUS], admin, others=[everything]) == "r=g0 r=g1"
    assert allocated([GPUS], claim("c", request(adminAccess=True, count=4)), others=[everything]) == NONE
    for_admin = allocated_claim("o", "g0", adminAccess=True)
    assert allocated([GPUS], claim("c", request()), others=[for_admin]) == "r=g0"


def test_tainted_devices_require_tolerations() -> None:
    slices = [device_slice("a", device("bad", taints=[TAINT]), "good")]
    assert allocated(slices, claim("c", request())) == "r=good"
    assert allocated(slices, claim("c", request(tolerations=[{"key": "broken", "operator": "Exists"}]))) == "r=bad"
    assert allocated(slices, claim("c", request(allocationMode="All"))) == NONE
    assert (
        allocated([device_slice("a", device("x", taints=[{"key": "k", "effect": "None"}]))], claim("c", request()))
        == "r=x"
    )


ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}


@pytest.mark.parametrize(
    ("slices", "found"),
    [
        ([device_slice("b", "d")], NONE),
        ([device_slice("s", "d", allNodes=True)], "r=d"),
        ([device_slice("s", "d", nodeSelector=ZONE)], "r=d"),
        ([device_slice("s", device("d", nodeName="b"), device("e", nodeSelector=ZONE), perDeviceNodeSelection=True)],
         "r=e"),
        ([device_slice("s", device("d", nodeName="b"), perDeviceNodeSelection=True)], NONE),
        # Order: pools by driver and name, slices by name, devices as listed.
        ([device_slice("z", "d", pool="p", nodeName="a", count=2),
          device_slice("y", "e", pool="p", nodeName="a", count=2)],
         "r=e"),
        ([device_slice("x", "d", pool="q", nodeName="a"), device_slice("y", "e", pool="p", nodeName="a")], "r=e"),
        ([device_slice("x", device("d", bindingConditions=["Ready"]), pool="p", nodeName="a"),
          device_slice("y", "e", pool="q", nodeName="a")], "r=e"),
        # Incomplete, outdated or invalid pools.
        ([device_slice("a", "d", count=2)], NONE),
        ([device_slice("a", "d", pool="p", count=2), device_slice("b", "e", pool="p", count=2)], "r=d"),
        ([device_slice("a", "d", pool="p"), device_slice("b", "e", pool="p", generation=2)], "r=d"),
        ([device_slice("a", "d", pool="p", count=2), device_slice("b", "e", pool="p", generation=2)], NONE),
        ([device_slice("x", "d", pool="p", nodeName="a"), device_slice("y", "e", pool="p", nodeName="a", generation=2)],
         "r=e"),
        ([device_slice("x", "d", pool="p", nodeName="a", count=2),
          device_slice("y", "d", pool="p", nodeName="a", count=2)],
         "invalid resource pools were encountered"),
        ([device_slice("x", "d", "d", pool="p", nodeName="a"), device_slice("y", "e", nodeName="a")], "r=e"),
    ],
)  # fmt: skip
def test_devices_by_node_selector_of_slice(slices: Sequence[ResourceSlice], found: str) -> None:
    assert allocated(slices, claim("c", request()), on=info(zone="x")) == found


def test_all_devices_of_incomplete_pool_are_refused() -> None:
    half = [device_slice("a", "d", count=2), device_slice("y", "e", nodeName="a")]
    found = allocated(half, claim("c", request(allocationMode="All")))
    assert found == "request r: asks for all devices, but resource pool d.org/a is currently being updated"


def consumes(number: int, of: str = "set") -> Tree:
    return {"consumesCounters": [{"counterSet": of, "counters": {"slots": {"value": str(number)}}}]}


def test_shared_counters_are_never_exceeded() -> None:
    counters = device_slice(
        "c", pool="p", count=2, sharedCounters=[{"name": "set", "counters": {"slots": {"value": "4"}}}]
    )
    parts = device_slice(
        "s", device("whole", **consumes(4)), device("h0", **consumes(2)), device("h1", **consumes(2)),
        pool="p", count=2, nodeName="a",
    )  # fmt: skip
    slices = [counters, parts]
    assert allocated(slices, claim("c", request())) == "r=whole"
    assert allocated(slices, claim("c", request(count=2))) == "r=h0 r=h1"
    assert allocated(slices, claim("c", request(count=3))) == NONE
    assert allocated(slices, claim("c", request()), others=[allocated_claim("o", "h0", pool="p")]) == "r=h1"
    assert allocated(slices, claim("c", request()), others=[allocated_claim("o", "whole", pool="p")]) == NONE
    assert allocated([parts], claim("c", request())) == NONE  # half of the pool
    wrong = [device_slice("s", device("d", **consumes(1, of="none")))]
    assert allocated(wrong, claim("c", request()), on=info("s")) == "invalid resource pools were encountered"


def shared(name: str, value: str = "10Gi", **policy: Any) -> Tree:
    capacity = {"value": value, **({"requestPolicy": policy} if policy else {})}
    return device(name, {"memory": capacity}, allowMultipleAllocations=True)


def part(amount: str = "", name: str = "r", **more: Any) -> Tree:
    return request(name, **({"capacity": {"requests": {"memory": amount}}} if amount else {}), **more)


STEPS = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}
VALUES = {"default": "2Gi", "validValues": ["2Gi", "6Gi"]}


@pytest.mark.parametrize(
    ("policy", "amount", "consumed"),
    [
        ({}, "3Gi", "3Gi"),
        ({}, "", "10Gi"),
        ({}, "11Gi", None),
        (STEPS, "", "1Gi"),
        (STEPS, "100Mi", "1Gi"),
        (STEPS, "1100Mi", "2Gi"),
        (STEPS, "4Gi", "4Gi"),
        (STEPS, "4100Mi", None),
        (VALUES, "", "2Gi"),
        (VALUES, "1Gi", "2Gi"),
        (VALUES, "3Gi", "6Gi"),
        (VALUES, "7Gi", None),
    ],
)
def test_consumed_capacity_follows_request_policy(policy: Tree, amount: str, consumed: str | None) -> None:
    devices = devices_of([device_slice("a", shared("d", **policy))], [claim("c", part(amount))])
    found = PodDevices(pod_with_claims("c"), devices)
    if consumed is None:
        assert found.rejects(info())[0].reason == NONE
        return
    assert not found.rejects(info())
    (one,) = found.plan(info())
    assert one.allocation is not None
    (result,) = one.allocation.devices.results
    assert result.consumed_capacity == {"memory": consumed}
    assert result.share_id


def test_claims_share_device_until_capacity_is_used() -> None:
    slices = [device_slice("a", shared("d"), shared("e"))]
    assert allocated(slices, claim("c", part("6Gi", "x"), part("6Gi", "y"))) == "x=d y=e"
    assert allocated(slices, claim("c", part("5Gi", "x"), part("5Gi", "y"))) == "x=d y=d"
    assert allocated(slices, claim("c", part("6Gi", "x"), part("6Gi", "y"), part("6Gi", "z"))) == NONE
    used = allocated_claim("o", "d", shareID="1", consumedCapacity={"memory": "7Gi"})
    assert allocated(slices, claim("c", part("4Gi")), others=[used]) == "r=e"
    assert allocated(slices, claim("c", part("3Gi")), others=[used]) == "r=d"
    assert allocated(slices, claim("c", request("r", capacity={"requests": {"none": "1"}}))) == NONE


def test_allocation_contains_config_results_and_selector() -> None:
    config = [{"opaque": {"driver": "d.org", "parameters": LATER}}]
    classes = [device_class("any", config=config)]
    own = [{"requests": ["x"], "opaque": {"driver": "d.org", "parameters": {}}}]
    asked = claim("c", request("x", adminAccess=True), request("y"), config=own)
    devices = devices_of([device_slice("s", "d", "e", nodeSelector=ZONE)], [asked], classes)
    (one,) = PodDevices(pod_with_claims("c"), devices).plan(info(zone="x"))
    assert one.allocation is not None
    assert msgspec.json.decode(msgspec.json.encode(one.allocation)) == {
        "devices": {
            "results": [
                {"request": "x", "driver": "d.org", "pool": "s", "device": "d", "adminAccess": True},
                {"request": "y", "driver": "d.org", "pool": "s", "device": "e"},
            ],
            "config": [
                {"source": "FromClass", "requests": ["x", "y"], **config[0]},
                {"source": "FromClaim", **own[0]},
            ],
        },
        "nodeSelector": ZONE,
    }


def test_device_of_node_slice_pins_claim_to_node() -> None:
    devices = devices_of([GPUS], [claim("c", request())])
    (one,) = PodDevices(pod_with_claims("c"), devices).plan(info())
    assert one.allocation is not None
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    assert msgspec.json.decode(msgspec.json.encode(one.allocation.node_selector)) == {
        "nodeSelectorTerms": [{"matchFields": [field]}]
    }


def test_search_stops_at_step_limit() -> None:
    pairs = [device_slice("a", *(device(f"d{n}", numa=n // 2) for n in range(60)))]
    hopeless = claim("c", request(count=3), request("q", count=4), constraints=[SAME, {**SAME, "requests": ["r"]}])
    assert allocated(pairs, hopeless) == NONE
    many = [device_slice("a", *(device(f"d{n}") for n in range(60)))]
    requests = [request(f"r{n}", count=2) for n in range(8)]
    never = claim("c", *requests, request("last", "device.allowMultipleAllocations"))
    assert allocated(many, never) == "too many steps to find devices"


def test_step_limit_is_shared_by_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = devices_of([GPUS], [asked := claim("c", request())])
    attempt = Attempt(devices.usage, steps=3)
    there = info().node
    assert there is not None
    with pytest.raises(AllocationError, match="too many steps"):
        next(allocate(attempt, there, devices.pools.of(there), [requests_of(asked, devices.device_class)]))
    monkeypatch.setattr(allocator, "MOST_STEPS", 2)
    assert allocated([GPUS], asked) == "too many steps to find devices"


# Comparison with an exhaustive search.


small_devices = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2), st.booleans()), min_size=0, max_size=5
)
small_requests = st.lists(st.tuples(st.booleans(), st.integers(1, 2)), min_size=1, max_size=3)


@given(small_devices, small_requests, st.sampled_from([None, "match", "distinct"]), st.integers(0, 4))
def test_allocator_agrees_with_exhaustive_search(
    there: list[tuple[int, bool, int, bool]], asked: list[tuple[bool, int]], constraint: str | None, slots: int
) -> None:
    """Devices are tuples: NUMA node, fast or not, counter slots used, and whether they are allocated."""
    devices = [device(f"d{n}", numa=one[0], fast=one[1], **consumes(one[2])) for n, one in enumerate(there)]
    counters = device_slice(
        "z", pool="a", count=2, sharedCounters=[{"name": "set", "counters": {"slots": {"value": str(slots)}}}]
    )
    fast = 'device.attributes["d.org"].fast'
    rules = {"match": [SAME], "distinct": [DISTINCT], None: []}[constraint]
    requests = [request(f"r{n}", *([fast] if only else []), count=count) for n, (only, count) in enumerate(asked)]
    taken = allocated_claim("o", *(f"d{n}" for n, one in enumerate(there) if one[3]))
    found = allocated(
        [device_slice("a", *devices, count=2), counters], claim("c", *requests, constraints=rules), others=[taken]
    )
    every = [only for only, count in asked for _ in range(count)]
    left = slots - sum(one[2] for one in there if one[3])

    def suits(chosen: tuple[int, ...]) -> bool:
        numas = [there[n][0] for n in chosen]
        return (
            not any(there[n][3] for n in chosen)
            and all(there[n][1] or not only for n, only in zip(chosen, every, strict=True))
            and not (rules == [SAME] and len(set(numas)) > 1)
            and not (rules == [DISTINCT] and len(set(numas)) < len(numas))
            and sum(there[n][2] for n in chosen) <= left
        )

    solutions = {chosen for chosen in itertools.permutations(range(len(there)), len(every)) if suits(chosen)}
    if found == NONE:
        assert not solutions
        return
    chosen = tuple(int(one.partition("=d")[2]) for one in found.split())
    assert chosen in solutions
