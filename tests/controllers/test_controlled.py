"""Which owners a pod change wakes, and which pods count for a workload."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import NAMESPACES, Namespace, Pod, PodStatus
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.framework import Change
from controllers.shared.controlled import owners_concerned
from controllers.shared.pods import is_active, is_available, is_terminating, until_available

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class Owners:
    """A cache with two owners; each selects the pods that are labelled with its name."""

    def get(self, _: Any) -> "Owners":
        return self

    def list(self, namespace: str) -> Iterator[Namespace]:
        return (Namespace(metadata=ObjectMeta(namespace=namespace, name=name)) for name in ("a", "b"))


def selects(owner: Namespace, pod: Pod) -> bool:
    return (pod.metadata.labels or {}).get("of") == owner.metadata.name


concerned = owners_concerned(NAMESPACES, selects, facts=lambda pod: (pod.metadata, pod.status.phase))


def pod(of: str = "", controller: str = "", *, kind: str = "Namespace", ip: str = "", gone: bool = False) -> Pod:
    reference = OwnerReference(api_version="v1", kind=kind, name=controller, uid=f"uid-{controller}", controller=True)
    meta = ObjectMeta(
        namespace="d",
        name="p",
        uid="u",
        labels={"of": of},
        owner_references=(reference,) if controller else (),
        deletion_timestamp="2026-01-01T00:00:00Z" if gone else None,
    )
    return Pod(metadata=meta, status=PodStatus(pod_ip=ip))


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        pytest.param(None, pod("a", "b"), ["b"], id="new, controlled: its controller only"),
        pytest.param(pod("a", "b"), None, ["b"], id="deleted: its former controller"),
        pytest.param(pod("a", "b"), pod("a", "a"), ["b", "a"], id="another controller: both"),
        pytest.param(None, pod("a", "b", kind="Other"), [], id="controlled by another kind"),
        pytest.param(None, pod("a"), ["a"], id="new orphan: matching owners"),
        pytest.param(pod("b", "b"), pod("a"), ["b", "a"], id="released: former and matching owners"),
        pytest.param(pod("a"), pod("b"), ["b"], id="orphan with changed labels"),
        pytest.param(pod("a"), pod("a", gone=True), [], id="orphan being deleted"),
        pytest.param(pod("a"), None, [], id="deleted orphan"),
        pytest.param(pod("a", "b"), pod("a", "b", ip="10.0.0.1"), [], id="no relevant change"),
    ],
)
def test_which_owners_a_pod_change_wakes(before: Pod | None, after: Pod | None, names: list[str]) -> None:
    found = concerned(Owners(), Change(before, after))  # type: ignore[arg-type]
    assert [key.name for key in found] == names


def test_initial_orphan_wakes_no_owner() -> None:
    assert list(concerned(Owners(), Change(None, pod("a"), initial=True))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phase", "deleted", "active", "terminating"),
    [
        ("Running", False, True, False),
        ("", False, True, False),
        ("Running", True, False, True),
        ("Failed", False, False, False),
        ("Succeeded", True, False, False),
    ],
)
def test_active_and_terminating_by_phase_and_deletion(
    phase: str, deleted: bool, active: bool, terminating: bool
) -> None:
    one = replace(pod(gone=deleted), status=PodStatus(phase=phase))
    assert (is_active(one), is_terminating(one)) == (active, terminating)


@pytest.mark.parametrize(
    ("status", "since", "min_ready", "left"),
    [
        pytest.param("True", "2026-01-01T11:59:50Z", 10, 0.0, id="just available"),
        pytest.param("True", "2026-01-01T11:59:50Z", 30, 20.0, id="not yet"),
        pytest.param("False", "2026-01-01T11:59:50Z", 10, float("inf"), id="not ready"),
        pytest.param("True", None, 10, float("inf"), id="ready without a time"),
        pytest.param("True", None, 0, float("inf"), id="ready without a time, at once"),
    ],
)
def test_time_until_pod_is_available(status: str, since: str | None, min_ready: int, left: float) -> None:
    ready = Condition(type="Ready", status=status, last_transition_time=since)
    one = replace(pod(), status=PodStatus(conditions=(ready,)))
    assert until_available(one, min_ready, NOW) == left
    assert is_available(one, min_ready, NOW) is (status == "True" and (min_ready == 0 or left == 0.0))
