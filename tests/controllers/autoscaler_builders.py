"""Builders of pods and autoscalers for tests of the horizontal pod autoscaler."""

from typing import Any

import msgspec

from controller_manager.common.api.autoscaling import (
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricStatus,
)
from controller_manager.common.api.core import Pod
from controllers.horizontal_pod_autoscaler.decision import (
    ScalingDefaults,
)
from controllers.horizontal_pod_autoscaler.proposals import Failure, Proposal

RULES = ScalingDefaults(0.1, 300.0, to_zero=False, own_tolerance=True)


def pod(name: str = "a", *, ready: str = "True", phase: str = "Running", **options: Any) -> Pod:
    """Return a pod that started a day ago and has been ready since, unless options say otherwise."""
    status: dict[str, Any] = {"phase": phase, "startTime": options.get("started", "2025-12-31T00:00:00Z")}
    if ready:
        since = options.get("since", "2025-12-31T00:00:10Z")
        status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    containers = options.get("containers", [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}])
    spec = {"containers": containers, **options.get("spec", {})}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}, **options.get("metadata", {})}
    return Pod.decode(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


def spec(tree: dict[str, Any]) -> MetricSpec:
    return msgspec.convert(tree, MetricSpec)


def scaler(status: dict[str, Any] | None = None, **parts: Any) -> HorizontalPodAutoscaler:
    tree = {"metadata": {"name": "web"}, "spec": {"minReplicas": 1, "maxReplicas": 10, **parts}, "status": status or {}}
    return HorizontalPodAutoscaler.decode(msgspec.json.encode(tree))


RESOURCE = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}


METRIC = {"name": "hits"}


def proposal(replicas: int, metric: str = "cpu") -> Proposal:
    return Proposal(replicas, metric, MetricStatus(type="Resource"))


FAILED = Failure("FailedGetPodsMetric", "no")
