"""Rules of workloads, each violated alone in a valid object."""

import os
import subprocess
import sys
from typing import Any

import pytest

I, R, N, F, D, L, M = "Invalid", "Required", "NotSupported", "Forbidden", "Duplicate", "TooLong", "TooMany"  # noqa: E741
DEPLOYMENT, DAEMONS, STATEFUL, RC = (
    "apps/v1/Deployment",
    "apps/v1/DaemonSet",
    "apps/v1/StatefulSet",
    "v1/ReplicationController",
)
JOB, CRON = "batch/v1/Job", "batch/v1/CronJob"
LABELS = "spec.template.metadata.labels"
ROLLING = "spec.strategy.rollingUpdate"
RULE = "spec.podFailurePolicy.rules"
SELECTED = {"spec.selector": {"matchLabels": {"a": "b"}}, "spec.template.metadata": {"labels": {"a": "b"}}}
SUSPENDED = {**SELECTED, "spec.suspend": True}
STARTED = {"status.startTime": "2026-01-01T00:00:00Z"}
STOPPED = {"status.conditions": [{"type": "Suspended", "status": "True"}]}


@pytest.mark.parametrize(
    ("kind", "changes", "causes"),
    [
        (DEPLOYMENT, {"spec.replicas": -1}, [("spec.replicas", I)]),
        (DEPLOYMENT, {"spec.selector": {"matchLabels": {"app": "other"}}}, [(LABELS, I)]),
        (DEPLOYMENT, {"spec.selector": {}}, [("spec.selector", I)]),
        (DEPLOYMENT, {"spec.selector": {"matchLabels": {"a b": "c"}}},
         [("spec.selector", I), ("spec.selector.matchLabels", I)]),
        (DEPLOYMENT, {"spec.template.spec.restartPolicy": "Never"}, [("spec.template.spec.restartPolicy", N)]),
        (DEPLOYMENT, {"spec.template.spec.activeDeadlineSeconds": 5},
         [("spec.template.spec.activeDeadlineSeconds", F)]),
        (DEPLOYMENT, {"spec.template.spec.containers.0.image": ""}, [("spec.template.spec.containers[0].image", R)]),
        (DEPLOYMENT, {"spec.template.metadata.annotations": {"a b": "c"}}, [("spec.template.annotations", I)]),
        (DEPLOYMENT, {ROLLING: {"maxSurge": 0, "maxUnavailable": 0}}, [(f"{ROLLING}.maxUnavailable", I)]),
        (DEPLOYMENT, {ROLLING: {"maxSurge": "0%", "maxUnavailable": "0%"}}, [(f"{ROLLING}.maxUnavailable", I)]),
        (DEPLOYMENT, {f"{ROLLING}.maxUnavailable": "101%"}, [(f"{ROLLING}.maxUnavailable", I)]),
        (DEPLOYMENT, {f"{ROLLING}.maxUnavailable": "some"}, [(f"{ROLLING}.maxUnavailable", I)]),
        (DEPLOYMENT, {f"{ROLLING}.maxSurge": -1}, [(f"{ROLLING}.maxSurge", I)]),
        (DEPLOYMENT, {"spec.strategy.type": "Recreate"}, [(ROLLING, F)]),
        (DEPLOYMENT, {"spec.progressDeadlineSeconds": 5}, [("spec.progressDeadlineSeconds", I)]),
        (DAEMONS, {"spec.updateStrategy.rollingUpdate.maxSurge": 1},
         [("spec.updateStrategy.rollingUpdate.maxSurge", I)]),
        (DAEMONS, {"spec.updateStrategy.rollingUpdate.maxUnavailable": 0},
         [("spec.updateStrategy.rollingUpdate.maxUnavailable", R)]),
        (STATEFUL, {"spec.ordinals.start": -1}, [("spec.ordinals.start", I)]),
        (STATEFUL, {"spec.updateStrategy.type": "OnDelete"}, [("spec.updateStrategy.rollingUpdate", I)]),
        (STATEFUL, {"spec.updateStrategy.rollingUpdate.partition": -1},
         [("spec.updateStrategy.rollingUpdate.partition", I)]),
        (RC, {"spec.selector": {"app": "other"}}, [(LABELS, I)]),
        (RC, {"spec.template": "<gone>", "spec.selector": {}}, [("spec.selector", R), ("spec.template", R)]),
        ("v1/PodTemplate", {"template.spec.containers": []}, [("template.spec.containers", R)]),
        ("apps/v1/ControllerRevision", {"data": "<gone>", "revision": -1}, [("data", R), ("revision", I)]),
        (JOB, {"spec.parallelism": -1, "spec.backoffLimit": -1}, [("spec.backoffLimit", I), ("spec.parallelism", I)]),
        (JOB, {"spec.parallelism": 100_001}, [("spec.parallelism", I)]),
        (JOB, {"spec.completions": "<gone>"}, [("spec.completions", R)]),
        (JOB, {"spec.completionMode": "NonIndexed",
               "spec.podFailurePolicy": "<gone>", "spec.maxFailedIndexes": "<gone>"},
         [("spec.backoffLimitPerIndex", I), ("spec.successPolicy", I)]),
        (JOB, {"metadata.name": "a.b"}, [("metadata.name", I)]),
        (JOB, {"spec.managedBy": "me"}, [("spec.managedBy", I)]),
        (JOB, {"spec.template.spec.restartPolicy": "Always"}, [("spec.template.spec.restartPolicy", R)]),
        (JOB, {"spec.template.spec.restartPolicy": "OnFailure"}, [("spec.template.spec.restartPolicy", I)]),
        (JOB, {f"{RULE}.0.action": "Stop"}, [(f"{RULE}[0].action", N)]),
        (JOB, {f"{RULE}.0.onPodConditions": [{"type": "a", "status": "True"}]}, [(f"{RULE}[0]", I)]),
        (JOB, {f"{RULE}.1.onPodConditions": []}, [(f"{RULE}[1]", I)]),
        (JOB, {f"{RULE}.0.onExitCodes.containerName": "x"}, [(f"{RULE}[0].onExitCodes.containerName", I)]),
        (JOB, {f"{RULE}.0.onExitCodes.values": [0, 1]}, [(f"{RULE}[0].onExitCodes.values[0]", I)]),
        (JOB, {f"{RULE}.0.onExitCodes.values": [2, 1]}, [(f"{RULE}[0].onExitCodes.values", I)]),
        (JOB, {f"{RULE}.0.onExitCodes.values": [1, 1]}, [(f"{RULE}[0].onExitCodes.values[1]", D)]),
        (JOB, {"spec.successPolicy.rules": []}, [("spec.successPolicy.rules", R)]),
        (JOB, {"spec.successPolicy.rules.0.succeededIndexes": "a"},
         [("spec.successPolicy.rules[0].succeededCount", I), ("spec.successPolicy.rules[0].succeededIndexes", I)]),
        (CRON, {"spec.timeZone": "Middle/Earth"}, [("spec.timeZone", I)]),
        (CRON, {"spec.timeZone": ""}, [("spec.timeZone", I)]),
        (CRON, {"spec.failedJobsHistoryLimit": -1}, [("spec.failedJobsHistoryLimit", I)]),
        (CRON, {"spec.concurrencyPolicy": "Never"}, [("spec.concurrencyPolicy", N)]),
        (CRON, {"metadata.name": "a" * 53}, [("metadata.name", I)]),
        (CRON, {"spec.jobTemplate.spec.manualSelector": True}, [("spec.jobTemplate.spec.manualSelector", N)]),
        (CRON, {"spec.jobTemplate.spec.template.spec.containers": []},
         [("spec.jobTemplate.spec.template.spec.containers", R)]),
    ],
)  # fmt: skip
def test_violated_rules_are_reported(validator: Any, kind: str, changes: Any, causes: list[tuple[str, str]]) -> None:
    assert validator(kind, changes) == sorted(causes)


