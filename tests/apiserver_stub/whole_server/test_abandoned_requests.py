"""Requests canceled at any moment: their writes are complete or absent, and watches see each once."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from tests.apiserver_stub.api_client import CONFIGS, ApiClient

MERGE = "application/merge-patch+json"


def random_write(chosen: random.Random, number: int) -> tuple[str, str, Any]:
    name = f"c{chosen.randrange(8)}"
    match chosen.choice(["create", "patch", "patch", "delete"]):
        case "create":
            return "POST", CONFIGS, {"metadata": {"name": name}}
        case "patch":
            return "PATCH", f"{CONFIGS}/{name}", {"data": {f"k{number % 5}": str(number)}}
    return "DELETE", f"{CONFIGS}/{name}", None


async def start_and_cancel(api: ApiClient, chosen: random.Random, number: int) -> None:
    async with asyncio.TaskGroup() as group:
        method, url, body = random_write(chosen, number)
        headers = {"content_type": MERGE} if method == "PATCH" else {}
        task = group.create_task(api.ask(method, url, body, **headers))
        if chosen.random() < 0.7:
            for _ in range(chosen.randrange(12)):
                await asyncio.sleep(0 if chosen.random() < 0.7 else 0.0005)
            task.cancel()


def started(folder: Path) -> ApiServer:
    return build(FLAGS.parse([f"--data-dir={folder}", "--advertise-address=192.0.2.1"]), Runtime("test"))


@pytest.mark.virtual
async def test_canceled_write_is_complete_and_delivered_once(tmp_path: Path) -> None:
    server = started(tmp_path)
    await server.start()
    api = ApiClient(server)
    version, chosen = (await api.get(CONFIGS)).version, random.Random(7)
    for first in range(0, 400, 40):
        await all_of(*(start_and_cancel(api, chosen, first + n) for n in range(40)))
    events = await api.watch(f"resourceVersion={version}&timeoutSeconds=1")
    final = (await api.get(CONFIGS)).tree["items"]
    await server.stop()
    types = {"kind": "ConfigMap", "apiVersion": "v1"}  # which list items omit
    state: dict[str, Any] = {}
    for event in events:
        name = event["object"]["metadata"]["name"]
        assert (event["type"] == "ADDED") is (name not in state)
        state[name] = event["object"]
        if event["type"] == "DELETED":
            del state[name]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert len(events) > 50
    assert revisions == sorted(set(revisions))
    assert [state[name] for name in sorted(state)] == [types | item for item in final]
    again = started(tmp_path)
    await again.start()
    assert (await ApiClient(again).get(CONFIGS)).tree["items"] == final
    await again.stop()
