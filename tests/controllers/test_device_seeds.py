"""Device allocation in a small simulated cluster with random changes.

Invariants at every step, by the state of the server and pending writes: a device has one claim unless it has admin
access, counters and shared capacity are never exceeded, and a bound pod has its claims. At the end, after all updates
are delivered: no pod that fits is waiting.
"""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import Pod
from controller_manager.common.api.devices import ConsumerReference, ResourceClaim, ResourceSlice
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.resource import Key, key_of
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Choice, Decider
from controllers.scheduler.devices import ClaimPlan, Devices, PodDevices
from controllers.scheduler.scheduler import Assigned, Scheduler
from controllers.shared.device_claims import devices_of
from tests.controllers.device_builders import claim, device, device_class, device_slice, pod_with_claims, request
from tests.controllers.scheduling_builders import node, wanted

STEPS = 80
SLOTS, MEMORY = 4, 8
PARTS = ("p0", "p1", "p2")


class FakeCluster:
    """A server with claims and pods, and the scheduler with its cached claims."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.claims: dict[Key, ResourceClaim] = {}
        self.cached: dict[Key, ResourceClaim] = {}
        self.devices = Devices(claim=self.cached.get, device_class={"any": device_class()}.get)
        self.scheduler = Scheduler(Decider(ClusterState()), ["default-scheduler"], devices=self.devices)
        self.pods: dict[str, Pod] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.now, self.made, self.version = 0.0, 0, 1
        for name in "ab":
            self.scheduler.node_changed(node(name), self.now)
            self.publish(name)

    def publish(self, name: str) -> None:
        consumed = {"consumesCounters": [{"counterSet": "set", "counters": {"slots": {"value": "2"}}}]}
        parts = [device(name, **consumed) for name in PARTS]
        shared = device("shared", {"memory": f"{MEMORY}Gi"}, allowMultipleAllocations=True)
        counters = [{"name": "set", "counters": {"slots": {"value": str(SLOTS)}}}]
        for one in (
            device_slice(f"{name}-d", *parts, shared, "plain", pool=name, count=2, nodeName=name),
            device_slice(f"{name}-c", pool=name, count=2, sharedCounters=counters),
        ):
            self.slices[one.metadata.name] = one
            self.devices.pools.set_slice(one.metadata.name, one)

    def write(self, one: ResourceClaim) -> ResourceClaim:
        """Store a claim on the server; the scheduler may see it later."""
        self.version += 1
        one = replace(one, metadata=replace(one.metadata, resource_version=str(self.version)))
        self.claims[key_of(one)] = one
        return one

    def deliver(self) -> None:
        for key in sorted(self.cached.keys() | self.claims.keys()):
            if self.cached.get(key) is not self.claims.get(key) and self.chance.random() < 0.7:
                self.deliver_claim(key)

    def deliver_claim(self, key: Key) -> None:
        before, after = self.cached.pop(key, None), self.claims.get(key)
        if after is not None:
            self.cached[key] = after
        self.scheduler.claim_changed(key, before, after, self.now)

    def add_pod(self) -> None:
        self.made += 1
        asked: Any = self.chance.choice((
            {}, {"count": 2}, {"adminAccess": True}, {"capacity": {"requests": {"memory": "3Gi"}}},
        ))  # fmt: skip
        name = f"c{self.made}"
        self.write(claim(name, request("r", **asked)))
        names = [name, self.chance.choice(sorted(self.claims)).name] if self.chance.random() < 0.3 else [name]
        one = pod_with_claims(*dict.fromkeys(names), name=f"p{self.made}")
        self.pods[one.metadata.uid] = one
        self.scheduler.pod_changed(None, one, self.now)

    def delete_pod(self) -> None:
        if not self.pods:
            return
        uid = self.chance.choice(sorted(self.pods))
        self.scheduler.pod_changed(self.pods.pop(uid), None, self.now)
        for one in tuple(self.claims.values()):
            left = tuple(each for each in one.status.reserved_for if each.uid != uid)
            if left != one.status.reserved_for:
                allocation = one.status.allocation if left else None
                self.write(replace(one, status=replace(one.status, reserved_for=left, allocation=allocation)))

    def step(self) -> None:
        self.now += self.chance.choice((0.0, 0.1, 5.0))
        found = self.scheduler.step(self.now)
        self.check()
        if isinstance(found, Assigned):
            self.bind(found)

    def bind(self, step: Assigned) -> None:
        uid = step.queued.uid
        for one in step.devices:
            if self.chance.random() < 0.15 or not self.reserve(uid, one):
                self.scheduler.not_bound(uid, self.now, again=True)
                return
        before = self.pods[uid]
        for entry in before.spec.resource_claims:
            reserved = self.claims[Key("default", entry.resource_claim_name)].status.reserved_for
            assert uid in [one.uid for one in reserved], "a pod comes without its claim"
        tree = msgspec.json.decode(before.raw)
        tree["spec"]["nodeName"] = step.node
        self.pods[uid] = after = Pod.decode(msgspec.json.encode(tree))
        self.scheduler.bound(uid)
        self.scheduler.pod_changed(before, after, self.now)

    def reserve(self, uid: str, plan: ClaimPlan) -> bool:
        one = self.claims[key_of(plan.claim)]
        allocation = one.status.allocation
        if (allocation is None) == (plan.allocation is None):
            return False
        mine = ConsumerReference(resource="pods", name=uid, uid=uid)
        reserved = (*one.status.reserved_for, mine)
        status = replace(one.status, allocation=allocation or plan.allocation, reserved_for=reserved)
        self.devices.usage.written(self.write(replace(one, status=status)))
        self.check()
        return True

    def check(self) -> None:
        allocated: Counter[tuple[str, str]] = Counter()
        memory: Counter[str] = Counter()
        for one in self.claims.values():
            for each in devices_of(one):
                if each.admin_access:
                    continue
                if each.share_id is None:
                    allocated[each.pool, each.device] += 1
                memory[each.pool] += int(parse(each.consumed_capacity.get("memory", "0")).number)
        assert all(number == 1 for number in allocated.values()), "a device is had twice"
        for pool in "ab":
            assert sum(2 for of, name in allocated if of == pool and name in PARTS) <= SLOTS
            assert memory[pool] <= MEMORY << 30

    def settle(self) -> None:
        for _ in range(60):
            self.now += 20.0
            for key in sorted(self.cached.keys() | self.claims.keys()):
                self.deliver_claim(key)
            self.step()


@pytest.mark.parametrize("seed", range(200))
def test_random_hours_allocate_once_and_leave_no_pod_waiting(seed: int) -> None:
    fake = FakeCluster(seed)
    for _ in range(STEPS):
        fake.chance.choice((fake.add_pod, fake.delete_pod, fake.deliver, fake.step, fake.step, fake.step))()
    fake.settle()
    allocated = [one for each in fake.claims.values() for one in devices_of(each) if not one.admin_access]
    assert fake.devices.usage.whole.total() + fake.devices.usage.shared.total() == len(allocated)
    for queued in fake.scheduler.queue.pods.values():
        found = PodDevices(queued.pod, fake.devices)
        others = {"attached": (found,), "hindrance": found.hindrance}
        assert not isinstance(Decider(fake.scheduler.state).decide(wanted(queued.pod, **others)), Choice)
