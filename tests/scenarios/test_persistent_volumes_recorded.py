"""Claims, volumes and recycler pods go through the states recorded from kube-controller-manager 1.36.

`persistent_volumes.jsonl` has the requests to a real API server, all following states of all objects, and the events;
the manager synced every second. Times, uids, messages and images are left out.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import EVENTS, PODS
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster

pytestmark = pytest.mark.virtual

FILE = Path(__file__).with_name("persistent_volumes.jsonl")
ROWS = [json.loads(line) for line in FILE.read_text().splitlines()]
ON = (
    "--leader-elect=false",
    "--controllers=persistentvolume-binder,persistentvolume-expander,pvc-protection,pv-protection",
    "--pvclaimbinder-sync-period=1s",
)
RESOURCES = {one.kind: one for one in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, PODS, STORAGE_CLASSES)}
SEEN = {one.name: one for one in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, PODS)}
MERGE = "application/merge-patch+json"


def shown(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the compared part of an object."""
    meta, spec, status = tree["metadata"], tree["spec"], tree.get("status", {})
    common = {
        "phase": status.get("phase"),
        "annotations": meta.get("annotations"),
        "finalizers": meta.get("finalizers"),
        "deleting": "deletionTimestamp" in meta,
    }
    if "containers" in spec:
        keys = ("activeDeadlineSeconds", "restartPolicy")
        volumes = [{k: v for k, v in one.items() if k != "projected"} for one in spec.get("volumes", [])]
        kept = [one for one in volumes if len(one) > 1]
        del common["deleting"]  # which some servers report again before a pod is deleted at once
        return {**common, **{key: spec.get(key) for key in keys}, "volumes": kept}
    if "persistentVolumeReclaimPolicy" in spec:
        claim = spec.get("claimRef") or {}
        of = [claim.get("namespace"), claim.get("name"), "uid" in claim]
        return {**common, "claim": of if claim else None, "capacity": spec["capacity"]}
    keys = ("accessModes", "capacity", "allocatedResources", "allocatedResourceStatuses")
    return {
        **common,
        "volume": spec.get("volumeName"),
        "class": spec.get("storageClassName"),
        "attributes": status.get("currentVolumeAttributesClassName"),
        "conditions": [[one["type"], one["status"]] for one in status.get("conditions", [])],
        **{key: status.get(key) for key in keys},
    }


def sequence(states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes between successive different states."""
    different = [key for key, _ in groupby(states)]
    differences = []
    for before, after in zip([{}, *different], different, strict=False):
        differences.append({key: value for key, value in after.items() if value != before.get(key)})
    return differences


class Sequences:
    """Records the states of all objects in the store."""

    def __init__(self, cluster: Cluster) -> None:
        self._states: dict[str, list[dict[str, Any]]] = {}
        cluster.api.store.subscribe(self._note)

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            resource = SEEN.get(change.row.resource)
            if resource is not None:
                tree = json.loads(bytes(change.row.data))
                states = self._states.setdefault(f"{resource.kind}/{tree['metadata']['name']}", [])
                states.append({"gone": True} if change.deleted else shown(tree))

    def by_object(self) -> dict[str, list[dict[str, Any]]]:
        """Return the state changes of each object."""
        return {name: sequence(states) for name, states in self._states.items()}


async def take(cluster: Cluster, step: dict[str, Any]) -> None:
    """Run a recorded step."""
    match step:
        case {"wait": seconds}:
            await cluster.sleep(seconds)
        case {"create": tree}:
            resource: Resource[Any] = RESOURCES[tree["kind"]]
            path = resource.path(tree["metadata"].get("namespace", ""))
            await cluster.client.raw(Call("POST", path, body=json.dumps(await filled(cluster, tree)).encode()))
        case {"delete": [kind, name]}:
            options = {"gracePeriodSeconds": 0} if kind == "Pod" else {}
            await cluster.client.raw(Call("DELETE", path_of(kind, name), body=json.dumps(options).encode()))
        case {"patch": [kind, name, change, subresource]}:
            path, body = path_of(kind, name, subresource), json.dumps(change).encode()
            await cluster.client.raw(Call("PATCH", path, body=body, content_type=MERGE))


def path_of(kind: str, name: str, subresource: str = "") -> str:
    resource = RESOURCES[kind]
    return resource.path("default" if resource.namespaced else "", name, subresource)


async def filled(cluster: Cluster, tree: Any) -> Any:
    """Return an object with the uid of its claim filled in."""
    reference = tree["spec"].get("claimRef", {}) if "spec" in tree else {}
    if not reference.get("uid", "").startswith("$uid:"):
        return tree
    kind, _, name = reference["uid"].removeprefix("$uid:").partition("/")
    found = json.loads(await cluster.client.raw(Call("GET", path_of(kind, name))))
    return {**tree, "spec": {**tree["spec"], "claimRef": {**reference, "uid": found["metadata"]["uid"]}}}


async def reasons(cluster: Cluster) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for one in (await cluster.client.list(EVENTS)).items:
        name = f"{one.involved_object.kind}/{one.involved_object.name}"
        found.setdefault(name, set()).add(f"{one.type} {one.reason}")
    return {name: sorted(ones) for name, ones in sorted(found.items())}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
async def test_volume_states_match_recorded_steps(row: dict[str, Any]) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON)
        await cluster.sleep(1.3)  # so that periodic syncs do not coincide with steps
        sequences = Sequences(cluster)
        for step in row["steps"]:
            await take(cluster, step)
        await cluster.sleep(0.5)
        assert sequences.by_object() == row["states"]
        assert await reasons(cluster) == row["events"]