@pytest.mark.parametrize(
    "schedule", ["0 0 * * *", "*/15 1,2-4 ? JAN sun-sat", "@daily", "@every 1h30m", "0 0 31 12 6", "59 23 1-31/2 * *"]
)
def test_valid_schedules_are_accepted(validator: Any, schedule: str) -> None:
    assert validator(CRON, {"spec.schedule": schedule}) == []


@pytest.mark.parametrize(
    "schedule",
    ["* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "5-1 * * * *",
     "*/0 * * * *", "a * * * *", "@often", "TZ=UTC 0 0 * * *", "-1 * * * *", "1-2-3 * * * *", "*/x * * * *"],
)  # fmt: skip
def test_invalid_schedules_are_rejected(validator: Any, schedule: str) -> None:
    assert validator(CRON, {"spec.schedule": schedule}) == [("spec.schedule", I)]


@pytest.mark.parametrize(
    ("kind", "before", "after", "causes"),
    [
        (DEPLOYMENT, {}, {"spec.selector.matchExpressions": []}, [("spec.selector", I)]),
        (DEPLOYMENT, {}, {"spec.template.spec.containers.0.image": "j:1"}, []),
        ("apps/v1/ReplicaSet", {"spec.template.metadata.labels.b": "c"}, {"spec.selector.matchLabels.b": "c"},
         [("spec.selector", I)]),
        (STATEFUL, {}, {"spec.replicas": 5, "spec.template.spec.containers.0.image": "j:1"}, []),
        (STATEFUL, {}, {"spec.serviceName": "other"}, [("spec", F)]),
        (STATEFUL, {}, {"spec.volumeClaimTemplates.0.spec.resources.requests.storage": "2Gi"}, [("spec", F)]),
        ("apps/v1/ControllerRevision", {}, {"data.a": "c"}, [("data", I)]),
        (JOB, SELECTED, {"spec.completions": 4}, [("spec.completions", I)]),
        (JOB, SELECTED, {"spec.completions": 4, "spec.parallelism": 4}, []),
        (JOB, SELECTED, {"spec.parallelism": 1, "spec.suspend": True}, []),
        (JOB, SELECTED, {"spec.template.spec.containers.0.image": "j:1"}, [("spec.template", I)]),
        (JOB, SELECTED, {"spec.template.spec.nodeSelector": {"a": "b"}}, [("spec.template", I)]),
        (JOB, {**SELECTED, "spec.suspend": True}, {"spec.template.spec.nodeSelector": {"a": "b"}}, []),
        (JOB, SUSPENDED, {"spec.template.spec.containers.0.image": "j:1"}, [("spec.template.spec", I)]),
        (JOB, SUSPENDED, {"spec.template.spec.containers.0.resources": {"requests": {"cpu": "1"}}}, []),
        (JOB, SUSPENDED, {"spec.template.spec.affinity": {"nodeAffinity": {}}}, []),
        (JOB, SUSPENDED, {"spec.template.spec.affinity": {"podAffinity": {}}}, [("spec.template.spec", I)]),
        (JOB, {**SUSPENDED, **STARTED}, {"spec.template.spec.nodeSelector": {"a": "b"}}, [("spec.template", I)]),
        (JOB, {**SUSPENDED, **STARTED, **STOPPED}, {"spec.template.spec.nodeSelector": {"a": "b"}}, []),
        (JOB, {**SUSPENDED, **STARTED, **STOPPED, "status.active": 1}, {"spec.template.spec.nodeSelector": {"a": "b"}},
         [("spec.template", I)]),
        (JOB, SELECTED, {"spec.successPolicy": "<gone>"}, [("spec.successPolicy", I)]),
    ],
)  # fmt: skip
def test_invalid_changes_are_reported(
    validator: Any, kind: str, before: Any, after: Any, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(kind, before, after) == causes


@pytest.mark.parametrize(
    ("kind", "status", "causes"),
    [
        (DEPLOYMENT, {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 5}, []),
        (DEPLOYMENT, {"replicas": 1, "readyReplicas": 2}, [("status.readyReplicas", I)]),
        ("apps/v1/ReplicaSet", {"fullyLabeledReplicas": -1}, [("status.fullyLabeledReplicas", I)]),
        (RC, {"readyReplicas": -1}, [("status.availableReplicas", I), ("status.readyReplicas", I)]),
        (RC, {"replicas": 1, "availableReplicas": 1}, [("status.availableReplicas", I)]),
        (
            DEPLOYMENT,
            {"collisionCount": -1, "observedGeneration": -1},
            [("status.collisionCount", I), ("status.observedGeneration", I)],
        ),
        ("apps/v1/DaemonSet", {"numberReady": -1, "desiredNumberScheduled": 2}, [("status.numberReady", I)]),
        ("apps/v1/StatefulSet", {"replicas": 3, "availableReplicas": 2}, [("status.availableReplicas", I)]),
    ],
)
def test_inconsistent_statuses_are_rejected(
    validator: Any, kind: str, status: Any, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(kind, {}, {"status": status}, "status") == causes


def test_time_zones_need_no_system_database() -> None:
    code = "from apiserver_stub.kinds.rules.formats import time_zone as z; print([z('Europe/Berlin'), z('Europe/X')])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env={**os.environ, "PYTHONTZPATH": ""}
    )
    assert found.stdout.strip() == "['', 'unknown time zone Europe/X']"
