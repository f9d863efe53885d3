"""Deletion order of pods: one difference at a time, in order of precedence."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import Container, ContainerStatus, Pod, PodSpec, PodStatus
from controller_manager.common.api.model import ObjectMeta
from controllers.shared.pod_ranking import DELETION_COST, first_to_go, progress_of

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
OLD, MIDDLE, YOUNG = "2026-01-01T00:00:00Z", "2026-01-01T11:00:00Z", "2026-01-01T11:59:59Z"


def pod(
    uid: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: str | None = OLD,
    cost: str | None = None,
    restarts: tuple[int, int] = (0, 0),
    created: str | None = OLD,
    ended: bool = False,
) -> Pod:
    conditions = () if ready is None else (Condition(type="Ready", status="True", last_transition_time=ready or None),)
    sidecar = Container(name="side", restart_policy="Always")
    status = PodStatus(
        phase="Failed" if ended else phase,
        conditions=conditions,
        container_statuses=(ContainerStatus(name="main", restart_count=restarts[0]),),
        init_container_statuses=(
            ContainerStatus(name="side", restart_count=restarts[1]),
            ContainerStatus(name="init", restart_count=99),
        ),
    )
    annotations = {DELETION_COST: cost} if cost is not None else None
    meta = ObjectMeta(name=uid, namespace="d", uid=uid, creation_timestamp=created, annotations=annotations)
    return Pod(metadata=meta, spec=PodSpec(node_name=node, init_containers=(sidecar,)), status=status)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param({"node": ""}, {"phase": "Pending"}, id="no node, before pending"),
        pytest.param({"phase": "Pending"}, {"phase": "Unknown", "ready": None}, id="pending, before unknown"),
        pytest.param({"phase": "Unknown"}, {"ready": None}, id="unknown, before not ready"),
        pytest.param({"ready": None}, {"cost": "-5"}, id="not ready, before a low cost"),
        pytest.param({"cost": "-5"}, {}, id="a negative cost"),
        pytest.param({"cost": "9"}, {"cost": "10"}, id="costs are numbers"),
        pytest.param({"cost": "-1"}, {"cost": "+10"}, id="a malformed cost counts as 0"),
        pytest.param({"cost": "-1"}, {"cost": "-2147483649"}, id="a cost of more than 32 bits counts as 0"),
        pytest.param({"cost": "-1"}, {"cost": "09"}, id="a cost with a leading zero counts as 0"),
        pytest.param({"cost": "1", "ready": OLD}, {"cost": "2", "ready": YOUNG}, id="cost, before readiness"),
        pytest.param({"ready": YOUNG}, {"ready": OLD}, id="ready for a shorter time"),
        pytest.param({"ready": ""}, {"ready": YOUNG}, id="ready without a time"),
        pytest.param({"ready": YOUNG}, {"ready": OLD, "restarts": (5, 0)}, id="readiness, before restarts"),
        pytest.param({"restarts": (2, 0)}, {"restarts": (1, 9)}, id="restarted more often"),
        pytest.param({"restarts": (1, 3)}, {"restarts": (1, 2)}, id="sidecars restarted more often"),
        pytest.param({"restarts": (1, 0)}, {"created": YOUNG}, id="restarts, before age"),
        pytest.param({"created": YOUNG}, {"created": MIDDLE}, id="younger"),
        pytest.param({"created": None}, {"created": YOUNG}, id="created without a time"),
    ],
)
def test_first_difference_decides_deletion_order(first: dict[str, Any], then: dict[str, Any]) -> None:
    # By uid the order would be reversed.
    one, other = pod("z", **first), pod("a", **then)
    for pods in ([one, other], [other, one]):
        assert [found.metadata.uid for found in first_to_go(pods, 1, [], NOW)] == ["z"]
    if "cost" not in first | then:
        assert progress_of(one) < progress_of(other), "pods of a job have the same order"


def test_ages_of_same_magnitude_are_ordered_by_uid() -> None:
    older, younger = pod("a", created="2026-01-01T09:00:00Z"), pod("b", created="2026-01-01T09:30:00Z")
    assert list(first_to_go([younger, older], 1, [], NOW)) == [older]


def test_pods_on_crowded_nodes_rank_first() -> None:
    alone, crowded = pod("a", node="x"), pod("z", node="y")
    others = [pod("o1", node="y"), pod("o2", node="x", ended=True), pod("o3", node="x", ended=True)]
    assert list(first_to_go([alone, crowded], 1, [alone, crowded, *others], NOW)) == [crowded]


def test_deleting_all_pods_skips_ranking() -> None:
    pods = [pod("b"), pod("a")]
    assert first_to_go(pods, 2, [], NOW) is pods


_FACTS = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["", "n", "m"]),
        "phase": st.sampled_from(["Pending", "Running"]),
        "ready": st.sampled_from([None, OLD, YOUNG]),
        "cost": st.sampled_from([None, "-1", "7"]),
        "restarts": st.sampled_from([(0, 0), (3, 1)]),
        "created": st.sampled_from([OLD, YOUNG]),
    }
)


@given(st.lists(_FACTS, min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_ranking_is_independent_of_input_order(facts: list[dict[str, Any]], random: Any) -> None:
    pods = [pod(f"{number:02}", **one) for number, one in enumerate(facts)]
    shuffled = list(pods)
    random.shuffle(shuffled)
    for count in range(len(pods)):
        chosen = {one.metadata.uid for one in first_to_go(pods, count, pods, NOW)}
        assert chosen == {one.metadata.uid for one in first_to_go(shuffled, count, pods, NOW)}
        assert len(chosen) == count


def test_unready_pod_has_no_ready_time() -> None:
    condition = Condition(type="Ready", status="False", last_transition_time=YOUNG)
    status = replace(pod("a").status, conditions=(condition,))
    waiting = replace(pod("a"), status=status)
    assert list(first_to_go([pod("b"), waiting], 1, [], NOW)) == [waiting]
