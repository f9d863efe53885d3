"""Expressions of device selectors are rejected as recorded from kube-apiserver, in every place."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime

ROWS = [json.loads(line) for line in Path(__file__).with_name("device_selectors.jsonl").read_text().splitlines()]
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS, TEMPLATES = (f"{GROUP}/namespaces/default/{kind}" for kind in ("resourceclaims", "resourceclaimtemplates"))
LONGEST = 10 * 1024
# For an empty text kube-apiserver reports another column, and no line.
EMPTY = "Invalid value: \"\": compilation failed: ERROR: <input>:1:1: Syntax error: mismatched input '<EOF>'"


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = build(FLAGS.parse(("--storage-backend=memory",)), Runtime("test"))
    await server.start()
    yield server
    await server.stop()


async def causes(api: ApiServer, path: str, spec: Any) -> list[list[str]]:
    """Return reason, field and message of each cause for a new object."""
    body = msgspec.json.encode({"metadata": {"generateName": "some-"}, "spec": spec})
    headers = {"content-type": "application/json"}
    answer = await api.handle(Request("POST", path, (("dryRun", "All"),), headers, body, Certificate("test")))
    assert isinstance(answer.body, bytes)
    assert answer.status in (201, 422), answer.body
    found = msgspec.json.decode(answer.body).get("details", {}).get("causes", [])
    return [[cause["reason"], cause["field"], cause["message"]] for cause in found]


def places(expression: str) -> list[tuple[str, Any, str]]:
    """Return the places of an expression: the collection, the spec, the path of the field."""
    selectors = {"selectors": [{"cel": {"expression": expression}}]}
    exactly = {"name": "one", "exactly": {"deviceClassName": "some", **selectors}}
    first = {"name": "one", "firstAvailable": [{"name": "other", "deviceClassName": "some", **selectors}]}
    claim, request = {"devices": {"requests": [exactly]}}, "devices.requests[0]"
    return [
        (f"{GROUP}/deviceclasses", selectors, "spec"),
        (CLAIMS, claim, f"spec.{request}.exactly"),
        (CLAIMS, {"devices": {"requests": [first]}}, f"spec.{request}.firstAvailable[0]"),
        (TEMPLATES, {"spec": claim}, f"spec.spec.{request}.exactly"),
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["expression"][:40])
async def test_invalid_expressions_are_reported(api: ApiServer, row: Any) -> None:
    for path, spec, place in places(row["expression"]):
        found = await causes(api, path, spec)
        if row["expression"]:
            assert found == [[reason, f"{place}.selectors[0].cel.expression", text] for reason, text in row["causes"]]
        else:
            assert [cause[0] for cause in found] == ["FieldValueInvalid"]
            assert found[0][2].startswith(EMPTY)


@pytest.mark.parametrize(("length", "reasons"), [(LONGEST, []), (LONGEST + 1, ["FieldValueTooLong"])])
async def test_too_long_expressions_are_rejected(api: ApiServer, length: int, reasons: list[str]) -> None:
    text = '"a" != ""'
    for path, spec, _ in places(text + " " * (length - len(text))):
        assert [cause[0] for cause in await causes(api, path, spec)] == reasons
