"""Which pods are garbage, as tables."""

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
    """A pod; with a `grace` it is being deleted."""
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
def test_the_evicted_and_then_the_oldest_go_beyond_the_threshold(threshold: int, expected: list[str]) -> None:
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
def test_what_was_asked_for_counts_as_gone_and_is_asked_for_again(
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
def test_a_node_is_out_of_service_by_its_taint_and_silence(found: Node, expected: bool) -> None:
    assert is_out_of_service(found) is expected


def test_only_pods_being_deleted_go_with_their_node_out_of_service() -> None:
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
def test_a_node_is_missing_from_when_it_was_missed(
    nodes: set[str], since: Mapping[str, float], expected: Mapping[str, float]
) -> None:
    pods = [pod("a"), pod("b", node="m"), pod("c", node="")]
    assert missing(pods, nodes, since, 100.0) == expected


def test_pods_of_nodes_that_are_gone_are_orphans() -> None:
    assert names(orphans([pod("a"), pod("b", node="m"), pod("c", node="")], {"m"})) == ["b"]


def test_the_pods_of_a_node_go_together_but_for_those_that_are_done_with() -> None:
    pods = [pod("a"), pod("b", node="m"), pod("c"), pod("d", "Failed", grace=0)]
    found = by_node(Victim(one, "") for one in pods)
    assert {node: names(victims) for node, victims in found.items()} == {"n": ["a", "c"], "m": ["b"]}


def test_what_goes_anyway_does_not_count_as_ended() -> None:
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
def test_what_only_finalizers_keep_is_let_alone(found: Pod, expected: bool) -> None:
    assert is_done_with(found) is expected
