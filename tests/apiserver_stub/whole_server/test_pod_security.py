"""Pod Security as recorded from Kubernetes 1.36, by requests to a whole server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "pod_security.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
async def test_answers_match_kube_apiserver(started: Callable[..., Any], row: Any) -> None:
    async with started() as api:
        for number, recorded in enumerate(row["steps"]):
            step = substituted(recorded, {"RUN": "x1"})
            headers = {"content_type": step["content_type"]} if "content_type" in step else {}
            query = f"?{step['query']}" if "query" in step else ""
            answer = await api.send(step["verb"], step["path"] + query, step["body"], **headers)
            shown_warnings = answer.repeated.get("warning", ())
            warnings = [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in shown_warnings]
            found = outcome(step, answer.status, json.loads(answer.body), warnings)
            assert not difference(step, found), number
            if "status" in step:
                assert found["status"]["message"] == step["status"]["message"]
