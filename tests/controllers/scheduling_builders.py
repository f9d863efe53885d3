"""Builders of nodes, pods and clusters for tests of the scheduler."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from controller_manager.common.api.core import Node, Pod
from controller_manager.common.api.policy import PodDisruptionBudget
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Choice, Decider, NoFit, Wanted
from controllers.scheduler.node_info import PlacedPod
from controllers.scheduler.pod_requirements import requirements_of
from controllers.scheduler.preemption import PreemptionPlan, make_room
from controllers.scheduler.time_slice import TimeSlice

Tree = Mapping[str, Any]


def node(name: str, labels: Tree | None = None, *, status: Tree | None = None, **spec: Any) -> Node:
    """Return a node with 4 CPUs, 8 GiB and room for 110 pods; its hostname is its name."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", **(status or {}).get("allocatable", {})}
    tree = {
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {**(status or {}), "allocatable": allocatable},
    }
    return Node.decode(msgspec.json.encode(tree))


def pod(name: str = "p", requests: Tree | None = None, *, labels: Tree | None = None, meta: Tree | None = None,
        **spec: Any) -> Pod:  # fmt: skip
    """Return a pod with one container, in the namespace `default`."""
    container = {"name": "c", "image": "example.org/app:1", "resources": {"requests": requests or {}}}
    tree = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}, **(meta or {})},
        "spec": {"containers": [container], **spec},
    }
    return Pod.decode(msgspec.json.encode(tree))


def place(state: ClusterState, on: str, one: Pod) -> None:
    """Place a pod on a node."""
    state.place(PlacedPod(one, on, requirements_of(one)))


def cluster(nodes: Iterable[Node], placed: Mapping[str, Iterable[Pod]] | None = None) -> ClusterState:
    """Return a cluster of these nodes, with pods by node name."""
    state = ClusterState()
    for one in nodes:
        state.set_node(one)
    for name, pods in (placed or {}).items():
        for each in pods:
            place(state, name, each)
    return state


def wanted(one: Pod, **more: Any) -> Wanted:
    """Return the scheduling request of a pod."""
    return Wanted(one.metadata.uid, requirements_of(one), **more)


def choose_node(state: ClusterState, one: Pod, **more: Any) -> str:
    """Return the node for a pod, or the message if there is none."""
    found = Decider(state).decide(wanted(one, **more))
    return found.node if isinstance(found, Choice) else found.message


def allowed_nodes(state: ClusterState, one: Pod) -> set[str]:
    """Return the nodes that the pod fits."""
    found = Decider(state).decide(wanted(one))
    if not isinstance(found, Choice):
        return set()
    every = {each.name for each in state.order}
    return {name for name in every if _fits(state, name, one)}


def _fits(state: ClusterState, name: str, one: Pod) -> bool:
    decider, want = Decider(state), wanted(one)
    return decider.fits(want, state.nodes[name], decider.relations(want))


def preempt(decider: Decider, want: Wanted, why: NoFit, *budgets: PodDisruptionBudget) -> PreemptionPlan | str:
    """Return the preemption plan for a pod, or the reason why there is none."""
    found = make_room(decider, want, why, budgets)
    plan_preemption = found if isinstance(found, str) else found.go_on(TimeSlice())
    assert plan_preemption is not None
    return plan_preemption


def plan_preemption(state: ClusterState, one: Pod, *budgets: PodDisruptionBudget) -> tuple[str, list[str]] | str:
    """Return the node and the victims of a preemption, or the reason why there is none."""
    decider, want = Decider(state), wanted(one)
    why = decider.decide(want)
    assert isinstance(why, NoFit)
    found = preempt(decider, want, why, *budgets)
    if isinstance(found, str):
        return found
    return found.node, sorted(victim.uid for victim in found.victims)
