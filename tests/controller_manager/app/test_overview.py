"""Rows of the overview page: one state per object, problems first."""

from typing import Any

import msgspec
import pytest

from controller_manager.app.overview import (
    MOST_ROWS,
    OverviewRow,
    SectionBuilder,
    of_event,
    of_node,
    of_pod,
    of_workload,
)
from controller_manager.app.state import Severity
from controller_manager.common.api.apps import DaemonSet, Deployment, StatefulSet
from controller_manager.common.api.batch import CronJob, Job
from controller_manager.common.api.core import Event, Node, Pod

BROKEN, STRUGGLING, WAITING, WELL = Severity.BROKEN, Severity.STRUGGLING, Severity.WAITING, Severity.WELL


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "app", "restartCount": 4, "state": {"waiting": {"reason": reason}}}]}


def running(*conditions: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"phase": "Running", "conditions": list(conditions), **more}


UNREADY = condition("Ready", "False", reason="ContainersNotReady", message="app is not ready")
FULL = condition("PodScheduled", "False", reason="Unschedulable", message="no room")
GATED = condition("PodScheduled", "False", reason="SchedulingGated")


@pytest.mark.parametrize(
    ("status", "severity", "state", "why"),
    [
        (running(condition("Ready")), WELL, "Running", ""),
        (running(UNREADY), STRUGGLING, "NotReady", "ContainersNotReady: app is not ready"),
        (running(UNREADY, **waiting("CrashLoopBackOff")), BROKEN, "CrashLoopBackOff", "container app"),
        ({"phase": "Pending", **waiting("ImagePullBackOff")}, BROKEN, "ImagePullBackOff", "container app"),
        ({"phase": "Pending", **waiting("ContainerCreating")}, WAITING, "ContainerCreating", ""),
        ({"phase": "Pending"}, WAITING, "Pending", ""),
        ({"phase": "Pending", "conditions": [FULL]}, STRUGGLING, "Unschedulable", "no room"),
        ({"phase": "Pending", "conditions": [GATED]}, WAITING, "SchedulingGated", ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, BROKEN, "Evicted", "disk"),
        ({"phase": "Succeeded"}, WELL, "Completed", ""),
    ],
)
def test_pod_states(status: dict[str, Any], severity: Severity, state: str, why: str) -> None:
    row = of_pod(msgspec.convert({"metadata": {"name": "web", "namespace": "shop"}, "status": status}, Pod))
    assert (row.severity, row.state, row.why) == (severity, state, why)
    assert (row.kind, row.namespace, row.name) == ("Pod", "shop", "web")


def test_deleted_pod_is_terminating_in_any_state() -> None:
    meta = {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    row = of_pod(msgspec.convert({"metadata": meta, "status": running(UNREADY)}, Pod))
    assert (row.severity, row.state) == (WAITING, "Terminating")


@pytest.mark.parametrize(
    ("ready", "unschedulable", "severity", "state"),
    [
        ("True", False, WELL, "Ready"),
        ("True", True, WAITING, "SchedulingDisabled"),
        ("False", False, BROKEN, "NotReady"),
        ("Unknown", True, BROKEN, "Unknown"),
        (None, False, BROKEN, "NotReady"),
    ],
)
def test_node_states(ready: str | None, unschedulable: bool, severity: Severity, state: str) -> None:
    conditions = [condition("Ready", ready)] if ready else []
    spec = {"unschedulable": unschedulable, "taints": [{"key": "a/b", "effect": "NoSchedule"}]}
    tree = {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions, "allocatable": {"pods": "9"}}}
    row = of_node(msgspec.convert(tree, Node), 7)
    assert (row.severity, row.state) == (severity, state)
    assert (row.columns["Pods"], row.columns["Taints"]) == ("7 of 9", "a/b:NoSchedule")


def deployed(wanted: int, *conditions: dict[str, str], paused: bool = False, **numbers: int) -> dict[str, Any]:
    spec = {"replicas": wanted, "paused": paused}
    return {"metadata": {"generation": 2}, "spec": spec, "status": {"conditions": list(conditions), **numbers}}


THREE = {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "observedGeneration": 2}
LATE = condition("Progressing", "False", reason="ProgressDeadlineExceeded", message="it takes too long")
FULL_QUOTA = condition("ReplicaFailure", reason="FailedCreate", message="the quota is full")


