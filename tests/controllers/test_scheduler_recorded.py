"""The scheduler places pods as kube-scheduler 1.36 did on the same clusters: `recorded/scheduler.jsonl`.

A row has a cluster, a pod, and the node that kube-scheduler chose (empty: none). The best node must match;
kube-scheduler chooses randomly among equal ones. `recorded/placements.jsonl` has pods of several namespaces and
priorities, with the preempted pods and the message if no node fits.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apiserver_stub.kinds.strategies.pods import merge_label_keys
from controller_manager.common.api.core import Pod, PodStatus
from controller_manager.common.api.policy import PodDisruptionBudget
from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Choice, Decider, NoFit
from tests.controllers.scheduling_builders import cluster, node, place, pod, preempt, wanted

Row = Mapping[str, Any]
NAMESPACES = {
    "default": {"env": "none"},
    "team-a": {"team": "a", "env": "prod"},
    "team-b": {"team": "b", "env": "prod"},
}


def recorded(name: str) -> list[Row]:
    text = Path(__file__).with_name("recorded").joinpath(name).read_text()
    return [json.loads(line) for line in text.splitlines()]


ROWS, PLACEMENTS = recorded("scheduler.jsonl"), recorded("placements.jsonl")


def made(row: Row) -> ClusterState:
    state = cluster(
        node(
            one["name"],
            one["labels"],
            status={"allocatable": one["allocatable"]},
            taints=one["taints"],
            unschedulable=one["unschedulable"],
        )
        for one in row["nodes"]
    )
    for number, one in enumerate(row["placed"]):
        place(state, one["node"], pod(f"placed-{number}", labels=one["labels"], **one["spec"]))
    return state


@pytest.mark.parametrize("row", ROWS, ids=map(str, range(len(ROWS))))
def test_placement_equals_recorded_kube_scheduler(row: Row) -> None:
    state, want = made(row), wanted(pod("p", labels=row["pod"]["labels"], **row["pod"]["spec"]))
    decider = Decider(state)
    found = decider.decide(want)
    if not row["node"]:
        assert isinstance(found, NoFit)
        return
    assert isinstance(found, Choice)
    best = decider.ranked(want)
    assert row["node"] in [name for name, score in best.items() if score == max(best.values())]


def placed_as(name: str, one: Row) -> Pod:
    """Return a pod as the API server stores it."""
    meta, spec = {"namespace": one["namespace"]}, copy.deepcopy(one["spec"])
    merge_label_keys(spec, one["labels"])
    found = pod(name, labels=one["labels"], meta=meta, **spec)
    if "started" not in one:
        return found
    return msgspec.structs.replace(found, status=PodStatus(start_time=one["started"]))


def cluster_of(row: Row) -> ClusterState:
    state = made({**row, "placed": ()})
    for name, labels in NAMESPACES.items():
        state.set_namespace(name, labels)
    for number, one in enumerate(row["placed"]):
        place(state, one["node"], placed_as(f"placed-{number}", one))
    return state


def budget(number: int, one: Row) -> PodDisruptionBudget:
    meta = {"name": f"b{number}", "namespace": "default", "uid": str(number)}
    tree = {"metadata": meta, "spec": {"selector": one["selector"]}, "status": {"disruptionsAllowed": one["allowed"]}}
    return PodDisruptionBudget.decode(msgspec.json.encode(tree))


@pytest.mark.parametrize("row", PLACEMENTS, ids=map(str, range(len(PLACEMENTS))))
def test_preemption_equals_recorded_kube_scheduler(row: Row) -> None:
    state, want = cluster_of(row), wanted(placed_as("p", row["pod"]))
    decider = Decider(state)
    found = decider.decide(want)
    if row["node"]:
        best = decider.ranked(want)
        assert row["node"] in [name for name, score in best.items() if score == max(best.values())]
        return
    assert isinstance(found, NoFit)
    assert found.message.rstrip(".") == row["message"]
    plan = preempt(decider, want, found, *(budget(*one) for one in enumerate(row["budgets"])))
    if isinstance(plan, str):
        assert not row["victims"]
        assert plan == row["preemption"]
    else:
        assert (plan.node, sorted(one.uid for one in plan.victims)) == (row["nominated"], row["victims"])
