"""Which pods are garbage."""

from collections.abc import Mapping

import pytest

from controller_manager.common.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Taint
from controller_manager.common.api.model import ObjectMeta
from controllers.pod_garbage_collector import (
    Victim,
    by_node,
    is_done_with,
    is_out_of_service,
    missing,
    orphans,
    out_of_service,
    surplus,
    unscheduled,
    without,
)


def pod(
    name: str, phase: str = "Running", *, node: str = "n", born: str = "", grace: int | None = None, reason: str = ""
) -> Pod:
    """Return a pod; with a `grace` it is terminating."""
    meta = ObjectMeta(
        namespace="default",
        name=name,
        uid=f"u-{name}",
        creation_timestamp=born or "2026-01-01T00:00:00Z",
        deletion_timestamp=None if grace is None else "2026-01-01T00:10:00Z",
        deletion_grace_period_seconds=grace,
    )
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase=phase, reason=reason))


def node(name: str, *taints: str, ready: str = "False") -> Node:
    conditions = (NodeCondition(type="Ready", status=ready),) if ready else ()
    spec = NodeSpec(taints=tuple(Taint(key=key, effect="NoExecute") for key in taints))
    return Node(metadata=ObjectMeta(name=name), spec=spec, status=NodeStatus(conditions=conditions))


def names(victims: object) -> list[str]:
    return [victim.pod.metadata.name for victim in victims]


OUT = "node.kubernetes.io/out-of-service"
ENDED = [
    pod("d", "Succeeded", born="2026-01-01T00:00:04Z"),
    pod("c", "Failed", born="2026-01-01T00:00:03Z"),
    pod("runs", born="2026-01-01T00:00:00Z"),
    pod("waits", "Pending", born="2026-01-01T00:00:00Z"),
    pod("unknown", "Unknown", born="2026-01-01T00:00:00Z"),
    pod("b2", "Failed", born="2026-01-01T00:00:02Z"),
    pod("b1", "Succeeded", born="2026-01-01T00:00:02Z"),
    pod("evicted", "Failed", born="2026-01-01T00:00:09Z", reason="Evicted"),
    pod("fooled", "Succeeded", born="2026-01-01T00:00:09Z", reason="Evicted"),
]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (-1, []),
        (0, []),
        (7, []),
        (6, []),
        (5, ["evicted"]),
        (4, ["evicted", "b1"]),
        (3, ["evicted", "b1", "b2"]),
        (1, ["evicted", "b1", "b2", "c", "d"]),
    ],
)
def test_evicted_then_oldest_pods_exceed_threshold(threshold: int, expected: list[str]) -> None:
    assert names(surplus(ENDED, threshold)) == expected


@pytest.mark.parametrize(
    ("threshold", "asked", "expected"),
    [
        (5, {"u-evicted"}, ["evicted"]),
        (4, {"u-evicted"}, ["evicted", "b1"]),
        (4, {"u-d", "u-gone"}, ["d", "evicted"]),
        (6, {"u-runs"}, []),
        (0, {"u-d"}, []),
    ],
)
def test_requested_deletions_count_as_done_and_are_repeated(
    threshold: int, asked: set[str], expected: list[str]
) -> None:
    assert names(surplus(ENDED, threshold, asked)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node("n", OUT), True),
        (node("n", OUT, ready="Unknown"), True),
        (node("n", OUT, ready=""), True),
        (node("n", OUT, ready="True"), False),
        (node("n", "other"), False),
    ],
)
def test_node_is_out_of_service_by_taint_and_readiness(found: Node, expected: bool) -> None:
    assert is_out_of_service(found) is expected


def test_only_terminating_pods_leave_out_of_service_nodes() -> None:
    pods = [pod("stays"), pod("goes", grace=30), pod("elsewhere", node="m", grace=30), pod("bare", node="", grace=0)]
    assert names(out_of_service(pods, [node("n", OUT), node("m"), node("idle", OUT)])) == ["goes"]
    assert names(unscheduled(pods)) == ["bare"]


@pytest.mark.parametrize(
    ("nodes", "since", "expected"),
    [
        ({"n", "m"}, {}, {}),
        ({"n"}, {}, {"m": 100.0}),
        ({"n"}, {"m": 70.0}, {"m": 70.0}),
        ({"n", "m"}, {"m": 70.0}, {}),
        ({"n"}, {"m": 70.0, "old": 10.0}, {"m": 70.0}),
        (set(), {"n": 1.0}, {"m": 100.0, "n": 1.0}),
    ],
)
def test_missing_nodes_keep_first_missed_time(
    nodes: set[str], since: Mapping[str, float], expected: Mapping[str, float]
) -> None:
    pods = [pod("a"), pod("b", node="m"), pod("c", node="")]
    assert missing(pods, nodes, since, 100.0) == expected


def test_pods_of_missing_nodes_are_orphans() -> None:
    assert names(orphans([pod("a"), pod("b", node="m"), pod("c", node="")], {"m"})) == ["b"]


def test_victims_are_grouped_by_node_except_finished_ones() -> None:
    pods = [pod("a"), pod("b", node="m"), pod("c"), pod("d", "Failed", grace=0)]
    found = by_node(Victim(one, "") for one in pods)
    assert {node: names(victims) for node, victims in found.items()} == {"n": ["a", "c"], "m": ["b"]}


def test_pods_already_chosen_are_left_out() -> None:
    lost = [Victim(pod("a"), "x")]
    assert names(Victim(one, "") for one in without([pod("a"), pod("b")], lost)) == ["b"]
    assert names(Victim(one, "") for one in without([pod("a")], [])) == ["a"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("p", "Failed", grace=0), True),
        (pod("p", "Succeeded", grace=0), True),
        (pod("p", "Failed", grace=30), False),
        (pod("p", "Failed"), False),
        (pod("p", "Running", grace=0), False),
    ],
)
def test_pods_held_by_finalizers_only_are_skipped(found: Pod, expected: bool) -> None:
    assert is_done_with(found) is expected
