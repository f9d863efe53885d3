"""Responses to resource pool status requests, and when the requests are deleted."""

import pytest

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.devices import (
    AllocatedDevice,
    AllocationResult,
    Device,
    DeviceAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ResourceSlice,
    ResourceSliceSpec,
)
from controller_manager.common.api.model import ObjectMeta
from controllers.resource_pool_status_request import answer, seconds_left


def published(
    pool: str = "p", devices: int = 2, driver: str = "d", node: str = "", generation: int = 1, count: int = 1
) -> ResourceSlice:
    of_pool = ResourcePool(name=pool, generation=generation, resource_slice_count=count)
    spec = ResourceSliceSpec(driver=driver, pool=of_pool, node_name=node, devices=(Device(name="x"),) * devices)
    return ResourceSlice(spec=spec)


def claim(*pools: str) -> ResourceClaim:
    results = tuple(AllocatedDevice(driver="d", pool=pool, device="x") for pool in pools)
    return ResourceClaim(
        status=ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=results)))
    )


NOTHING = ResourceClaim()
INCOMPLETE = "pool d/p is incomplete: observed 1/2 slices at generation 1"


@pytest.mark.parametrize(
    ("slices", "claims", "expected"),
    [
        ([], [], []),
        ([published(driver="e")], [], []),
        ([published()], [NOTHING], [("p", None, 2, 0, 2, None)]),
        ([published(node="n")], [claim("p")], [("p", "n", 2, 1, 1, None)]),
        ([published()], [claim("p", "p"), claim("p", "q")], [("p", None, 2, 3, 0, None)]),
        ([published(), published(devices=9, generation=2)], [], [("p", None, 9, 0, 9, None)]),
        (
            [published(node="n", count=2), published(node="n", count=2, devices=3)],
            [],
            [("p", "n", 5, 0, 5, None)],
        ),
        ([published(node="n", count=2), published(node="m", count=2)], [], [("p", None, 4, 0, 4, None)]),
        ([published(count=2)], [claim("p")], [("p", None, None, None, None, INCOMPLETE)]),
        ([published("q"), published("a/b")], [], [("a/b", None, 2, 0, 2, None), ("q", None, 2, 0, 2, None)]),
    ],
)
def test_pool_status_by_slices_and_claims(
    slices: list[ResourceSlice], claims: list[ResourceClaim], expected: list[tuple[object, ...]]
) -> None:
    status = answer(ResourcePoolStatusRequestSpec(driver="d"), slices, claims)
    assert status.pool_count == len(expected)
    assert [
        (
            *(one.pool_name, one.node_name, one.total_devices),
            *(one.allocated_devices, one.available_devices, one.validation_error),
        )
        for one in status.pools
    ] == expected


def test_validation_error_is_truncated() -> None:
    status = answer(ResourcePoolStatusRequestSpec(driver="d"), [published("p" * 253, count=2)], [])
    assert len(status.pools[0].validation_error or "") == 256
    assert status.conditions[0].message == "Calculated status for 1 pools (1 incomplete)"


def request(*kinds: str) -> ResourcePoolStatusRequest:
    conditions = tuple(Condition(type=one, status="True", last_transition_time="1970-01-01T01:00:00Z") for one in kinds)
    return ResourcePoolStatusRequest(
        metadata=ObjectMeta(creation_timestamp="1970-01-01T00:00:00Z"),
        status=ResourcePoolStatusRequestStatus(conditions=conditions) if kinds else None,
    )


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (request(), 86400),
        (request("Complete"), 7200),
        (request("Failed"), 7200),
        (request("Other"), 3600),
    ],
)
def test_request_lifetime_by_condition(asked: ResourcePoolStatusRequest, seconds: float) -> None:
    assert seconds_left(asked, 0.0) == seconds
    assert seconds_left(asked, seconds + 1) == -1
