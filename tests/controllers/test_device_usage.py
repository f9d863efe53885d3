"""Device usage while the server lags behind assumed allocations."""

import pytest
from msgspec.structs import replace

from controller_manager.common.api.devices import ResourceClaim
from controller_manager.common.api.resource import key_of
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Decider
from controllers.scheduler.device_pools import DeviceID
from controllers.scheduler.device_usage import DeviceUsage
from controllers.scheduler.scheduler import Assigned, Scheduler, Unplaced
from tests.controllers.device_builders import (
    allocated_claim,
    claim,
    device_slice,
    devices_of,
    pod_with_claims,
    request,
)
from tests.controllers.scheduling_builders import node

GPU = DeviceID("d.org", "a", "g0")
FREE = claim("c", request())
TAKEN = allocated_claim("c", "g0")


def at(version: str, one: ResourceClaim, uid: str = "c") -> ResourceClaim:
    return replace(one, metadata=replace(one.metadata, resource_version=version, uid=uid))


@pytest.mark.parametrize(
    ("written", "update", "has"),
    [
        ("", at("1", FREE), True),  # an event from before the write
        ("", at("9", FREE), True),  # another client wrote another field
        ("5", at("4", FREE), True),  # the event is older than our write
        ("5", at("6", FREE), False),  # the allocation was removed later
        ("", None, False),
        ("5", None, False),
        ("", at("9", FREE, "another"), False),
        ("5", at("5", TAKEN), True),
    ],
)
def test_assumed_allocation_holds_until_newer_version(written: str, update: ResourceClaim | None, has: bool) -> None:
    usage = DeviceUsage()
    usage.set_claim(key_of(FREE), FREE)
    assert TAKEN.status.allocation is not None
    usage.assume(FREE, TAKEN.status.allocation)
    assert usage.is_assumed(key_of(FREE), "c")
    assert usage.whole[GPU] == 1
    if written:
        usage.written(at(written, TAKEN))
    usage.set_claim(key_of(FREE), update)
    assert usage.whole[GPU] == has


def test_assumed_claim_without_uid_keeps_its_devices() -> None:
    usage = DeviceUsage()
    assert TAKEN.status.allocation is not None
    usage.assume(at("", FREE, uid=""), TAKEN.status.allocation)
    usage.set_claim(key_of(FREE), FREE)
    assert GPU in usage.whole
    usage.written(at("5", TAKEN))
    usage.set_claim(key_of(FREE), at("6", FREE))
    assert GPU not in usage.whole


def test_forgotten_allocation_frees_unwritten_devices() -> None:
    usage = DeviceUsage()
    assert TAKEN.status.allocation is not None
    usage.assume(FREE, TAKEN.status.allocation)
    usage.forget(key_of(FREE), FREE)
    assert not usage.whole
    usage.assume(FREE, TAKEN.status.allocation)
    usage.written(at("5", TAKEN))
    usage.forget(key_of(FREE), FREE)
    assert usage.whole[GPU] == 1


@pytest.mark.parametrize("deleted", [False, True])
def test_failed_allocation_requeues_waiting_pods(deleted: bool) -> None:
    devices = devices_of([device_slice("a", "g0")], [FREE])
    scheduler = Scheduler(Decider(ClusterState()), ["default-scheduler"], devices=devices)
    scheduler.node_changed(node("a"), 0.0)
    pods = [pod_with_claims("c", name=name) for name in ("p", "q")]
    for one in pods:
        scheduler.pod_changed(None, one, 0.0)
    first, second = scheduler.step(0.0), scheduler.step(0.0)
    assert isinstance(first, Assigned)
    assert isinstance(second, Unplaced)
    assert "in the process of being allocated" in second.message
    if deleted:
        scheduler.pod_changed(pods[0], None, 0.0)
    else:
        scheduler.not_bound("p", 0.0, again=False)
    again = scheduler.step(60.0)
    assert isinstance(again, Assigned)
    assert again.queued.uid == "q"
