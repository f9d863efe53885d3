"""Victims of preemption."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Pod
from controller_manager.common.api.policy import PodDisruptionBudget
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Decider, NoFit
from tests.controllers.scheduling_builders import cluster, node, plan_preemption, pod, preempt, wanted

NO_VICTIMS = "preemption victims found"


def pod_of(name: str, priority: int, cpu: str = "2", started: str = "", **more: Any) -> Pod:
    made = pod(name, {"cpu": cpu}, priority=priority, **more)
    if not started:
        return made
    tree = msgspec.json.decode(made.raw)
    tree["status"] = {"startTime": started}
    return Pod.decode(msgspec.json.encode(tree))


def budget(allowed: int, app: str = "web") -> PodDisruptionBudget:
    tree = {
        "metadata": {"name": app, "namespace": "default", "uid": app},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
    return PodDisruptionBudget.decode(msgspec.json.encode(tree))


WEB: Mapping[str, str] = {"app": "web"}
ROWS: Sequence[tuple[str, Mapping[str, Sequence[Pod]], Pod, Sequence[PodDisruptionBudget], Any]] = (
    ("one of two", {"a": [pod_of("1", 1), pod_of("2", 2)]}, pod_of("p", 9), (), ("a", ["1"])),
    ("both", {"a": [pod_of("1", 1), pod_of("2", 2)]}, pod_of("p", 9, "4"), (), ("a", ["1", "2"])),
    ("no pod of the same priority", {"a": [pod_of("1", 9), pod_of("2", 9)]}, pod_of("p", 9), (), NO_VICTIMS),
    ("not enough", {"a": [pod_of("1", 1), pod_of("2", 9)]}, pod_of("p", 9, "4"), (), "1 Insufficient cpu."),
    (
        "the last started pod",
        {"a": [pod_of("1", 1, started="2026-01-01T00:00:00Z"), pod_of("2", 1, started="2026-01-02T00:00:00Z")]},
        pod_of("p", 9),
        (),
        ("a", ["2"]),
    ),
    ("the least important", {"a": [pod_of("1", 5, "4")], "b": [pod_of("2", 4, "4")]}, pod_of("p", 9), (), ("b", ["2"])),
    (
        "fewer",
        {"a": [pod_of("1", 1), pod_of("2", 1)], "b": [pod_of("3", 1, "4")]},
        pod_of("p", 9, "4"),
        (),
        ("b", ["3"]),
    ),
    (
        "the unprotected pod",
        {"a": [pod_of("1", 1, "4", labels=WEB)], "b": [pod_of("2", 4, "4")]},
        pod_of("p", 9),
        (budget(0),),
        ("b", ["2"]),
    ),
    (
        "protected, but the only choice",
        {"a": [pod_of("1", 1, "4", labels=WEB)]},
        pod_of("p", 9),
        (budget(0),),
        ("a", ["1"]),
    ),
    (
        "fewer protected pods on one node",
        {"a": [pod_of("1", 1, labels=WEB), pod_of("2", 1)]},
        pod_of("p", 9),
        (budget(0),),
        ("a", ["2"]),
    ),
    (
        "room in the budget",
        {"a": [pod_of("1", 1, "4", labels=WEB)], "b": [pod_of("2", 4, "4")]},
        pod_of("p", 9),
        (budget(1),),
        ("a", ["1"]),
    ),
    ("never", {"a": [pod_of("1", 1, "4")]}, pod_of("p", 9, preemptionPolicy="Never"), (), "not eligible"),
    (
        "not sufficient",
        {"a": [pod_of("1", 1, "4")]},
        pod_of("p", 9, nodeSelector={"d": "x"}),
        (),
        "Preemption is not helpful",
    ),
    (
        "not sufficient on any node",
        {"a": [pod_of("1", 1, "4")]},
        pod_of("p", 9, nodeSelector={"d": "x"}),
        (),
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    ),
    (
        "memory of pods with higher priority",
        {"a": [pod("1", {"memory": "8Gi"}, priority=9), pod("2", {"cpu": "4"}, priority=1)]},
        pod("p", {"cpu": "1", "memory": "1Gi"}, priority=5),
        (),
        "1 Insufficient memory.",
    ),
    (
        "memory of pods with lower priority",
        {"a": [pod("1", {"memory": "8Gi"}, priority=1), pod("2", {"cpu": "4"}, priority=9)]},
        pod("p", {"memory": "1Gi"}, priority=5),
        (),
        ("a", ["1"]),
    ),
)


@pytest.mark.parametrize(("placed", "one", "budgets", "found"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_victims_by_priority_and_budget(placed: Any, one: Pod, budgets: Any, found: Any) -> None:
    state = cluster([node(name) for name in placed], placed)
    before = {uid: each.node for uid, each in state.pods.items()}
    result = plan_preemption(state, one, *budgets)
    assert (found in result) if isinstance(found, str) else (result == found)
    assert {uid: each.node for uid, each in state.pods.items()} == before


def test_pods_with_anti_affinity_become_victims() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": WEB}}
    dislikes = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    state = cluster([node("a")], {"a": [pod_of("1", 1, "1", affinity=dislikes), pod_of("2", 1, "1")]})
    assert plan_preemption(state, pod_of("p", 9, "1", labels=WEB)) == ("a", ["1"])


def test_preemption_reduces_overfull_domains() -> None:
    constraint = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
    asked = pod_of("p", 9, "1", labels=WEB, topologySpreadConstraints=[constraint])
    nodes = [node("a"), node("b", status={"allocatable": {"pods": "0"}})]
    state: ClusterState = cluster(nodes, {"a": [pod_of("1", 1, "1", labels=WEB), pod_of("2", 1, "1")]})
    assert plan_preemption(state, asked) == ("a", ["1"])
    assert plan_preemption(state, asked) == ("a", ["1"])


def test_waiting_for_victim_preempts_no_other() -> None:
    state = cluster([node("a")], {"a": [pod_of("1", 1, "4")]})
    state.pods["1"].doomed = True

    decider, want = Decider(state), wanted(pod_of("p", 9), nominated="a")
    why = decider.decide(want)
    assert isinstance(why, NoFit)
    assert "terminating" in str(preempt(decider, want, why))
