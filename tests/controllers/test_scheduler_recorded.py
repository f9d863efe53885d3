"""The scheduler places pods as kube-scheduler 1.36 did on the same clusters: `recorded/scheduler.jsonl`.

A row is a cluster, a pod, and the node to which kube-scheduler brought it, empty if it found none. Where one node is
better than all others, it is that one; equal ones are taken by chance there.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controllers.scheduler.cluster_state import ClusterState
from controllers.scheduler.decide import Choice, Decider, NoFit
from tests.controllers.scheduling import cluster, node, place, pod, wanted

Row = Mapping[str, Any]
ROWS: list[Row] = [
    json.loads(line)
    for line in Path(__file__).with_name("recorded").joinpath("scheduler.jsonl").read_text().splitlines()
]


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
def test_a_pod_goes_where_kube_scheduler_brought_it(row: Row) -> None:
    state, want = made(row), wanted(pod("p", labels=row["pod"]["labels"], **row["pod"]["spec"]))
    decider = Decider(state)
    found = decider.decide(want)
    if not row["node"]:
        assert isinstance(found, NoFit)
        return
    assert isinstance(found, Choice)
    best = decider.ranked(want)
    assert row["node"] in [name for name, score in best.items() if score == max(best.values())]
