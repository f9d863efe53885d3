"""Tables of kinds whose cells show a state: pods, services, endpoints, jobs and autoscalers."""

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from apiserver_stub.encode.table import Tabulator
from apiserver_stub.kinds.printers import PRINTERS

NOW = datetime(2026, 1, 12, 3, 4, 5, tzinfo=UTC)
BORN = "2026-01-12T03:00:05Z"  # four minutes before


def _row(group: str, kind: str, **members: Any) -> dict:
    metadata = {"name": "x", "creationTimestamp": BORN, **members.pop("metadata", {})}
    data = orjson.dumps({"metadata": metadata, **members})
    found: dict = orjson.loads(Tabulator(PRINTERS[group, kind], NOW).row(data))
    return found


def _cells(group: str, kind: str, **members: Any) -> list:
    found: list = _row(group, kind, **members)["cells"]
    return found


RUNNING = {"name": "a", "ready": True, "restartCount": 0, "state": {"running": {}}}
WAITING = {"name": "a", "ready": False, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
LOOPING = {"name": "a", "ready": False, "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
           "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-12T03:03:35Z"}}}  # fmt: skip
PROBING = {"name": "a", "ready": False, "restartCount": 0, "state": {"running": {}}}
READY = [{"type": "Ready", "status": "True"}]
INITIALIZED = [{"type": "Initialized", "status": "True"}]
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
GONE = {"deletionTimestamp": "2026-01-12T03:04:00Z"}
INIT = [{"name": "i"}, {"name": "j"}]
SIDECAR = [{"name": "i", "restartPolicy": "Always"}]


def _ended(code: int, reason: str = "", **more: Any) -> dict:
    return {"name": "a", "ready": False, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, **({"reason": reason} if reason else {}), **more}}}  # fmt: skip


def _init(state: dict, name: str = "i", **more: Any) -> dict:
    return {"name": name, "ready": False, "restartCount": 0, "state": state, **more}


DONE = {"terminated": {"exitCode": 0}}

