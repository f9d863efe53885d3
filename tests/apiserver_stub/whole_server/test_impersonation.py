"""Impersonation as recorded from Kubernetes 1.36, by headers to a whole server with RBAC."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.serving.http import fold_headers, repeated_headers
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "impersonation.jsonl").read_text().splitlines()]
ADMIN = Certificate("admin", ("system:masters",))


def param_of(row: Any) -> Any:
    marks = pytest.mark.one_process("which refusal is returned depends on the mode that it saw allow something last")
    return pytest.param(row, id=row["id"], marks=[marks] if row["id"] == "adm-impersonation-012" else ())


@pytest.mark.parametrize("row", [param_of(row) for row in ROWS])
async def test_answers_match_kube_apiserver(started: Callable[..., Any], row: Any) -> None:
    captured = {"RUN": "x1"}
    async with started("--authorization-mode=RBAC") as api:
        for number, step in enumerate(row["steps"]):
            named = substituted(step.get("headers", {}), captured)
            headers = [
                (name, one) for name, shown in named.items() for one in ([shown] if isinstance(shown, str) else shown)
            ]
            if "token" in step:
                headers.append(("Authorization", f"Bearer {substituted(step['token'], captured)}"))
            body = json.dumps(substituted(step["body"], captured)).encode()
            folded, apart = fold_headers(headers), repeated_headers(headers)
            certificate = None if "token" in step else ADMIN
            path = substituted(step["path"], captured)
            answer = await api.server.handle(Request(step["verb"], path, (), folded, body, certificate, apart))
            answered = json.loads(answer.body)
            if "capture" in step:
                captured["tok"] = answered["status"]["token"]
            expected = substituted({name: step[name] for name in ("status", "body_out") if name in step}, captured)
            assert not difference({**step, **expected}, outcome(step, answer.status, answered, [])), number
            if "status" in step:
                assert answered["message"] == expected["status"]["message"]
