"""Validating admission policies as recorded from Kubernetes 1.36, by requests to a whole server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver_stub.whole_server.recorded import difference, outcome, substituted

DATA = Path(__file__).parent / "data"


def rows(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


async def played(api: Any, row: Any, run: str) -> list[str]:
    """How the answers to the steps of a row differ from what was recorded."""
    differences = []
    for number, recorded in enumerate(row["steps"]):
        step = substituted(recorded, {"RUN": run})
        headers = {"content_type": step["content_type"]} if "content_type" in step else {}
        query = f"?{step['query']}" if "query" in step else ""
        answer = await api.send(step["verb"], step["path"] + query, step.get("body"), **headers)
        told = answer.repeated.get("warning", ()) if answer.repeated else ()
        warnings = [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in told]
        found = difference(step, outcome(step, answer.status, json.loads(answer.body), warnings))
        if found:
            differences.append(f"{row['what']}, step {number}: {found}")
    return differences


@pytest.mark.parametrize("name", ["validating_policies", "validating_policy_rules"])
async def test_recorded_rows(started: Callable[..., Any], name: str) -> None:
    async with started() as api:
        found = [told for number, row in enumerate(rows(name)) for told in await played(api, row, f"x{number}")]
    assert not found, "\n".join(found)