PODS: dict[str, tuple[dict, dict, dict, list]] = {
    "new": ({}, {}, {"phase": "Pending"}, ["0/1", "Pending", "0"]),
    "no phase yet": ({}, {}, {}, ["0/1", "", "0"]),
    "gated": ({}, {}, {"phase": "Pending", "conditions": GATED}, ["0/1", "SchedulingGated", "0"]),
    "creating": ({}, {}, {"phase": "Pending", "containerStatuses": [WAITING]}, ["0/1", "ContainerCreating", "0"]),
    "running": ({}, {}, {"phase": "Running", "containerStatuses": [RUNNING]}, ["1/1", "Running", "0"]),
    "not ready": ({}, {}, {"phase": "Running", "containerStatuses": [PROBING]}, ["0/1", "Running", "0"]),
    "looping": ({}, {}, {"phase": "Running", "containerStatuses": [LOOPING]},
                ["0/1", "CrashLoopBackOff", "4 (30s ago)"]),
    "the first container's reason counts": (
        {}, {}, {"phase": "Running", "containerStatuses": [LOOPING, WAITING]},
        ["0/1", "CrashLoopBackOff", "4 (30s ago)"],
    ),
    "completed": ({}, {}, {"phase": "Succeeded", "containerStatuses": [_ended(0, "Completed")]},
                  ["0/1", "Completed", "0"]),
    "failed": ({}, {}, {"phase": "Failed", "containerStatuses": [_ended(1, "Error")]}, ["0/1", "Error", "0"]),
    "ended by a code": ({}, {}, {"phase": "Failed", "containerStatuses": [_ended(3)]}, ["0/1", "ExitCode:3", "0"]),
    "ended by a signal": ({}, {}, {"phase": "Failed", "containerStatuses": [_ended(137, signal=9)]},
                          ["0/1", "Signal:9", "0"]),
    "evicted": ({}, {}, {"phase": "Failed", "reason": "Evicted"}, ["0/1", "Evicted", "0"]),
    "one done, one runs and is ready": (
        {}, {}, {"phase": "Running", "conditions": READY, "containerStatuses": [_ended(0, "Completed"), RUNNING]},
        ["1/1", "Running", "0"],
    ),
    "one done, one runs and is not ready": (
        {}, {}, {"phase": "Running", "containerStatuses": [_ended(0, "Completed"), RUNNING]}, ["1/1", "NotReady", "0"],
    ),
    "one done, one failed": (
        {}, {}, {"phase": "Failed", "containerStatuses": [_ended(0, "Completed"), _ended(1, "OOMKilled")]},
        ["0/1", "OOMKilled", "0"],
    ),
    "terminating": (GONE, {}, {"phase": "Running", "containerStatuses": [RUNNING]}, ["1/1", "Terminating", "0"]),
    "terminating but done": (GONE, {}, {"phase": "Succeeded", "containerStatuses": [_ended(0, "Completed")]},
                             ["0/1", "Completed", "0"]),
    "its node is lost": (GONE, {}, {"phase": "Running", "reason": "NodeLost"}, ["0/1", "Unknown", "0"]),
    "first init container": (
        {}, {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [_init({"running": {}}), _init({"waiting": {}}, "j")]},
        ["0/1", "Init:0/2", "0"],
    ),
    "second init container": (
        {}, {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [
            _init(DONE, restartCount=2), _init({"waiting": {"reason": "PodInitializing"}}, "j")]},
        ["0/1", "Init:1/2", "2"],
    ),
    "init container waits": (
        {}, {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [_init({"waiting": {"reason": "ImagePullBackOff"}})]},
        ["0/1", "Init:ImagePullBackOff", "0"],
    ),
    "init container failed": (
        {}, {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [_init({"terminated": {"exitCode": 1, "reason": "Error"}})]},
        ["0/1", "Init:Error", "0"],
    ),
    "init container ended by a code": (
        {}, {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [_init({"terminated": {"exitCode": 2}})]},
        ["0/1", "Init:ExitCode:2", "0"],
    ),
    "init container ended by a signal": (
        {}, {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [_init({"terminated": {"exitCode": 2, "signal": 15}})]},
        ["0/1", "Init:Signal:15", "0"],
    ),
    "initialized": (
        {}, {"initContainers": INIT},
        {"phase": "Running", "initContainerStatuses": [_init(DONE, restartCount=3), _init(DONE, "j")],
         "containerStatuses": [RUNNING]},
        ["1/1", "Running", "0"],
    ),
    "a sidecar counts": (
        {}, {"initContainers": SIDECAR},
        {"phase": "Running", "initContainerStatuses": [
            _init({"running": {}}, started=True, ready=True, restartCount=2,
                  lastState={"terminated": {"exitCode": 1, "finishedAt": "2026-01-12T03:03:05Z"}})],
         "containerStatuses": [RUNNING]},
        ["2/2", "Running", "2 (60s ago)"],
    ),
    "a sidecar that starts": (
        {}, {"initContainers": SIDECAR},
        {"phase": "Pending", "initContainerStatuses": [_init({"running": {}}, started=False)]},
        ["0/2", "Init:0/1", "0"],
    ),
    "a sidecar that broke later": (
        {}, {"initContainers": SIDECAR},
        {"phase": "Running", "conditions": INITIALIZED, "containerStatuses": [RUNNING],
         "initContainerStatuses": [_init({"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=5)]},
        ["1/2", "Init:CrashLoopBackOff", "5"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PODS.values(), ids=PODS)
def test_pod_cells(case: tuple[dict, dict, dict, list]) -> None:
    metadata, spec, status, expected = case
    spec = {"containers": [{"name": "a"}], **spec}
    cells = _cells("", "Pod", metadata=metadata, spec=spec, status=status)
    assert cells == ["x", *expected, "4m", "<none>", "<none>", "<none>", "<none>"]


def test_wide_pod_cells() -> None:
    spec = {"containers": [], "nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    conditions = [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}]
    status = {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "nominatedNodeName": "n2"}
    cells = _cells("", "Pod", spec=spec, status={**status, "conditions": conditions})
    assert cells[5:] == ["10.0.0.1", "n1", "n2", "1/2"]


@pytest.mark.parametrize(("phase", "done"), [("Succeeded", True), ("Failed", True), ("Running", False), ("", False)])
def test_row_of_completed_pod_has_a_condition(phase: str, done: bool) -> None:
    conditions = _row("", "Pod", status={"phase": phase}).get("conditions", [])
    assert [(c["type"], c["status"], c["reason"]) for c in conditions] == [("Completed", "True", phase)] * done


PORTS = [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
SERVICES: dict[str, tuple[dict, dict, list]] = {
    "inside": ({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}],
                "selector": {"b": "2", "a": "1"}}, {}, ["ClusterIP", "10.0.0.1", "<none>", "80/TCP", "a=1,b=2"]),
    "headless": ({"type": "ClusterIP", "clusterIP": "None"}, {}, ["ClusterIP", "None", "<none>", "<none>", "<none>"]),
    "on nodes": ({"type": "NodePort", "clusterIPs": ["10.0.0.1"], "externalIPs": ["1.1.1.1", "2.2.2.2"],
                  "ports": PORTS}, {}, ["NodePort", "10.0.0.1", "1.1.1.1,2.2.2.2", "80:30080/TCP,53/UDP", "<none>"]),
    "balancer to come": ({"type": "LoadBalancer", "ports": PORTS}, {},
                         ["LoadBalancer", "<none>", "<pending>", "80:30080/TCP,53/UDP", "<none>"]),
    "balanced": ({"type": "LoadBalancer", "externalIPs": ["1.1.1.1"]},
                 {"loadBalancer": {"ingress": [{"hostname": "lb.example"}, {"ip": "9.9.9.9"}]}},
                 ["LoadBalancer", "<none>", "9.9.9.9,lb.example,1.1.1.1", "<none>", "<none>"]),
    "elsewhere": ({"type": "ExternalName", "externalName": "db.example"}, {},
                  ["ExternalName", "<none>", "db.example", "<none>", "<none>"]),
    "of no type": ({}, {}, ["", "<none>", "<unknown>", "<none>", "<none>"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SERVICES.values(), ids=SERVICES)
def test_service_cells(case: tuple[dict, dict, list]) -> None:
    spec, status, (*expected, selected) = case
    assert _cells("", "Service", spec=spec, status=status) == ["x", *expected, "4m", selected]


def _addresses(*ips: str) -> list[dict]:
    return [{"ip": ip} for ip in ips]


@pytest.mark.parametrize(
    ("subsets", "shown"),
    [
        ([], "<none>"),
        ([{"notReadyAddresses": _addresses("10.0.0.1"), "ports": [{"port": 80}]}], ""),
        ([{"addresses": _addresses("10.0.0.1", "10.0.0.2")}], "10.0.0.1,10.0.0.2"),
        ([{"addresses": _addresses("10.0.0.1", "fd00::1"), "ports": [{"port": 80}]}], "10.0.0.1:80,[fd00::1]:80"),
        (
            [{"addresses": _addresses("10.0.0.1", "10.0.0.2"), "ports": [{"port": 80}, {"port": 443}]},
             {"addresses": _addresses("10.0.0.3")}],
            "10.0.0.1:80,10.0.0.2:80,10.0.0.1:443 + 2 more...",
        ),
    ],
)  # fmt: skip
def test_endpoints_cells(subsets: list, shown: str) -> None:
    assert _cells("", "Endpoints", subsets=subsets) == ["x", shown, "4m"]


def _conditions(*types: str) -> list[dict]:
    return [{"type": type_, "status": "True"} for type_ in types]


@pytest.mark.parametrize(
    ("metadata", "spec", "status", "expected"),
    [
        ({}, {"completions": 3, "parallelism": 2}, {"succeeded": 1, "startTime": "2026-01-12T03:03:05Z"},
         ["Running", "1/3", "60s"]),
        ({}, {"completions": 1},
         {"succeeded": 1, "startTime": "2026-01-12T03:00:00Z", "completionTime": "2026-01-12T03:03:12Z",
          "conditions": _conditions("SuccessCriteriaMet", "Complete")}, ["Complete", "1/1", "3m12s"]),
        ({}, {"parallelism": 4}, {}, ["Running", "0/1 of 4", ""]),
        ({}, {"parallelism": 1}, {"conditions": _conditions("FailureTarget", "Failed")}, ["Failed", "0/1", ""]),
        (GONE, {}, {"conditions": _conditions("Suspended")}, ["Terminating", "0/1", ""]),
        ({}, {}, {"conditions": _conditions("Suspended")}, ["Suspended", "0/1", ""]),
        ({}, {}, {"conditions": _conditions("FailureTarget")}, ["FailureTarget", "0/1", ""]),
        ({}, {}, {"conditions": _conditions("SuccessCriteriaMet")}, ["SuccessCriteriaMet", "0/1", ""]),
        ({}, {}, {"conditions": [{"type": "Complete", "status": "False"}]}, ["Running", "0/1", ""]),
    ],
)  # fmt: skip
def test_job_cells(metadata: dict, spec: dict, status: dict, expected: list) -> None:
    assert _cells("batch", "Job", metadata=metadata, spec=spec, status=status)[1:4] == expected


def test_wide_job_cells() -> None:
    template = {"spec": {"containers": [{"name": "a", "image": "a:1"}]}}
    spec = {"template": template, "selector": {"matchLabels": {"job": "x"}}}
    assert _cells("batch", "Job", spec=spec)[4:] == ["4m", "a", "a:1", "job=x"]


def _metric(type_: str, field: str, target: dict, name: str = "m") -> dict:
    return {"type": type_, field: {"name": name, "target": target}}


CPU = _metric("Resource", "resource", {"averageUtilization": 80}, "cpu")
MEMORY = _metric("ContainerResource", "containerResource", {"averageValue": "1Gi"}, "memory")
PER_POD = _metric("Pods", "pods", {"averageValue": "10"})
QUEUE = _metric("External", "external", {"value": "30"})
AVERAGE = _metric("Object", "object", {"averageValue": "5"})


@pytest.mark.parametrize(
    ("metrics", "current", "shown"),
    [
        ([], [], "<none>"),
        ([CPU], [], "cpu: <unknown>/80%"),
        ([CPU], [{"resource": {"current": {"averageUtilization": 0}}}], "cpu: 0%/80%"),
        ([MEMORY], [{"containerResource": {"current": {"averageValue": "512Mi"}}}], "memory: 512Mi/1Gi"),
        ([PER_POD], [{"pods": {"current": {"averageValue": "7"}}}], "7/10"),
        ([QUEUE], [{"external": {"current": {"value": "3"}}}], "3/30"),
        ([AVERAGE], [{"object": {"current": {"averageValue": "2"}}}], "2/5 (avg)"),
        ([_metric("Resource", "resource", {}, "cpu")], [], "cpu: <unknown>/<auto>"),
        ([{"type": "Odd"}], [], "<unknown type>"),
        ([CPU, QUEUE, PER_POD], [], "cpu: <unknown>/80%, <unknown>/30 + 1 more..."),
        ([CPU, QUEUE, PER_POD, AVERAGE], [], "cpu: <unknown>/80%, <unknown>/30 + 2 more..."),
    ],
)
def test_autoscaler_cells(metrics: list, current: list, shown: str) -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9, "metrics": metrics}
    status = {"currentReplicas": 2, "currentMetrics": current}
    cells = _cells("autoscaling", "HorizontalPodAutoscaler", spec=spec, status=status)
    assert cells == ["x", "Deployment/web", shown, "<unset>", 9, 2, "4m"]


@pytest.mark.parametrize("type_", [["Pods"], {}, None, 7])
def test_unknown_metrics_annotation_is_shown_as_unknown_type(type_: Any) -> None:
    annotations = {"autoscaling.alpha.kubernetes.io/metrics": json.dumps([{"type": type_, "pods": {"x": 1}}])}
    found = {"apiVersion": "autoscaling/v1", "metadata": {"annotations": annotations}, "spec": {}}
    assert _cells("autoscaling", "HorizontalPodAutoscaler", **found)[2] == "<unknown type>"


def test_autoscaler_v1_cells() -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 9}
    spec["targetCPUUtilizationPercentage"] = 80
    status = {"currentCPUUtilizationPercentage": 35}
    found = {"apiVersion": "autoscaling/v1", "spec": spec, "status": status}
    assert _cells("autoscaling", "HorizontalPodAutoscaler", **found)[2:5] == ["cpu: 35%/80%", "1", 9]
    more = '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"10"}}]'
    found["metadata"] = {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": more}}
    assert _cells("autoscaling", "HorizontalPodAutoscaler", **found)[2] == "<unknown>/10, cpu: <unknown>/80%"
