"""The scheduler without a clock in a small simulated cluster with random changes.

Invariants at every step: no node is overcommitted, anti-affinity holds in both directions, and a pod is bound once. At
the end, after all updates are delivered: no pod that fits is waiting.
"""

import random
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Node, Pod
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Choice, Decider
from controllers.scheduler.scheduler import Assigned, Scheduler, Unplaced
from tests.controllers.scheduling_builders import node, pod, wanted

STEPS = 120
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def far(key: str) -> Any:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


class FakeCluster:
    """A server with nodes and pods, and the scheduler with its cached state."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler(Decider(ClusterState()), ["default-scheduler"])
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.now = 0.0
        self.made = 0

    def add_node(self) -> None:
        name = f"n{self.chance.randrange(5)}"
        taints = [{"key": "k", "effect": "NoSchedule"}] if self.chance.random() < 0.2 else []
        one = node(
            name,
            {ZONE: self.chance.choice("xy")}
            if name not in self.nodes
            else dict(self.nodes[name].metadata.labels or {}),
            status={"allocatable": {"cpu": "4", "pods": "6"}},
            taints=taints,
        )
        self.nodes[name] = one
        self.scheduler.node_changed(one, self.now)

    def add_pod(self) -> None:
        self.made += 1
        spec: dict[str, Any] = {"priority": self.chance.choice((0, 0, 10, 20))}
        if self.chance.random() < 0.3:
            spec["affinity"] = far(self.chance.choice((HOST, ZONE)))
        requests = {"cpu": self.chance.choice(("500m", "1", "2", "4"))}
        labels = {"app": self.chance.choice(("web", "db", "cache"))}
        self.pods[f"p{self.made}"] = one = pod(f"p{self.made}", requests, labels=labels, **spec)
        self.scheduler.pod_changed(None, one, self.now)

    def delete_pod(self) -> None:
        if self.pods:
            self.drop(self.chance.choice(sorted(self.pods)))

    def drop(self, uid: str) -> None:
        self.scheduler.pod_changed(self.pods.pop(uid), None, self.now)

    def step(self) -> None:
        self.now += self.chance.choice((0.0, 0.1, 5.0))
        found = self.scheduler.step(self.now)
        if isinstance(found, Assigned):
            self.bind(found)
        elif isinstance(found, Unplaced) and found.plan is not None:
            succeeded = self.chance.random() < 0.8
            self.scheduler.room_made(found.queued, found.plan, self.now, succeeded=succeeded)
            for victim in found.plan.victims if succeeded else ():
                if victim.uid in self.pods:
                    self.drop(victim.uid)

    def bind(self, step: Assigned) -> None:
        before = self.pods[step.queued.uid]
        assert not before.spec.node_name, "a pod that has a node was given one"
        if self.chance.random() < 0.2:
            self.scheduler.not_bound(step.queued.uid, self.now, again=True)
            return
        tree = msgspec.json.decode(before.raw)
        tree["spec"]["nodeName"] = step.node
        self.pods[step.queued.uid] = after = Pod.decode(msgspec.json.encode(tree))
        self.scheduler.bound(step.queued.uid)
        self.scheduler.pod_changed(before, after, self.now)

    def check(self) -> None:
        state = self.scheduler.state
        for info in state.nodes.values():
            assert info.cpu <= 4000, "a node has more than it offers"
            assert len(info.pods) <= 6
            assert info.cpu == sum(one.requirements.requests.cpu for one in info.pods.values())
        for one in state.pods.values():
            for term in one.requirements.anti_affinity:
                value = state.nodes[one.node].labels[term.topology_key]
                near = (
                    other
                    for other in state.pods.values()
                    if other is not one and state.nodes[other.node].labels[term.topology_key] == value
                )
                assert not any(state.selects(term, other.requirements) for other in near), "pods are too near"

    def settle(self) -> None:
        for _ in range(200):
            self.now += 20.0
            self.step()
            self.check()


@pytest.mark.parametrize("seed", range(200))
def test_random_hours_place_pods_legally_and_completely(seed: int) -> None:
    fake = FakeCluster(seed)
    for _ in range(3):
        fake.add_node()
    for _ in range(STEPS):
        fake.chance.choice((fake.add_pod, fake.delete_pod, fake.add_node, fake.step, fake.step, fake.step))()
        fake.check()
    fake.settle()
    # No waiting pod fits a fresh state without nominated pods.
    fresh = ClusterState()
    for each in fake.nodes.values():
        fresh.set_node(each)
    for placed in fake.scheduler.state.pods.values():
        fresh.place(placed)
    for queued in fake.scheduler.queue.pods.values():
        found = Decider(fresh).decide(wanted(queued.pod))
        assert not isinstance(found, Choice), f"{queued.uid} fits on {found}"
