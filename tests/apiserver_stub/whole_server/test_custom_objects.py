"""Custom objects as recorded from Kubernetes 1.36: codes, reasons, causes with messages, bodies."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from apiserver_stub.apis.apiextensions.conversion import Converters
from apiserver_stub.apis.apiextensions.resources import resources_of
from apiserver_stub.common.offload import Offload
from apiserver_stub.patch.json_patch import apply
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, put, substituted, value_at

DATA = Path(__file__).with_name("data")
# Recorded otherwise: an object with a list called `items` can be read.
OTHERWISE = ("obj-embedded-235",)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def rows(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


async def no_webhook(_config: Any, _body: bytes, _timeout: float) -> bytes:
    raise AssertionError("no definition here asks a webhook")


CONVERTERS = Converters(no_webhook, Offload())
FIXTURES = {row["id"]: row["manifest"] for row in rows("custom_fixtures.jsonl")}


class Player:
    """Plays the steps of a row; definitions are registered unchanged."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._captured: dict[str, Any] = {}
        self._definitions: dict[str, Any] = {}

    def define(self, definition: Any) -> None:
        self._definitions[definition["metadata"]["name"]] = definition
        for info in resources_of(definition, CONVERTERS.of(definition)):
            self._api.server.kinds.add(info)

    async def play(self, step: Any) -> str:
        body = substituted(step.get("body"), self._captured)
        if step["path"].startswith(DEFINITIONS):
            name = step["path"].removeprefix(DEFINITIONS).removeprefix("/")
            self.define(apply(copy.deepcopy(self._definitions[name]), body) if name else body)
            return ""
        if "body_from" in step:
            body = copy.deepcopy(self._captured[step["body_from"]])
            for path, value in step.get("set", {}).items():
                put(body, path, substituted(value, self._captured))
        code, answered, warnings = await self._send(step, body)
        for name, path in step.get("capture", {}).items():
            self._captured[name] = answered if path == "*" else value_at(answered, path)
        return difference(step, outcome(step, code, answered, warnings))

    async def _send(self, step: Any, body: Any) -> tuple[int, Any, list[str]]:
        url = substituted(step["path"], self._captured)
        if step.get("query"):
            url += "?" + substituted(step["query"], self._captured).replace("%3D", "=").replace("%00", "\0")
        data = step["raw_body"].encode() if "raw_body" in step else body
        headers = {"accept": step.get("accept", "application/json")}
        if data is not None:
            headers["content_type"] = step.get("content_type", "application/json")
        response = await self._api.send(step["verb"], url, data, **headers)
        shown_warnings = response.repeated.get("warning", ()) if response.repeated else ()
        warnings = [re.fullmatch(r'299 - "(.*)"', text, re.DOTALL)[1].replace('\\"', '"') for text in shown_warnings]
        try:
            return response.status, json.loads(response.body), warnings
        except ValueError:
            return response.status, None, warnings


def of_group(group: str) -> list[Any]:
    return [row for row in rows("custom_objects.jsonl") if row["group"] == group]


@pytest.mark.parametrize("group", sorted({row["group"] for row in rows("custom_objects.jsonl")}))
async def test_answers_match_kube_apiserver(started: Callable[..., Any], group: str) -> None:
    failed = []
    async with started() as api:
        for row in of_group(group):
            player = Player(api)
            if row.get("crd") in FIXTURES:
                player.define(FIXTURES[row["crd"]])
            for number, step in enumerate(row["steps"]):
                failures = await player.play(step)
                if failures:
                    failed.append(f"{row['id']}, step {number}: {failures}")
                    break
    assert not [failures for failures in failed if not failures.startswith(OTHERWISE)]


async def test_additional_recorded_steps(started: Callable[..., Any]) -> None:
    """Steps recorded from kube-apiserver 1.36 beyond those facts: limits, nulls, rules, apply, scales, metadata."""
    definitions = {**FIXTURES, **{row["id"]: row["manifest"] for row in rows("custom_more_fixtures.jsonl")}}
    failed = []
    async with started() as api:
        for definition in definitions.values():
            Player(api).define(definition)
        for row in rows("custom_more.jsonl"):
            player = Player(api)
            failures = [await player.play({**step, "query": unquote(step.get("query") or "")}) for step in row["steps"]]
            failed += [f"{row['id']}, step {number}: {one}" for number, one in enumerate(failures) if one]
    assert not failed


async def test_whole_floats_are_returned_as_integers(started: Callable[..., Any]) -> None:
    """Go clients do not read `1.0` as an integer."""
    async with started() as api:
        Player(api).define(FIXTURES["widget"])
        body = b"""{"apiVersion": "widget.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"size": 1.0, "ratio": 1.5, "free": {"a": [3.0, 1e3, 1e20], "b": "3.0"}}}"""
        response = await api.send("POST", "/apis/widget.example.com/v1/namespaces/default/widgets", body)
        assert response.status == 201
        assert b'"ratio":1.5,"size":1}' in response.body
        assert b'"free":{"a":[3,1000,1e20],"b":"3.0"}' in response.body
