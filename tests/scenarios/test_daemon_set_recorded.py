"""A daemon set behaves as recorded from kube-controller-manager 1.36 on a real API server, in virtual time.

A row of `daemon_sets.jsonl` is a step: the status, each pod with its node and labels, one pod in full, the revisions
and the event reasons. Hashes are numbered by the order of their revisions.
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS, DaemonSet
from controller_manager.common.api.core import EVENTS, PODS, Pod
from controller_manager.common.api.resource import Key
from controller_manager.framework import STRATEGIC_MERGE_PATCH
from controller_manager.framework.controller.history import in_order
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from controllers.daemon_set.placement import node_of
from controllers.daemon_set.templates import HASH
from tests.scenarios.daemon_sets import FLAGS, WEB, join, relabel, taint
from tests.scenarios.workloads import Tree, label, owned, pods, set_status

ROWS = [json.loads(line) for line in Path(__file__).with_name("daemon_sets.jsonl").read_text().splitlines()]
OWN = "example.org/own"
SELECTED: Tree = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [
        {"key": OWN, "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
                }
            ]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
            }
        },
    },
}


def template(image: str, **spec: Any) -> Tree:
    container = {
        "name": "main",
        "image": image,
        "resources": {"requests": {"cpu": "100m"}},
        "ports": [{"containerPort": 80}],
    }
    meta = {"labels": {"app": "web"}, "annotations": {"x": "y"}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


class RecordedSteps:
    """Runs the recorded steps."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._codes: dict[str, str] = {}

    async def create(self) -> None:
        for name in "abc":
            await join(self._cluster, name)
        await join(self._cluster, "d", disk="ssd")
        await taint(self._cluster, "d", (OWN, "NoSchedule"))
        meta = {"name": "web", "namespace": "default", "annotations": {"kubernetes.io/change-cause": "made"}}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template("i:1")}
        tree = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}
        await self._cluster.client.create(DAEMON_SETS, DaemonSet.decode(msgspec.json.encode(tree)))

    async def change(self, **spec: Any) -> None:
        await self._cluster.client.patch(DAEMON_SETS, WEB, {"spec": spec}, STRATEGIC_MERGE_PATCH)

    async def use(self, image: str, **spec: Any) -> None:
        await self.change(template=template(image, **spec))

    async def undo(self) -> None:
        """Roll back as `kubectl rollout undo` does."""
        former, _ = in_order((await self._cluster.client.list(CONTROLLER_REVISIONS, "default")).items)
        await self._cluster.client.patch(DAEMON_SETS, WEB, msgspec.json.decode(former.data), STRATEGIC_MERGE_PATCH)

    async def taint(self, node: str, *taints: tuple[str, str]) -> None:
        await taint(self._cluster, node, *taints)

    async def label_node(self, disk: str | None) -> None:
        await relabel(self._cluster, "b", disk=disk)

    async def taint_with_conditions(self) -> None:
        await self.taint("b")
        kinds = (("not-ready", "NoExecute"), ("unschedulable", "NoSchedule"), ("memory-pressure", "NoSchedule"))
        await self.taint("c", *((f"node.kubernetes.io/{key}", effect) for key, effect in kinds))

    async def select(self) -> None:
        await self.taint("c")
        await self.use("i:1", **SELECTED)

    async def everywhere(self) -> None:
        freed = {"template": {"spec": {"nodeSelector": None, "affinity": None, "tolerations": None}}}
        await self._cluster.client.patch(DAEMON_SETS, WEB, {"spec": freed})

    async def on_delete(self) -> None:
        await self.change(updateStrategy={"$patch": "replace", "type": "OnDelete"})
        await self.use("i:4")

    async def pod_on(self, node: str) -> Pod:
        return next(pod for pod in await owned(self._cluster) if node_of(pod) == node)

    async def drop(self) -> None:
        await self._cluster.client.delete(PODS, Key("default", (await self.pod_on("a")).metadata.name))

    async def end(self, phase: str) -> None:
        await set_status(self._cluster, await self.pod_on("b"), phase=phase)

    async def add_orphan(self) -> None:
        meta = {"name": "orphan", "namespace": "default", "labels": {"app": "web"}}
        spec = {"nodeName": "c", "containers": [{"name": "x", "image": "i:9"}]}
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await self._cluster.client.create(PODS, Pod.decode(msgspec.json.encode(tree)))

    async def release(self) -> None:
        await label(self._cluster, await self.pod_on("c"), app="else")

    async def roll(self) -> None:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%", "maxSurge": 0}}
        await self.change(updateStrategy=rolling, minReadySeconds=2)

    async def seen(self) -> Tree:
        """Return the state in the form of the recording."""
        client = self._cluster.client
        found = await client.get(DAEMON_SETS, WEB)
        revisions = in_order((await client.list(CONTROLLER_REVISIONS, "default")).items)
        for one in revisions:
            self._codes.setdefault((one.metadata.labels or {})[HASH], f"h{len(self._codes)}")
        events = (await client.list(EVENTS, "default")).items
        trees = [msgspec.json.decode(pod.raw) for pod in await pods(self._cluster)]
        controlled = [(node_of(pod), msgspec.json.decode(pod.raw)) for pod in await owned(self._cluster)]
        return {
            "status": {k: v for k, v in msgspec.json.decode(found.raw)["status"].items() if k != "numberUnavailable"},
            "generation": found.metadata.generation,
            "pods": sorted(map(self._short, trees), key=partial(json.dumps, sort_keys=True)),
            "one": [self._whole(node, tree) for node, tree in sorted(controlled, key=lambda one: one[0])[:1]],
            "revisions": [self._revision(one.raw) for one in revisions],
            "data": msgspec.json.decode(revisions[-1].data),
            "events": sorted({f"{one.type} {one.reason} {one.source.component}" for one in events}),
        }

    def _named(self, labels: Tree) -> Tree:
        return {key: self._codes[value] if key == HASH else value for key, value in labels.items()}

    def _short(self, tree: Tree) -> Tree:
        pod = Pod.decode(msgspec.json.encode(tree))
        labels = self._named(dict(pod.metadata.labels or {}))
        image = tree["spec"]["containers"][0]["image"]
        return {"node": node_of(pod), "labels": labels, "image": image, "phase": pod.status.phase}

    def _whole(self, node: str, tree: Tree) -> Tree:
        meta, spec = tree["metadata"], tree["spec"]
        owners = [{k: v for k, v in one.items() if k != "uid"} for one in meta["ownerReferences"]]
        kept = {
            "affinity": spec["affinity"],
            "tolerations": spec["tolerations"],
            "annotations": meta.get("annotations"),
        }
        return {"node": node, "gen": meta["generateName"], "owner": owners, **kept}

    def _revision(self, raw: bytes) -> Tree:
        tree = msgspec.json.decode(raw)
        meta, template = tree["metadata"], tree["data"]["spec"]["template"]
        image = template["spec"]["containers"][0]["image"]
        labels = self._named(meta["labels"])
        return {"revision": tree["revision"], "labels": labels, "annotations": meta["annotations"], "image": image}


