"""Admission plugins as recorded from Kubernetes 1.36, on a whole server without controllers."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.serving.http import fold_headers, repeated_headers
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted, value_at

DATA = Path(__file__).parent / "data" / "admission_plugins.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text().splitlines()]
ADMIN = Certificate("admin", ("system:masters",))
PLUGINS = ("NodeRestriction", "OwnerReferencesPermissionEnforcement")


async def send(server: ApiServer, step: Any) -> tuple[int, Any, list[str]]:
    """The answer to a step: its status, body and warnings."""
    named = {"Content-Type": step.get("content_type", "application/json"), **step.get("headers", {})}
    headers = [(name, one) for name, shown in named.items() for one in ([shown] if isinstance(shown, str) else shown)]
    query = tuple((pair.partition("=")[0], pair.partition("=")[2].replace("%3D", "=")) for pair in _pairs(step))
    body = json.dumps(step["body"]).encode() if "body" in step else b""
    folded, apart = fold_headers(headers), repeated_headers(headers)
    answer = await server.handle(Request(step["verb"], step["path"], query, folded, body, ADMIN, apart))
    assert isinstance(answer.body, bytes)
    warnings = [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in answer.repeated.get("warning", ())]
    return answer.status, json.loads(answer.body), warnings


def _pairs(step: Any) -> list[str]:
    return [pair for pair in step.get("query", "").split("&") if pair]


def _without_suffixes(value: Any) -> Any:
    """A value with equal generated volume names."""
    return json.loads(re.sub(r"kube-api-access-[a-z0-9]{5}\b", "kube-api-access-<rand>", json.dumps(value)))


@pytest.mark.virtual
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_answers_match_kube_apiserver(started: Callable[..., Any], row: Any) -> None:
    captured = {"RUN": "x1"}
    plugins = ",".join((*PLUGINS, *row.get("needs", ())))
    off = ",".join(row.get("off", ()))
    flags = (f"--enable-admission-plugins={plugins}", f"--disable-admission-plugins={off}")
    async with started("--authorization-mode=Node,RBAC", *flags) as api:
        for number, recorded in enumerate(row["steps"]):
            step = substituted(recorded, captured)
            await asyncio.sleep(step.get("wait_s", 0))
            code, body, warnings = await send(api.server, step)
            captured |= {name: value_at(body, path) for name, path in step.get("capture", {}).items()}
            if step.get("ignore_warnings"):
                warnings = []
            found = _without_suffixes(outcome(step, code, body, warnings))
            assert not difference(step, found), (number, step["path"])
            if "status" in step:
                assert found["status"]["message"] == step["status"]["message"], number
