"""Decisions about claims that request more than their capacity."""

from typing import Any

import pytest

from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controllers.persistent_volume_expander import (
    ExpandAction,
    awaiting_node,
    decide,
    finished,
    in_progress,
    target_size,
)
from tests.scenarios.storage import claim, decoded, volume

PRE = "volume.alpha.kubernetes.io/pre-resize-capacity"
CSI = {"csi": {"driver": "d", "volumeHandle": "h"}}
FLEX = {"flexVolume": {"driver": "example.com/flex"}}
EBS = {"awsElasticBlockStore": {"volumeID": "v"}}


def bound(wants: str, has: str, progress: str = "", begun: str = "") -> PersistentVolumeClaim:
    status: dict[str, Any] = {"phase": "Bound", "capacity": {"storage": has}}
    if progress:
        status["allocatedResourceStatuses"] = {"storage": progress}
    if begun:
        status["allocatedResources"] = {"storage": begun}
    spec = {"volumeName": "v", "resources": {"requests": {"storage": wants}}}
    tree = {"metadata": {"name": "c", "namespace": "default", "uid": "u"}, "spec": spec, "status": status}
    found: PersistentVolumeClaim = decoded(PERSISTENT_VOLUME_CLAIMS, tree)
    return found


@pytest.mark.parametrize(
    ("wants", "has", "source", "size", "remembers", "progress", "step"),
    [
        ("1Gi", "1Gi", CSI, "1Gi", False, "", ExpandAction.NOTHING),
        ("1Gi", "2Gi", FLEX, "2Gi", False, "", ExpandAction.NOTHING),
        ("1024Mi", "1Gi", CSI, "1Gi", False, "", ExpandAction.NOTHING),
        ("2Gi", "1Gi", CSI, "1Gi", False, "", ExpandAction.EXTERNAL),
        ("1Gi", "1Gi", CSI, "1Gi", True, "", ExpandAction.EXTERNAL),
        ("2Gi", "1Gi", {}, "1Gi", False, "", ExpandAction.EXTERNAL),
        ("2Gi", "1Gi", EBS, "1Gi", False, "", ExpandAction.MIGRATED),
        ("2Gi", "1Gi", FLEX, "1Gi", False, "", ExpandAction.EXPAND),
        ("2Gi", "1Gi", FLEX, "2Gi", False, "ControllerResizeInProgress", ExpandAction.EXPAND),
        ("2Gi", "1Gi", FLEX, "2Gi", True, "NodeResizePending", ExpandAction.NOTHING),
        ("2Gi", "1Gi", FLEX, "2Gi", True, "NodeResizeInProgress", ExpandAction.NOTHING),
        ("2Gi", "1Gi", FLEX, "2Gi", True, "NodeResizeInfeasible", ExpandAction.AWAIT_NODE),
        ("2Gi", "2Gi", FLEX, "2Gi", True, "", ExpandAction.FORGET),
    ],
)
def test_expand_action_by_sizes_and_plugin(
    wants: str, has: str, source: dict[str, Any], size: str, remembers: bool, progress: str, step: ExpandAction
) -> None:
    meta = {"annotations": {PRE: "1Gi"}} if remembers else {}
    given = {"hostPath": None, **source} if source else {}
    assert decide(bound(wants, has, progress), volume(size=size, meta=meta, **given)) is step


@pytest.mark.parametrize(
    ("size", "progress", "begun", "target"),
    [
        ("1Gi", "", "", "3Gi"),
        ("1Gi", "ControllerResizeInProgress", "2Gi", "2Gi"),
        ("1Gi", "NodeResizeInfeasible", "2Gi", "2Gi"),
        ("1Gi", "ControllerResizeInfeasible", "2Gi", "3Gi"),
        ("3Gi", "ControllerResizeInfeasible", "4Gi", "4Gi"),
        ("3Gi", "", "4Gi", "4Gi"),
        ("3Gi", "NodeResizeInfeasible", "4Gi", "3Gi"),
    ],
)
def test_begun_expansion_keeps_its_target_size(size: str, progress: str, begun: str, target: str) -> None:
    assert target_size(bound("3Gi", "1Gi", progress, begun), volume(size=size)) == target


def test_resize_conditions_follow_in_order() -> None:
    asked = bound("2Gi", "1Gi")
    begun = in_progress(asked, "example.com/flex", "2Gi", "then")
    assert [one.type for one in begun.status.conditions] == ["Resizing"]
    assert begun.status.allocated_resources == {"storage": "2Gi"}
    assert begun.metadata.annotations == {"volume.kubernetes.io/storage-resizer": "example.com/flex"}
    waiting = awaiting_node(begun, "now")
    assert [one.type for one in waiting.status.conditions] == ["Resizing", "FileSystemResizePending"]
    assert waiting.status.allocated_resource_statuses == {"storage": "NodeResizePending"}
    again = in_progress(waiting, "example.com/flex", "2Gi", "now")
    assert [(one.type, one.last_transition_time) for one in again.status.conditions] == [("Resizing", "then")]
    done = finished(waiting, "2Gi")
    assert (done.status.conditions, done.status.capacity) == ((), {"storage": "2Gi"})
    assert done.status.allocated_resource_statuses is None


def test_unbound_claim_is_left_to_external_resizer() -> None:
    assert decide(claim(), volume()) is ExpandAction.EXTERNAL
