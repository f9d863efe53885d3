"""The volume controllers behave as recorded from kube-controller-manager 1.36, step by step.

`volumes_recorded.jsonl` was recorded from a real API server, with an attacher that answers each VolumeAttachment except
those of the volumes in `fail`. A row has the requests of a step, and the state some seconds later: claims of ephemeral
volumes, finalizers of a class, VolumeAttachments, the lists of nodes, and events about pods.
"""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import Object
from controller_manager.common.api.storage import VolumeAttachment
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster
from controller_manager.testing.csi_driver import SimulatedDriver
from controllers import attach_detach, ephemeral_volumes, selinux_warning, volume_attributes_class_protection
from tests.scenarios.volumes import DRIVER

Tree = dict[str, Any]
ROWS = [json.loads(line) for line in Path(__file__).with_name("volumes_recorded.jsonl").read_text().splitlines()]
SPECS = (
    *attach_detach.SPECS,
    *ephemeral_volumes.SPECS,
    *selinux_warning.SPECS,
    *volume_attributes_class_protection.SPECS,
)
CORE, STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"


class Replay:
    """Sends the recorded requests to a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client
        self._uids: dict[str, str] = {}
        self.fail: set[str] = set()

    def fails(self, _: str, found: Object) -> str:
        return "no such disk" if isinstance(found, VolumeAttachment) and _volume(found) in self.fail else ""

    async def ask(self, method: str, path: str, body: Tree | None = None) -> Tree:
        text = json.dumps(body)
        for name, uid in self._uids.items():
            text = text.replace(f'uid of {name}"', f'{uid}"')
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = text.encode() if body is not None else b""
        answer: Tree = json.loads(await self._client.raw(Call(method, path, body=data, content_type=kind)))
        if method == "POST" and path.endswith("persistentvolumeclaims"):
            self._uids[answer["metadata"]["name"]] = answer["metadata"]["uid"]
        return answer

    async def items(self, path: str) -> list[Tree]:
        found: list[Tree] = (await self.ask("GET", path))["items"]
        return found

    async def seen(self) -> Tree:
        attachments = await self.items(f"{STORAGE}/volumeattachments")
        nodes = await self.items(f"{CORE}/nodes")
        events = [one for one in await self.items(f"{CORE}/events") if one["involvedObject"]["kind"] == "Pod"]
        claims = await self.items(f"{CORE}/persistentvolumeclaims")
        return {
            "attachments": sorted((_attachment(one) for one in attachments), key=lambda one: one["name"]),
            "listed": {one["metadata"]["name"]: _listed(one) for one in nodes},
            "events": sorted(map(list, {_event(one) for one in events})),
            "claims": sorted(_claim(one) for one in claims if one["metadata"]["name"].startswith("eph-")),
            "finalizers": await self._finalizers(),
        }

    async def _finalizers(self) -> list[str] | None:
        try:
            found = await self.ask("GET", f"{STORAGE}/volumeattributesclasses/gold")
        except NotFound:
            return None
        kept: list[str] | None = found["metadata"].get("finalizers")
        return kept


def _volume(found: VolumeAttachment) -> str:
    return found.spec.source.persistent_volume_name or ""


def _attachment(one: Tree) -> Tree:
    meta = one["metadata"]
    attached = one.get("status", {}).get("attached")
    return {"name": meta["name"], "spec": one["spec"], "attached": attached, "deleting": "deletionTimestamp" in meta}


def _listed(node: Tree) -> list[str]:
    return sorted(f"{one['name']}|{one['devicePath']}" for one in node["status"].get("volumesAttached", ()))


def _event(one: Tree) -> tuple[str, ...]:
    return one["involvedObject"]["name"], one["type"], one["reason"], one["source"]["component"]


def _claim(one: Tree) -> list[Any]:
    meta = one["metadata"]
    owners = [{name: value for name, value in it.items() if name != "uid"} for it in meta.get("ownerReferences", ())]
    return [meta["name"], meta.get("labels"), meta.get("annotations"), owners, one["spec"]["accessModes"]]


def drivers() -> set[str]:
    found = (one["spec"]["attacher"] for row in ROWS for one in row["seen"].get("attachments", ()))
    return {DRIVER, *found}


@pytest.mark.virtual
async def test_volume_controllers_match_recorded_steps() -> None:
    async with Cluster() as cluster, AsyncExitStack() as stack:
        replay = Replay(cluster)
        for name in sorted(drivers()):
            await stack.enter_async_context(SimulatedDriver(cluster, name, fails=replay.fails))
        await cluster.manage("--leader-elect=false", "--controllers=*,selinux-warning-controller", specs=SPECS)
        for row in ROWS:
            replay.fail = set(row["fail"])
            for request in row["requests"]:
                await replay.ask(*request)
            await cluster.sleep(130 if row["step"] == "heals" else 20)
            seen = await replay.seen()
            assert {name: seen[name] for name in row["seen"]} == row["seen"], row["step"]
