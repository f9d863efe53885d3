"""Decisions of the ReplicaSet controller: pods to create and delete, and status."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus
from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import Pod, PodStatus, PodTemplateSpec
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.model import ObjectMeta
from controllers.replica_set.replicas import decide, next_look, status_of

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FAILURE = Forbidden("the quota is used up")
KNOWN_FAILURE = Condition(type="ReplicaFailure", status="True", reason="FailedCreate", message="before")
OTHER = Condition(type="Other", status="True")


def owner(
    replicas: int, *, deleted: bool = False, min_ready: int = 0, conditions: tuple[Condition, ...] = ()
) -> ReplicaSet:
    meta = ObjectMeta(
        name="web", namespace="d", uid="u", generation=7, deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None
    )
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web", "tier": "front"}))
    spec = ReplicaSetSpec(replicas=replicas, min_ready_seconds=min_ready, template=template)
    return ReplicaSet(metadata=meta, spec=spec, status=ReplicaSetStatus(conditions=conditions))


def pod(number: int, *, ready: str = "", labels: tuple[str, ...] = ("app", "tier")) -> Pod:
    values = {"app": "web", "tier": "front", "more": "x"}
    conditions = (Condition(type="Ready", status="True", last_transition_time=ready),) if ready else ()
    meta = ObjectMeta(name=f"p{number}", uid=f"{number:04}", labels={name: values[name] for name in labels})
    return Pod(metadata=meta, status=PodStatus(phase="Running", conditions=conditions))


@pytest.mark.parametrize(
    ("replicas", "active", "deleted", "create", "delete"),
    [
        pytest.param(3, 0, False, 3, 0, id="none yet"),
        pytest.param(3, 3, False, 0, 0, id="as many as wanted"),
        pytest.param(3, 5, False, 0, 2, id="too many"),
        pytest.param(0, 5, False, 0, 5, id="none wanted"),
        pytest.param(3, 0, True, 0, 0, id="being deleted: none is created"),
        pytest.param(0, 3, True, 0, 0, id="being deleted: none is deleted"),
        pytest.param(2000, 100, False, 500, 0, id="a burst of creates"),
        pytest.param(0, 700, False, 0, 500, id="a burst of deletes"),
    ],
)
def test_pods_to_create_and_delete(replicas: int, active: int, deleted: bool, create: int, delete: int) -> None:
    decision = decide(owner(replicas, deleted=deleted), [pod(n) for n in range(active)], list, NOW)
    assert (decision.create, len(decision.delete)) == (create, delete)


def test_related_pods_are_read_for_partial_deletion_only() -> None:
    def related() -> list[Pod]:
        raise AssertionError("related pods are not needed")

    assert len(decide(owner(0), [pod(1), pod(2)], related, NOW).delete) == 2
    with pytest.raises(AssertionError):
        decide(owner(1), [pod(1), pod(2)], related, NOW)


def test_status_counts_pods() -> None:
    pods = [
        pod(1, ready="2026-01-01T11:00:00Z", labels=("app", "tier", "more")),
        pod(2, ready="2026-01-01T11:59:55Z", labels=("app",)),
        pod(3),
    ]
    status = status_of(owner(3, min_ready=10), pods, 4, None, NOW)
    assert status == ReplicaSetStatus(
        replicas=3,
        fully_labeled_replicas=2,
        ready_replicas=2,
        available_replicas=1,
        terminating_replicas=4,
        observed_generation=7,
    )


@pytest.mark.parametrize(
    ("before", "active", "fails", "reasons"),
    [
        pytest.param((OTHER,), 1, True, [("Other", ""), ("ReplicaFailure", "FailedCreate")], id="too few"),
        pytest.param((), 5, True, [("ReplicaFailure", "FailedDelete")], id="too many"),
        pytest.param((KNOWN_FAILURE,), 5, True, [("ReplicaFailure", "FailedCreate")], id="already reported"),
        pytest.param((KNOWN_FAILURE, OTHER), 3, False, [("Other", "")], id="over"),
    ],
)
def test_replica_failure_condition_is_set_and_cleared(
    before: tuple[Condition, ...], active: int, fails: bool, reasons: list[tuple[str, str]]
) -> None:
    pods = [pod(n) for n in range(active)]
    status = status_of(owner(3, conditions=before), pods, 0, FAILURE if fails else None, NOW)
    assert [(one.type, one.reason) for one in status.conditions] == reasons


def test_replica_failure_has_message_and_time() -> None:
    (condition,) = status_of(owner(3), [], 0, FAILURE, NOW).conditions
    assert (condition.status, condition.message, condition.last_transition_time) == (
        "True",
        FAILURE.message,
        "2026-01-01T12:00:00Z",
    )


@pytest.mark.parametrize(
    ("min_ready", "ready", "seconds"),
    [
        pytest.param(10, ["2026-01-01T11:59:55Z", "2026-01-01T11:59:58Z"], 5.0, id="the first of two"),
        pytest.param(10, ["2026-01-01T11:00:00Z", "2026-01-01T11:59:58Z"], 8.0, id="one is available"),
        pytest.param(10, ["2026-01-01T11:00:00Z"], None, id="all are available"),
        pytest.param(10, [""], None, id="none is ready"),
        pytest.param(0, ["2026-01-01T11:59:58Z"], None, id="ready is available"),
        pytest.param(10, ["2026-01-01T12:30:00Z"], 10.0, id="a clock that is ahead is not awaited"),
    ],
)
def test_requeue_when_pod_becomes_available(min_ready: int, ready: list[str], seconds: float | None) -> None:
    pods = [pod(number, ready=since) for number, since in enumerate(ready)]
    one = owner(len(pods), min_ready=min_ready)
    assert next_look(one, pods, status_of(one, pods, 0, None, NOW), NOW) == seconds


def test_replication_controller_has_no_terminating_count() -> None:
    assert status_of(replace(owner(1)), [], None, None, NOW).terminating_replicas is None
