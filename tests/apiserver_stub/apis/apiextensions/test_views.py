"""Tables and metadata of custom objects in JSON and protobuf: get, list and watch as recorded from kube-apiserver 1.36.

`views.jsonl` holds definitions, objects, and then requests with their answers: an `answer`, or the `events` of a watch.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apiserver_stub.encode.protobuf import decode
from controller_manager.common.api.protobuf.wire import fields
from controller_manager.common.api.wire import Request
from tests.apiserver_stub.apis.apiextensions.conftest import ADMIN, DEFINITIONS
from tests.apiserver_stub.whole_server.recorded_requests import normal

pytestmark = pytest.mark.virtual

MADE, *STEPS = [json.loads(line) for line in (Path(__file__).parent / "data" / "views.jsonl").read_text().splitlines()]
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
WHATS = "/apis/views.example.com/v1/namespaces/default/whats"


def messages(data: bytes) -> Iterator[tuple[str, Any]]:
    """The events of a watch in protobuf."""
    while data:
        size = int.from_bytes(data[:4], "big")
        event, data = dict(fields(data[4 : 4 + size])), data[4 + size :]
        kind, [(_, shown)] = event[1 << 3 | 2], fields(event[2 << 3 | 2])
        yield kind.decode(), decode(shown, "", "")


def lines(data: bytes) -> Iterator[tuple[str, Any]]:
    for line in data.splitlines():
        event = json.loads(line)
        yield event["type"], event["object"]


def in_normal_form(events: Iterator[tuple[str, Any]]) -> list[Any]:
    """Events in normal form; only the first table of a watch has column definitions."""
    found, columns = [], None
    for type_, reported in events:
        headed = reported.get("columnDefinitions")
        columns = headed or columns
        shown = normal({**reported, "columnDefinitions": columns} if columns else reported)
        found.append([type_, shown if headed else {**shown, "columnDefinitions": None} if columns else shown])
    return found


async def whole(body: bytes | AsyncIterator[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])


async def ask(admin: Any, step: Any) -> Any:
    """Send a request; return the compared parts of its answer."""
    pairs = [pair.partition("=") for pair in step.get("query", "").split("&") if pair]
    query = tuple((name, value.replace("%3D", "=")) for name, _, value in pairs)
    media = "application/merge-patch+json" if step["verb"] == "PATCH" else "application/json"
    body = msgspec.json.encode(step["body"]) if "body" in step else b""
    headers = {"accept": step["accept"], "content-type": media}
    response = await admin.api.handle(Request(step["verb"], step["path"], query, headers, body, ADMIN))
    found = {"code": response.status, "type": response.headers["content-type"]}
    if response.status >= 400:
        return found
    data, binary = await whole(response.body), "protobuf" in found["type"]
    if "events" in step:
        events = in_normal_form(messages(data) if binary else lines(data))
        return {**found, "events": events[: len(step["events"])]}  # a server may send a final bookmark at any time
    if "answer" not in step:
        return found
    return {**found, "answer": normal(decode(data, "", "") if binary else json.loads(data))}


@pytest.fixture
async def populated(admin: Any) -> Any:
    """A server with the recorded definitions and objects."""
    for definition in MADE["definitions"]:
        assert (await admin("POST", DEFINITIONS, definition))[0] == 201
    await asyncio.sleep(0.1)
    for path, tree in MADE["objects"]:
        assert (await admin("POST", path, tree))[0] == 201
    return admin


async def test_views_match_kube_apiserver(populated: Any) -> None:
    wrong = []
    for number, step in enumerate(STEPS):
        found = await ask(populated, step)
        expected = {name: step[name] for name in ("code", "type", "answer", "events") if name in step}
        if found != expected:
            wrong.append((number, step["verb"], step["path"], step.get("query"), step["accept"], found, expected))
    assert wrong == []


async def test_columns_have_descriptions(populated: Any) -> None:
    """The description in the definition takes precedence."""

    async def described(path: str) -> list[tuple[str, str]]:
        response = await populated.api.handle(Request("GET", path, (), {"accept": TABLE}, b"", ADMIN))
        return [(one["name"], one["description"]) for one in json.loads(response.body)["columnDefinitions"]]

    found = await described(WHATS)
    assert found[1] == ("Str", "A text.")
    assert all(shown for _, shown in found)
    assert ".spec.int" in found[2][1]
    assert [name for name, shown in await described(f"{WHATS}/a/scale") if shown] == [
        "Name", "Desired", "Available", "Age",
    ]  # fmt: skip
    assert [name for name, shown in await described("/apis/views.example.com/v1/plains") if shown] == ["Name", "Age"]


async def test_invalid_scale_value_is_reported_as_by_go(populated: Any) -> None:
    for value, printed in (
        (2.5, "2.5 is of the type float64"),
        (True, "true is of the type bool"),
        ([1, None], "[1 <nil>] is of the type []interface {}"),
        ({"b": 1.0, "a": False}, "map[a:false b:1] is of the type map[string]interface {}"),
    ):
        tree = {"apiVersion": "views.example.com/v1", "kind": "What", "metadata": {"name": "n"}, "spec": {"int": value}}
        code, status = await populated("POST", WHATS, tree)
        assert code == 422
        assert f".spec.int accessor error: {printed}, expected int64" in status["message"]
