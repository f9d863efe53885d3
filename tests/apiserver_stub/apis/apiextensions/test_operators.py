"""Definitions published by operators, and their objects, with the results of kube-apiserver 1.36.

A row of `operators.jsonl` is a `definition`, its `conditions`, its OpenAPI (`openapi`: a digest of the whole schema,
and the fields of its spec), and requests with their answers (`steps`), including tables and deletions.
"""

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.wire import Request
from tests.apiserver_stub.apis.apiextensions.conftest import ADMIN, DEFINITIONS
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome

pytestmark = pytest.mark.virtual

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "operators.jsonl").read_text().splitlines()]


async def play(admin: Any, step: Any) -> str:
    """Send one request; return the differences between its answer and the recorded one."""
    pairs = [pair.partition("=") for pair in step.get("query", "").split("&") if pair]
    headers = {
        "accept": step.get("accept", "application/json"),
        "content-type": step.get("content_type", "application/json"),
    }
    body = msgspec.json.encode(step["body"]) if "body" in step else b""
    query = tuple((name, value) for name, _, value in pairs)
    response = await admin.api.handle(Request(step["verb"], step["path"], query, headers, body, ADMIN))
    shown_warnings = response.repeated.get("warning", ()) if response.repeated else ()
    warnings = [re.sub(r'^299 - "(.*)"$', r"\1", text, flags=re.DOTALL).replace('\\"', '"') for text in shown_warnings]
    return difference(step, outcome(step, response.status, msgspec.json.decode(response.body), warnings))


async def explained_schema(admin: Any, row: Any) -> Any:
    """The schema that `kubectl explain` reads from OpenAPI v3."""
    spec = row["definition"]["spec"]
    code, document = await admin("GET", f"/openapi/v3/apis/{spec['group']}/{spec['versions'][0]['name']}")
    assert code == 200
    name = row["openapi"]["schema"]
    schema = document["components"]["schemas"][name]
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    fields = schema["properties"].get("spec", {}).get("properties", {})
    return {"schema": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "properties": sorted(fields)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
async def test_operator_definitions_match_kube_apiserver(admin: Any, row: Any) -> None:
    name, spec = row["what"], row["definition"]["spec"]
    assert (await admin("POST", DEFINITIONS, row["definition"]))[0] == 201
    await asyncio.sleep(0.1)
    conditions = (await admin.definition(name))["status"]["conditions"]
    assert {one["type"]: [one["status"], one["reason"]] for one in conditions} == row["conditions"]
    assert await explained_schema(admin, row) == row["openapi"]
    failures = [await play(admin, step) for step in row["steps"]]
    assert [f"step {number}: {one}" for number, one in enumerate(failures) if one] == []

    assert (await admin("DELETE", f"{DEFINITIONS}/{name}"))[0] == 200
    await asyncio.sleep(2)
    assert (await admin("GET", f"{DEFINITIONS}/{name}"))[0] == 404
    assert (await admin("GET", f"/apis/{spec['group']}/{spec['versions'][0]['name']}"))[0] == 404
