"""Requests to one stateful set, and readers of its pods, claims and revisions."""

from collections.abc import Sequence
from typing import Any

import msgspec

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.apps import CONTROLLER_REVISIONS, STATEFUL_SETS, ControllerRevision, StatefulSet
from controller_manager.common.api.core import PODS, Pod, is_pod_ready
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS
from controller_manager.framework.controller.history import in_order
from controller_manager.testing import Cluster
from tests.scenarios.workloads import pods

FLAGS = ("--leader-elect=false", "--controllers=statefulset")
COLLECTING = ("--leader-elect=false", "--controllers=statefulset,garbage-collector-controller")
WEB = Key("default", "web")
PARALLEL = {"podManagementPolicy": "Parallel"}


class Log:
    """Records changes of pods and stateful sets in order: `+web-0` created, `web-0` ready, `-web-0` deleted."""

    def __init__(self, cluster: Cluster) -> None:
        self.pods: list[str] = []
        self.statuses = 0
        self._ready: set[str] = set()
        cluster.api.store.subscribe(self._note)

    def _note(self, changes: Sequence[Change]) -> None:
        for one in changes:
            if one.row.resource == PODS.name:
                self._take(one)
            self.statuses += one.row.resource == STATEFUL_SETS.name

    def _take(self, one: Change) -> None:
        pod = Pod.decode(one.row.data)
        name = pod.metadata.name
        if one.deleted:
            self.pods.append(f"-{name}")
            self._ready.discard(name)
        elif not pod.spec.node_name:
            self.pods.append(f"+{name}")
        elif is_pod_ready(pod) and pod.metadata.deletion_timestamp is None:
            if name not in self._ready:
                self.pods.append(name)
            self._ready.add(name)


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": spec})


async def found(cluster: Cluster) -> StatefulSet:
    return await cluster.client.get(STATEFUL_SETS, WEB)


async def numbers(cluster: Cluster) -> tuple[int, ...]:
    """Return the numbers of replicas, and of ready, available, current and updated replicas."""
    status = (await found(cluster)).status
    counts = (status.replicas, status.ready_replicas, status.available_replicas)
    return (*counts, status.current_replicas, status.updated_replicas)


def image_of(pod: Pod) -> str:
    containers = msgspec.json.decode(pod.raw)["spec"]["containers"]
    return str(containers[0]["image"])


async def images(cluster: Cluster) -> dict[str, str]:
    """Return the image version of each pod."""
    return {pod.metadata.name: image_of(pod).rpartition(":")[2] for pod in await pods(cluster)}


async def claims(cluster: Cluster) -> dict[str, list[str]]:
    """Return the names of the owners of each claim."""
    listed = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
    return {one.metadata.name: [each.name for each in one.metadata.owner_references] for one in listed}


async def revisions(cluster: Cluster) -> list[ControllerRevision]:
    return in_order((await cluster.client.list(CONTROLLER_REVISIONS, "default")).items)
