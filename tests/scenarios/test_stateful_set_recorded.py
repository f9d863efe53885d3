"""Stateful sets behave as recorded from kube-controller-manager 1.36, step by step, in virtual time.

A line of `stateful_sets.jsonl` is a set with steps on it and on its pods, which no node runs. The state after a step
has pods (revision, phase, image), claims with their owners, revisions, and the status: current and update revision,
observed generation, and the numbers of replicas and of ready, available, current and updated ones. The line ends with
the types and reasons of events.
"""

import contextlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, STATEFUL_SETS, StatefulSet
from controller_manager.common.api.conditions import is_condition_true
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import STRATEGIC_MERGE_PATCH
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.workloads import events, pods

RECORDED = Path(__file__).with_name("stateful_sets.jsonl")
ROWS: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text().splitlines()]
WEB = Key("default", "web")
FLAGS = ("--leader-elect=false", "--controllers=statefulset,garbage-collector-controller")
GATE = "--feature-gates=MaxUnavailableStatefulSet=true"
LONGEST = 12


def template(image: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m"}}
    container = {"name": "main", "image": image, "env": [{"name": "A", "value": "<b>&"}], "resources": resources}
    spec = {"containers": [container], "volumes": [{"name": "own", "emptyDir": {}}]}
    return {"metadata": {"labels": labels or {"app": "web"}}, "spec": spec}


class RecordedSteps:
    """Runs the steps of a row."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._agent = PodAgent(cluster)

    async def take(self, verb: str, *words: Any) -> None:
        """Run a step, and wait until the cluster is quiet."""
        await getattr(self, verb)(*words)
        await self._cluster.settle(pending=0)

    async def create(self, spec: dict[str, Any], annotations: dict[str, str]) -> None:
        base = {"selector": {"matchLabels": {"app": "web"}}, "serviceName": "svc", "template": template("i:1")}
        meta = {"name": "web", "namespace": "default", "annotations": annotations}
        tree = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": {**base, **spec}}
        await self._client.create(STATEFUL_SETS, StatefulSet.decode(json.dumps(tree).encode()))

    async def change(self, spec: dict[str, Any]) -> None:
        await self._client.patch(STATEFUL_SETS, WEB, {"spec": spec})

    async def use(self, image: str, labels: dict[str, str] | None = None) -> None:
        await self.change({"template": template(image, labels)})

    async def status(self, name: str, phase: str, ready: bool, seconds: int) -> None:
        since = format_time(utc_now() - timedelta(seconds=seconds))
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
        change = {"status": {"phase": phase, "conditions": [condition]}}
        pod = await self._client.get(PODS, Key("default", name))
        if not pod.spec.node_name:
            await self._agent.bind(pod, "n1")
        await self._client.patch(PODS, Key("default", name), change, subresource="status")

    async def delete(self, name: str) -> None:
        await self._client.delete(PODS, Key("default", name))

    async def gone(self, name: str) -> None:
        with contextlib.suppress(NotFound):  # without a node it is deleted at once
            await self._client.delete(PODS, Key("default", name), grace=0)

    async def all_ready(self) -> None:
        """Run and finish pods until nothing changes."""
        for _ in range(LONGEST):
            await self._cluster.settle(pending=0)
            there = await pods(self._cluster)
            going = [pod for pod in there if pod.metadata.deletion_timestamp is not None]
            new = [pod for pod in there if pod.metadata.deletion_timestamp is None and not is_ready(pod)]
            for pod in going:
                await self.gone(pod.metadata.name)
            for pod in new:
                await self.status(pod.metadata.name, "Running", True, 0)
            if not going and not new:
                return

    async def undo(self, number: int) -> None:
        """Roll back to a revision, as kubectl does."""
        every = (await self._client.list(CONTROLLER_REVISIONS, "default")).items
        (found,) = (one for one in every if one.revision == number)
        await self._client.patch(STATEFUL_SETS, WEB, json.loads(bytes(found.data)), STRATEGIC_MERGE_PATCH)

    async def background(self) -> None:
        await self._client.delete(STATEFUL_SETS, WEB, propagation="Background")

    async def wait(self, seconds: float) -> None:
        await self._cluster.sleep(seconds)


def is_ready(pod: Pod) -> bool:
    return is_condition_true(pod.status.conditions, "Ready")


async def seen(cluster: Cluster) -> dict[str, Any]:
    """Return the state in the form of rows."""
    revisions = (await cluster.client.list(CONTROLLER_REVISIONS, "default")).items
    claims = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
    return {
        "pods": {pod.metadata.name: described(pod) for pod in await pods(cluster)},
        "claims": {
            one.metadata.name: sorted(f"{each.kind}/{each.name}" for each in one.metadata.owner_references)
            + ["going"] * (one.metadata.deletion_timestamp is not None)
            for one in claims
        },
        "revisions": {one.metadata.name.removeprefix("web-"): one.revision for one in revisions},
        "status": await status_of(cluster),
    }


def described(pod: Pod) -> str:
    revision = (pod.metadata.labels or {})["controller-revision-hash"].removeprefix("web-")
    image = json.loads(pod.raw)["spec"]["containers"][0]["image"]
    going = ["going"] * (pod.metadata.deletion_timestamp is not None)
    return " ".join([revision, pod.status.phase, *going, image])


async def status_of(cluster: Cluster) -> list[Any]:
    try:
        status = (await cluster.client.get(STATEFUL_SETS, WEB)).status
    except NotFound:
        return ["", "", *[0] * 6]
    revisions = (one.removeprefix("web-") for one in (status.current_revision, status.update_revision))
    counts = (status.replicas, status.ready_replicas, status.available_replicas)
    return [*revisions, status.observed_generation, *counts, status.current_replicas, status.updated_replicas]


@pytest.mark.virtual
@pytest.mark.parametrize("row", ROWS, ids=[row["scenario"] for row in ROWS])
async def test_stateful_set_matches_recorded_steps(row: dict[str, Any]) -> None:
    gate = [GATE] if row["limits"] else []
    async with Cluster((GATE,)) as cluster:
        # A terminating claim causes conflicts until the test removes it.
        await cluster.manage(*FLAGS, *gate, strict=row["scenario"] != "claims-dd")
        steps = RecordedSteps(cluster)
        for step in row["steps"]:
            await steps.take(*step["do"])
            expected = {name: step[name] for name in ("pods", "claims", "revisions", "status")}
            assert await seen(cluster) == expected, step["do"]
        if row["events"] is not None:
            assert sorted({" ".join(one) for one in await events(cluster)}) == row["events"]
