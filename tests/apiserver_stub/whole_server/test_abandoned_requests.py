"""Requests canceled at any moment: their writes are complete or absent, and watches see each once."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of

ADMIN = Certificate("admin", ("system:masters",))
CONFIGS = "/api/v1/namespaces/default/configmaps"
PATCH = {"content-type": "application/merge-patch+json"}


async def ask(api: ApiServer, method: str, path: str, body: Any = None, *query: tuple[str, str]) -> Response:
    data = b"" if body is None else msgspec.json.encode(body)
    return await api.handle(Request(method, path, query, PATCH if method == "PATCH" else {}, data, ADMIN))


async def list_objects(api: ApiServer) -> Any:
    body = (await ask(api, "GET", CONFIGS)).body
    assert isinstance(body, bytes)
    return msgspec.json.decode(body)


def random_write(chosen: random.Random, number: int) -> tuple[str, str, Any]:
    name = f"c{chosen.randrange(8)}"
    match chosen.choice(["create", "patch", "patch", "delete"]):
        case "create":
            return "POST", CONFIGS, {"metadata": {"name": name}}
        case "patch":
            return "PATCH", f"{CONFIGS}/{name}", {"data": {f"k{number % 5}": str(number)}}
    return "DELETE", f"{CONFIGS}/{name}", None


async def start_and_cancel(api: ApiServer, chosen: random.Random, number: int) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ask(api, *random_write(chosen, number)))
        if chosen.random() < 0.7:
            for _ in range(chosen.randrange(12)):
                await asyncio.sleep(0 if chosen.random() < 0.7 else 0.0005)
            task.cancel()


async def events(api: ApiServer, version: str) -> list[Any]:
    """All events since `version`."""
    stop = ("watch", "1"), ("resourceVersion", version), ("timeoutSeconds", "1")
    stream = (await ask(api, "GET", CONFIGS, None, *stop)).body
    assert not isinstance(stream, bytes)
    return [msgspec.json.decode(line) async for chunk in stream for line in chunk.splitlines()]


def started(folder: Path) -> ApiServer:
    return build(FLAGS.parse([f"--data-dir={folder}", "--advertise-address=192.0.2.1"]), Runtime("test"))


@pytest.mark.virtual
async def test_canceled_write_is_complete_and_delivered_once(tmp_path: Path) -> None:
    api = started(tmp_path)
    await api.start()
    version, chosen = (await list_objects(api))["metadata"]["resourceVersion"], random.Random(7)
    for first in range(0, 400, 40):
        await all_of(*(start_and_cancel(api, chosen, first + n) for n in range(40)))
    told, final = await events(api, version), (await list_objects(api))["items"]
    await api.stop()
    types = {"kind": "ConfigMap", "apiVersion": "v1"}  # which list items omit
    state: dict[str, Any] = {}
    for event in told:
        name = event["object"]["metadata"]["name"]
        assert (event["type"] == "ADDED") is (name not in state)
        state[name] = event["object"]
        if event["type"] == "DELETED":
            del state[name]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in told]
    assert len(told) > 50
    assert revisions == sorted(set(revisions))
    assert [state[name] for name in sorted(state)] == [types | item for item in final]
    again = started(tmp_path)
    await again.start()
    assert (await list_objects(again))["items"] == final
    await again.stop()
