"""Scheduling attempts that span several time slices: each slice is bounded, and changes between slices count."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import force_setattr

from controller_manager.common.api.core import Pod
from controller_manager.common.api.resource import Key
from controllers.scheduler import scheduler as scheduler_module
from controllers.scheduler.decide import Decider, Unfinished
from controllers.scheduler.scheduler import Assigned, Scheduler, SchedulingResult, Unplaced
from controllers.scheduler.storage import Storage
from controllers.scheduler.volumes import BY_VOLUMES
from tests.controllers import device_builders
from tests.controllers.scheduling_builders import cluster, node, pod
from tests.controllers.test_scheduler_volumes import claim, pod_with, storage, volume

NODES = 120
SLICE = 50
Tree = Mapping[str, Any]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "_LOOKS", SLICE)


def make_scheduler(*nodes: int, placed: Mapping[str, list[Pod]] | None = None, **more: Any) -> Scheduler:
    hosts = (node(f"n{number}") for number in nodes or range(NODES))
    return Scheduler(Decider(cluster(hosts, placed)), ("default-scheduler",), **more)


def finish(
    scheduler: Scheduler, between: Callable[[int], None] = lambda _: None
) -> tuple[SchedulingResult | None, int]:
    """Return the result of an attempt and its number of slices; `between` runs after each slice but the last."""
    for number in range(1, 500):
        step = scheduler.step(0.0)
        if not isinstance(step, Unfinished):
            return step, number
        between(number)
    raise AssertionError("it does not end")


def host(name: str) -> Tree:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def local(*names: str) -> list[Tree]:
    """Return a local disk on each of these nodes."""
    return [volume(f"disk-{name}", storage_class="local", **host(name)) for name in names]


def disks(*names: str) -> Storage:
    return storage([claim("c", storage_class="local")], local(*names))


def gpus(*claims: str, at: str = "n100") -> Any:
    wanted = [
        device_builders.claim(one, device_builders.request("r", "device.attributes['d.org'].big")) for one in claims
    ]
    slices = (
        device_builders.device_slice(f"n{n}", device_builders.device("g", big=f"n{n}" == at)) for n in range(NODES)
    )
    return device_builders.devices_of(list(slices), wanted)


def full(priority: int = 0) -> Mapping[str, list[Pod]]:
    return {f"n{number}": [pod(f"v{number}", {"cpu": "4"}, priority=priority)] for number in range(NODES)}


@pytest.mark.parametrize(
    ("options", "asked", "to"),
    [
        (lambda: {"storage": disks("n100", "elsewhere")}, pod_with("c"), "n100"),
        (lambda: {"storage": storage([claim("c", "v")], [volume("v", **host("n100"))])}, pod_with("c"), "n100"),
        (lambda: {"devices": gpus("c")}, device_builders.pod_with_claims("c"), "n100"),
    ],
    ids=["a claim that waits", "a claim that is bound", "devices"],
)
def test_sliced_attempt_equals_uninterrupted_one(
    monkeypatch: pytest.MonkeyPatch, options: Callable[[], Any], asked: Pod, to: str
) -> None:
    scheduler = make_scheduler(**options())
    scheduler.pod_changed(None, asked, 0.0)
    step, slices = finish(scheduler)
    assert isinstance(step, Assigned)
    assert (step.node, slices > NODES // SLICE) == (to, True)
    monkeypatch.setattr(scheduler_module, "_LOOKS", 100_000)
    at_once = make_scheduler(**options())
    at_once.pod_changed(None, asked, 0.0)
    one, _ = finish(at_once)
    assert isinstance(one, Assigned)
    assert one.volumes == step.volumes
    assert len(one.devices) == len(step.devices)


def test_many_volumes_are_checked_in_slices() -> None:
    scheduler = make_scheduler(0, 1, storage=disks(*(f"x{number}" for number in range(300)), "n1"))
    scheduler.pod_changed(None, pod_with("c"), 0.0)
    step, slices = finish(scheduler)
    assert isinstance(step, Assigned)
    assert step.node == "n1"
    assert slices > 300 // (2 * SLICE)


def test_device_search_on_one_node_is_sliced() -> None:
    many = device_builders.device_slice("n0", *(device_builders.device(f"d{n}", numa=n) for n in range(60)))
    pairs = device_builders.claim("c", device_builders.request(count=2), constraints=[{"matchAttribute": "d.org/numa"}])
    scheduler = make_scheduler(0, devices=device_builders.devices_of([many], [pairs]))
    scheduler.pod_changed(None, device_builders.pod_with_claims("c"), 0.0)
    step, slices = finish(scheduler)
    assert isinstance(step, Unplaced)
    assert slices > 5


def test_volume_taken_between_slices_is_not_reused() -> None:
    there = disks("n10", "n100")
    scheduler = make_scheduler(storage=there)
    scheduler.pod_changed(None, pod_with("c"), 0.0)

    def give(number: int) -> None:
        if number == 2:
            there.taken["disk-n10"] = Key("default", "other")
            scheduler.happened(BY_VOLUMES, "PersistentVolumeUpdate", 0.0)

    step, _ = finish(scheduler, give)
    assert isinstance(step, Assigned)
    assert (step.node, [one.metadata.name for one, _ in step.volumes.given]) == ("n100", ["disk-n100"])


def test_claim_bound_between_slices_is_seen() -> None:
    there = disks("n10")
    bound = storage([claim("c", "v", storage_class="local")], [volume("v", **host("n50"))])
    scheduler = make_scheduler(storage=there)
    scheduler.pod_changed(None, pod_with("c"), 0.0)

    def bind(number: int) -> None:
        if number == 1:
            force_setattr(there, "claim", bound.claim)
            force_setattr(there, "volume", bound.volume)
            scheduler.happened(BY_VOLUMES, "PersistentVolumeClaimUpdate", 0.0)

    step, _ = finish(scheduler, bind)
    assert isinstance(step, Assigned)
    assert (step.node, step.volumes.claims) == ("n50", ())


@pytest.mark.parametrize("by", [BY_VOLUMES, frozenset({"DynamicResources"})])
def test_event_during_failed_attempt_requeues_pod(by: frozenset[str]) -> None:
    scheduler = make_scheduler(storage=disks("elsewhere"))
    scheduler.pod_changed(None, pod_with("c"), 0.0)
    step, _ = finish(scheduler, lambda _: scheduler.happened(by, "PersistentVolumeAdd", 0.0))
    assert isinstance(step, Unplaced)
    assert scheduler.queue.pending()["backoff"] == (by == BY_VOLUMES)


def test_devices_taken_between_slices_are_not_reused() -> None:
    scheduler, alone = make_scheduler(devices=gpus("c", "other")), make_scheduler(devices=gpus("c", "other"))
    for one in (scheduler, alone):
        one.pod_changed(None, device_builders.pod_with_claims("c"), 0.0)
    found, last = finish(alone)
    assert isinstance(found, Assigned)
    other = device_builders.allocated_claim("other", "g", pool="n100")

    def give(number: int) -> None:
        if number == last - 1:
            scheduler.claim_changed(Key("default", "other"), None, other, 0.0)

    step, _ = finish(scheduler, give)
    assert isinstance(step, Unplaced)


def test_pod_changed_between_slices_is_reread() -> None:
    scheduler, before = make_scheduler(storage=disks("n10", "n100")), pod_with("c")
    scheduler.pod_changed(None, before, 0.0)
    after = pod_with("c", nodeSelector={"kubernetes.io/hostname": "n100"}, meta={"generation": 2})

    def change(number: int) -> None:
        if number == 1:
            scheduler.pod_changed(before, after, 0.0)

    step, _ = finish(scheduler, change)
    assert isinstance(step, Assigned)
    assert step.node == "n100"


def test_preemption_is_searched_in_slices() -> None:
    placed = {**full(), "n90": [pod("cheap", {"cpu": "4"}, priority=-5)]}
    scheduler = make_scheduler(placed=placed)
    scheduler.pod_changed(None, pod("p", {"cpu": "4"}, priority=9), 0.0)
    step, slices = finish(scheduler)
    assert isinstance(step, Unplaced)
    assert step.plan is not None
    assert [one.uid for one in step.plan.victims] == ["cheap"]
    assert slices > 4 * NODES // SLICE


def test_room_freed_during_preemption_avoids_eviction() -> None:
    scheduler = make_scheduler(placed=full())
    scheduler.pod_changed(None, pod("p", {"cpu": "4"}, priority=9), 0.0)

    def go(number: int) -> None:
        if number == 5:
            scheduler.pod_changed(scheduler.state.pods["v77"].pod, None, 0.0)

    step, slices = finish(scheduler, go)
    assert slices > 5
    assert isinstance(step, Assigned)
    assert step.node == "n77"


def test_victims_are_rechecked_at_the_end() -> None:
    placed = {**full(), "n0": [pod("cheap", {"cpu": "4"}, priority=-5)]}
    scheduler = make_scheduler(placed=placed)
    scheduler.pod_changed(None, pod("p", {"cpu": "4"}, priority=7), 0.0)

    def replace(number: int) -> None:
        if number == 6:
            late = pod("dear", {"cpu": "4"}, priority=8, nodeName="n0")
            scheduler.pod_changed(None, late, 0.0)
            scheduler.pod_changed(scheduler.state.pods["cheap"].pod, None, 0.0)

    step, slices = finish(scheduler, replace)
    assert slices > 6
    assert isinstance(step, Unplaced)
    assert step.plan is not None
    assert step.plan.node != "n0"


def test_node_removed_during_preemption_is_not_chosen() -> None:
    placed = {**full(), "n0": [pod("cheap", {"cpu": "4"}, priority=-5)]}
    scheduler = make_scheduler(placed=placed)
    scheduler.pod_changed(None, pod("p", {"cpu": "4"}, priority=7), 0.0)
    step, _ = finish(scheduler, lambda number: scheduler.node_gone("n0", 0.0) if number == 6 else None)
    assert isinstance(step, Unplaced)
    assert step.plan is not None
    assert step.plan.node != "n0"


def test_nomination_by_others_counts_at_once() -> None:
    scheduler = make_scheduler(0, 1)
    plain, status = (
        pod("p", {"cpu": "3"}, priority=5, schedulingGates=[{"name": "x.org/a"}]),
        {"nominatedNodeName": "n0"},
    )
    named = Pod.decode(msgspec.json.encode({**msgspec.json.decode(plain.raw), "status": status}))
    scheduler.pod_changed(None, plain, 0.0)
    scheduler.pod_changed(plain, named, 0.0)
    assert list(scheduler.state.nominated) == ["n0"]
    scheduler.pod_changed(None, pod("low", {"cpu": "2"}), 0.0)
    step, _ = finish(scheduler)
    assert isinstance(step, Assigned)
    assert step.node == "n1"
    scheduler.pod_changed(named, plain, 0.0)
    assert not scheduler.state.nominated


def test_pod_nominated_to_removed_node_preempts_elsewhere() -> None:
    placed = {"n0": [pod("low", {"cpu": "4"})], "n1": [pod("middle", {"cpu": "4"}, priority=1)]}
    scheduler = make_scheduler(0, 1, placed=placed)
    scheduler.pod_changed(None, pod("p", {"cpu": "4"}, priority=9), 0.0)
    first, _ = finish(scheduler)
    assert isinstance(first, Unplaced)
    assert first.plan is not None
    assert first.plan.node == "n0"
    scheduler.room_made(first.queued, first.plan, 0.0, succeeded=True)
    again = scheduler.step(5.0)
    assert isinstance(again, Unplaced)
    assert again.plan is None
    scheduler.node_gone("n0", 10.0)
    second = scheduler.step(10.0)
    assert isinstance(second, Unplaced)
    assert second.plan is not None
    assert (second.plan.node, second.nominated) == ("n1", "n1")


@pytest.mark.parametrize(("policy", "kept"), [("Never", True), ("PreemptLowerPriority", False)])
def test_pod_that_never_preempts_keeps_foreign_nomination(policy: str, kept: bool) -> None:
    scheduler = make_scheduler(0, placed={"n0": [pod("other", {"cpu": "4"}, priority=9)]})
    asked = {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "status": {"nominatedNodeName": "n0"}}
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "priority": 5, "preemptionPolicy": policy}
    scheduler.pod_changed(None, Pod.decode(msgspec.json.encode({**asked, "spec": spec})), 0.0)
    step, _ = finish(scheduler)
    assert isinstance(step, Unplaced)
    assert step.nominated == (None if kept else "")
    assert (step.queued.nominated, list(scheduler.state.nominated)) == (("n0", ["n0"]) if kept else ("", []))
