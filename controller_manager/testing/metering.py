"""Simulated metrics APIs and workloads for tests of autoscalers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from controller_manager.common.api.autoscaling import HorizontalPodAutoscaler, scale_of
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.metrics import CUSTOM_METRICS, EXTERNAL_METRICS, RESOURCE_METRICS
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import utc_now
from controller_manager.testing.builders import running
from controller_manager.testing.cluster import Cluster

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, Object)

_SCALES = scale_of(DEPLOYMENTS)
_JSON = {"content-type": "application/json"}


class Meter:
    """Serves the metrics APIs beside the API server of a cluster.

    `use` sets the resource usage of a pod. `values` are other metrics by their path below the version, such as
    `namespaces/default/queue_length`, or `namespaces/default/pods/*/hits` with a value for each pod. `latency` is in
    seconds. Requests for a group in `hanging` never get a response. `custom` is the served version of custom metrics.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.values: dict[str, str | Mapping[str, str]] = {}
        self.latency = 0.0
        self.hanging: set[str] = set()
        self.custom = "v1beta2"
        self.asked: list[str] = []
        # The labels and the usage by container of each pod.
        self._pods: dict[tuple[str, str], tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]] = {}
        for group in (RESOURCE_METRICS, CUSTOM_METRICS, EXTERNAL_METRICS):
            cluster.serve_beside(f"/apis/{group}", self.answer)

    def use(
        self, pod: str, labels: Mapping[str, str], *, namespace: str = "default", container: str = "main", **usage: str
    ) -> None:
        """Set the usage of one container of a pod. Without `usage`, remove all metrics of the pod."""
        known = dict(self._pods.pop((namespace, pod), ({}, {}))[1])
        if usage:
            self._pods[namespace, pod] = labels, {**known, container: usage}

    async def answer(self, request: Request) -> Response:
        """Return the response to a request."""
        _, group, *rest = request.path.strip("/").split("/")
        self.asked.append(request.path)
        if group in self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency)
        query = dict(request.query)
        found: Tree | None = None
        if not rest:
            found = {"kind": "APIGroup", "name": group, "versions": [{"version": self.custom}]}
        elif group == RESOURCE_METRICS:
            found = self._use(rest[2], LabelSelector.parse(query.get("labelSelector", "")))
        elif group == EXTERNAL_METRICS or rest[0] == self.custom:
            found = self._values("/".join(rest[1:]))
        if found is None:
            return Response(404, _JSON, NotFound(f"{request.path} is not here").status().encode())
        return Response(200, _JSON, msgspec.json.encode(found))

    def _use(self, namespace: str, selector: LabelSelector) -> Tree:
        items = [
            {
                "metadata": {"name": name, "namespace": space},
                "timestamp": format_time(utc_now()),
                "window": "30s",
                "containers": [{"name": each, "usage": usage} for each, usage in containers.items()],
            }
            for (space, name), (labels, containers) in self._pods.items()
            if space == namespace and selector.matches(labels)
        ]
        return {"kind": "PodMetricsList", "apiVersion": f"{RESOURCE_METRICS}/v1beta1", "items": items}

    def _values(self, path: str) -> Tree | None:
        value = self.values.get(path)
        if value is None:
            return None
        pairs = value.items() if isinstance(value, Mapping) else [("", value)]
        now = format_time(utc_now())
        items = [{"describedObject": {"name": name}, "timestamp": now, "value": each} for name, each in pairs]
        return {"kind": "MetricValueList", "items": items}


class Workload:
    """A deployment whose pods `follow` creates and deletes. They share `load` (millicores) evenly."""

    def __init__(
        self,
        cluster: Cluster,
        meter: Meter,
        name: str,
        *,
        namespace: str = "default",
        load: int = 0,
        request: str = "100m",
    ) -> None:
        self.key = Key(namespace, name)
        self.labels = {"app": name}
        self.load = load
        self._cluster = cluster
        self._meter = meter
        self._request = request
        self._pods: list[str] = []
        self._born = 0

    async def create(self, replicas: int) -> None:
        """Create the deployment and its pods."""
        await self.declare(replicas)
        await self.follow()

    async def declare(self, replicas: int) -> None:
        """Create only the deployment."""
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": self.labels},
            "template": {"metadata": {"labels": self.labels}, "spec": self._template()},
        }
        await self._cluster.client.create(DEPLOYMENTS, _object("apps/v1", "Deployment", self.key, spec=spec))

    async def replicas(self) -> int:
        """Return the desired number of pods."""
        scale = await self._cluster.client.get(_SCALES, self.key, subresource="scale")
        return scale.spec.replicas

    async def scale(self, replicas: int) -> None:
        """Scale it manually."""
        await self._cluster.client.patch(DEPLOYMENTS, self.key, {"spec": {"replicas": replicas}})

    async def follow(self) -> int:
        """Create or delete pods until their number is as desired; return that number."""
        wanted = await self.replicas()
        if wanted != len(self._pods):
            while len(self._pods) > wanted:
                await self._stop()
            while len(self._pods) < wanted:
                await self._start()
            await self._cluster.client.patch(
                DEPLOYMENTS, self.key, {"status": {"replicas": wanted}}, subresource="status"
            )
        self.measure()
        return wanted

    def measure(self) -> None:
        """Update the usage of the pods in the metrics API."""
        for pod in self._pods:
            self._meter.use(pod, self.labels, namespace=self.key.namespace, cpu=f"{self.load // len(self._pods)}m")

    async def _start(self) -> None:
        self._born += 1
        key, name = self.key, f"{self.key.name}-{self._born}"
        pod = _object("v1", "Pod", Key(key.namespace, name), labels=self.labels, spec=self._template())
        await self._cluster.client.create(PODS, Pod.decode(pod.raw))
        status = {**running("10.0.0.1"), "startTime": "2025-12-31T00:00:00Z"}
        await self._cluster.client.patch(PODS, Key(key.namespace, name), {"status": status}, subresource="status")
        self._pods.append(name)

    async def _stop(self) -> None:
        name = self._pods.pop()
        self._meter.use(name, self.labels, namespace=self.key.namespace)
        await self._cluster.client.delete(PODS, Key(self.key.namespace, name), grace=0)

    def _template(self) -> Tree:
        resources = {"requests": {"cpu": self._request}}
        return {"containers": [{"name": "main", "image": "example.org/app:1", "resources": resources}]}


def autoscaler(
    workload: Workload, *metrics: Tree, low: int = 1, high: int = 10, **spec: Any
) -> HorizontalPodAutoscaler:
    """Return an autoscaler of a workload, with the same name. The default metric is CPU at 50 % of the request."""
    half = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.key.name},
        "minReplicas": low,
        "maxReplicas": high,
        "metrics": list(metrics) or [{"type": "Resource", "resource": half}],
        **spec,
    }
    made = _object("autoscaling/v2", "HorizontalPodAutoscaler", workload.key, spec=spec)
    return HorizontalPodAutoscaler.decode(made.raw)


def _object(api_version: str, kind: str, key: Key, *, labels: Mapping[str, str] | None = None, **parts: Any) -> Object:
    metadata = {"namespace": key.namespace, "name": key.name, "labels": dict(labels or {})}
    return Object.decode(msgspec.json.encode({"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}))
