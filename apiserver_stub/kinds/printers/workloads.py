"""Rows of workloads: replica controllers, jobs, autoscalers and disruption budgets."""

from collections.abc import Mapping
from typing import Any

from apiserver_stub.kinds.conversions import autoscaler_to_v2
from apiserver_stub.kinds.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    Since,
    age,
    between,
    columns,
    condition,
    containers,
    deleting,
    labels,
    name,
    part,
    selector,
    since,
    yes_no,
)
from apiserver_stub.kinds.resource_info import Printer
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.tree import Tree

_JOB_STATES: tuple[tuple[str, str], ...] = (
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
_METRICS: Mapping[str, str] = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_METRICS_SHOWN = 2


def _deployment(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    return [
        name(tree),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(tree),
        *containers(part(spec, "template")),
        selector(spec.get("selector"), empty=""),
    ]


def _replica_set(tree: Tree) -> list[Any]:
    return [*_replicas(tree), selector(part(tree, "spec").get("selector"))]


def _replication_controller(tree: Tree) -> list[Any]:
    return [*_replicas(tree), labels(part(tree, "spec").get("selector"))]


def _stateful_set(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name(tree), ready, age(tree), *containers(part(spec, "template"))]


def _daemon_set(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    template = part(spec, "template")
    return [
        name(tree),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels(part(template, "spec").get("nodeSelector")),
        age(tree),
        *containers(template),
        selector(spec.get("selector")),
    ]


def _controller_revision(tree: Tree) -> list[Any]:
    owners = part(tree, "metadata").get("ownerReferences", ())
    owner = next((_owner(reference) for reference in owners if reference.get("controller")), NONE)
    return [name(tree), owner, tree.get("revision", 0), age(tree)]


def _job(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    return [
        name(tree),
        _job_state(tree),
        _completions(tree),
        _job_duration(part(tree, "status")),
        age(tree),
        *containers(part(spec, "template")),
        selector(spec.get("selector")),
    ]


def _cron_job(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    last, template = status.get("lastScheduleTime"), part(spec, "jobTemplate", "spec")
    return [
        name(tree),
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        yes_no(spec.get("suspend")),
        len(status.get("active", ())),
        since(last) if last else NONE,
        age(tree),
        *containers(part(template, "template")),
        selector(template.get("selector")),
    ]


def _autoscaler(tree: Tree) -> list[Any]:
    """Return the cells of a HorizontalPodAutoscaler. Metrics that v1 stores in annotations are shown too."""
    if tree.get("apiVersion") == "autoscaling/v1":
        tree = autoscaler_to_v2(tree)
    spec, status = part(tree, "spec"), part(tree, "status")
    target = part(spec, "scaleTargetRef")
    return [
        name(tree),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _targets(spec, status),
        str(spec["minReplicas"]) if "minReplicas" in spec else UNSET,
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(tree),
    ]


def _disruption_budget(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    limits = [str(spec.get(limit, "N/A")) for limit in ("minAvailable", "maxUnavailable")]
    return [name(tree), *limits, status.get("disruptionsAllowed", 0), age(tree)]


def _scale(tree: Tree) -> list[Any]:
    replicas = [part(tree, half).get("replicas", 0) for half in ("spec", "status")]
    return [name(tree), *replicas, age(tree)]


def _replicas(tree: Tree) -> list[Any]:
    spec, status = part(tree, "spec"), part(tree, "status")
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name(tree), *counts, age(tree), *containers(part(spec, "template"))]


def _owner(reference: Tree) -> str:
    group, slash, _ = str(reference.get("apiVersion", "")).partition("/")
    kind = str(reference.get("kind", "")).lower()
    return f"{kind}.{group}/{reference.get('name')}" if slash else f"{kind}/{reference.get('name')}"


def _job_state(tree: Tree) -> str:
    if condition(tree, "Complete") == "True":
        return "Complete"
    if condition(tree, "Failed") == "True":
        return "Failed"
    if deleting(tree):
        return "Terminating"
    return next((state for type_, state in _JOB_STATES if condition(tree, type_) == "True"), "Running")


def _completions(tree: Tree) -> str:
    spec, succeeded = part(tree, "spec"), part(tree, "status").get("succeeded", 0)
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Tree) -> Since | str:
    start, end = status.get("startTime"), status.get("completionTime")
    if not start:
        return ""
    return between(start, parse_time(end)) if end else Since(start)


def _targets(spec: Tree, status: Tree) -> str:
    metrics, current = spec.get("metrics", ()), status.get("currentMetrics") or ()
    texts = [_metric(metric, current[i] if i < len(current) else {}) for i, metric in enumerate(metrics)]
    text = ", ".join(texts[:_METRICS_SHOWN]) or NONE
    return f"{text} + {len(texts) - _METRICS_SHOWN} more..." if len(texts) > _METRICS_SHOWN else text


def _metric(metric: Tree, status: Tree) -> str:
    """Return `current/target` of one metric."""
    field = _METRICS.get(str(metric.get("type", "")), "")
    if not field:
        return "<unknown type>"
    source, current = part(metric, field), part(status, field, "current")
    target = part(source, "target")
    prefix = f"{source.get('name', '')}: " if field in ("resource", "containerResource") else ""
    if "averageValue" in target:
        suffix = " (avg)" if field in ("external", "object") else ""
        return f"{prefix}{current.get('averageValue', UNKNOWN)}/{target['averageValue']}{suffix}"
    if not prefix:
        return f"{current.get('value', UNKNOWN)}/{target.get('value', UNKNOWN)}"
    wanted = f"{target['averageUtilization']}%" if "averageUtilization" in target else "<auto>"
    return f"{prefix}{_percent(current.get('averageUtilization'))}/{wanted}"


def _percent(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value}%"


PRINTERS = {
    ("", "ReplicationController"): Printer(columns("replicationController"), _replication_controller),
    ("apps", "ControllerRevision"): Printer(
        (NAME, ("Controller", "string", "", 0), ("Revision", "string", "", 0), AGE), _controller_revision
    ),
    ("apps", "DaemonSet"): Printer(columns("daemonSet"), _daemon_set),
    ("apps", "Deployment"): Printer(columns("deployment"), _deployment),
    ("apps", "ReplicaSet"): Printer(columns("replicaSet"), _replica_set),
    ("apps", "StatefulSet"): Printer(columns("statefulSet"), _stateful_set),
    ("autoscaling", "HorizontalPodAutoscaler"): Printer(columns("horizontalPodAutoscaler"), _autoscaler),
    ("autoscaling", "Scale"): Printer(columns("scale"), _scale),
    ("batch", "CronJob"): Printer(columns("cronJob"), _cron_job),
    ("batch", "Job"): Printer(columns("job"), _job),
    ("policy", "PodDisruptionBudget"): Printer(columns("podDisruptionBudget"), _disruption_budget),
}