@pytest.mark.parametrize(
    ("kind", "tree", "severity", "state", "ready"),
    [
        (Deployment, deployed(3, **THREE), WELL, "Available", "3 of 3"),
        (Deployment, deployed(3, **{**THREE, "observedGeneration": 1}), STRUGGLING, "Progressing", "3 of 3"),
        (Deployment, deployed(3, **{**THREE, "replicas": 4}), STRUGGLING, "Progressing", "3 of 3"),
        (Deployment, deployed(3, **{**THREE, "updatedReplicas": 1}), STRUGGLING, "Progressing", "3 of 3"),
        (Deployment, deployed(3, **THREE, paused=True), WAITING, "Paused", "3 of 3"),
        (Deployment, deployed(3, LATE), BROKEN, "ProgressDeadlineExceeded", "0 of 3"),
        (Deployment, deployed(3, LATE, FULL_QUOTA), BROKEN, "FailedCreate", "0 of 3"),
        (StatefulSet, deployed(2, readyReplicas=2, updatedReplicas=2), WELL, "Available", "2 of 2"),
        (StatefulSet, deployed(2, readyReplicas=2, updatedReplicas=1), STRUGGLING, "Progressing", "2 of 2"),
        (DaemonSet, {"status": {"desiredNumberScheduled": 2, "numberReady": 1}}, STRUGGLING, "Progressing", "1 of 2"),
        (Job, {"status": {"conditions": [condition("Complete")]}}, WELL, "Complete", "0 of 0"),
        (Job, {"status": {"conditions": [condition("Failed")]}}, BROKEN, "Failed", "0 of 0"),
        (Job, {"status": {"conditions": [condition("Suspended")]}}, WAITING, "Suspended", "0 of 0"),
        (Job, {"status": {"active": 2, "ready": 1}}, WAITING, "Running", "1 of 2"),
        (Job, {"status": {"active": 1, "failed": 1}}, STRUGGLING, "Running", "0 of 1"),
        (CronJob, {"spec": {"schedule": "@daily"}}, WELL, "Scheduled", "0 active"),
        (CronJob, {"spec": {"suspend": True}}, WAITING, "Suspended", "0 active"),
    ],
)
def test_workload_states(kind: Any, tree: dict[str, Any], severity: Severity, state: str, ready: str) -> None:
    row = of_workload(msgspec.convert(tree, kind))
    assert (row.severity, row.state, row.columns["Ready"], row.kind) == (severity, state, ready, kind.__name__)


def test_event_time_is_that_of_its_series() -> None:
    tree = {
        "type": "Warning",
        "reason": "BackOff",
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "series": {"count": 7, "lastObservedTime": "2026-01-01T01:00:00.000000Z"},
    }
    row = of_event(msgspec.convert(tree, Event))
    assert (row.severity, row.kind, row.name, row.state) == (STRUGGLING, "Pod", "web", "BackOff")
    assert (row.since, row.columns["Times"]) == ("2026-01-01T01:00:00.000000Z", "7")


def rows(count: int, severity: Severity, state: str) -> list[OverviewRow]:
    return [
        OverviewRow(severity, "Pod", "shop", f"{state}-{number:05}", state, since=f"{number:05}")
        for number in range(count)
    ]


def test_rows_are_sorted_by_severity_and_all_are_counted() -> None:
    builder = SectionBuilder()
    builder.add(rows(1000, WELL, "Running"))
    builder.add(rows(2, BROKEN, "Error"))
    found = builder.section()
    assert [(one.state, one.count) for one in found.states] == [("Error", 2), ("Running", 1000)]
    assert (found.count, found.found, len(found.rows)) == (1002, 1002, MOST_ROWS)
    assert [row.state for row in found.rows[:3]] == ["Error", "Error", "Running"]


def test_rows_are_sorted_by_age_on_request() -> None:
    builder = SectionBuilder(newest=True)
    builder.add(rows(300, WELL, "Normal"))
    builder.add(rows(1, BROKEN, "Warning"))
    assert [row.since for row in builder.section().rows[:2]] == ["00299", "00298"]


def test_search_words_ignore_case() -> None:
    builder = SectionBuilder("SHOP/ERROR-00001")
    builder.add(rows(20, BROKEN, "Error"))
    found = builder.section()
    assert (found.count, found.found, [row.name for row in found.rows]) == (20, 1, ["Error-00001"])