def steps(recorded: RecordedSteps, agent: PodAgent) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the action of each row."""

    async def spoil() -> None:
        agent.runs = lambda pod: b"i:bad" not in pod.raw
        await recorded.use("i:bad")

    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "created": recorded.create,
        "updated": partial(recorded.use, "i:2"),
        "undone": recorded.undo,
        "driven away": partial(recorded.taint, "a", (OWN, "NoExecute")),
        "back": partial(recorded.taint, "a"),
        "scheduled": partial(recorded.taint, "b", (OWN, "NoSchedule")),
        "in trouble": recorded.taint_with_conditions,
        "selected": recorded.select,
        "labelled": partial(recorded.label_node, "ssd"),
        "unlabelled": partial(recorded.label_node, None),
        "everywhere": recorded.everywhere,
        "surge set": partial(recorded.change, updateStrategy=surge),
        "surged": partial(recorded.use, "i:3"),
        "on delete": recorded.on_delete,
        "one deleted": recorded.drop,
        "Failed": partial(recorded.end, "Failed"),
        "Succeeded": partial(recorded.end, "Succeeded"),
        "another on the node": recorded.add_orphan,
        "released": recorded.release,
        "rolled": recorded.roll,
        "bad": spoil,
        "good": partial(recorded.use, "i:5"),
        "history 1": partial(recorded.change, revisionHistoryLimit=1),
    }


@pytest.mark.virtual
async def test_daemon_set_matches_recorded_steps() -> None:
    async with Cluster() as cluster, PodAgent(cluster) as agent:
        await cluster.manage(*FLAGS)
        recorded = RecordedSteps(cluster)
        todo = steps(recorded, agent)
        assert list(todo) == [row["step"] for row in ROWS]
        for row in ROWS:
            await todo[row["step"]]()
            await cluster.advance(30)
            if row["step"] == "scheduled":  # a status that the original reports only now
                await recorded.taint("b")
                await cluster.advance(10)
            assert comparable(await recorded.seen(), row) == comparable(row, row), row["step"]


def comparable(found: Tree, row: Tree) -> Tree:
    """Return the compared part of a row: all but nodes in any order, and an event that the original left
    out.
    """
    kept = {key: found[key] for key in row if key not in ("step", "events")}
    kept["events"] = [one for one in found["events"] if "SucceededDaemonPod" not in one]
    if row["step"] == "bad":
        kept["pods"] = sorted((one["image"], one["phase"]) for one in found["pods"])
        del kept["one"]
    status = {key: value for key, value in kept["status"].items() if key != "numberUnavailable" and value}
    return {**kept, "status": status}
