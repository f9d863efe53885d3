"""Plugins that are off by default, on a whole server: answers of kube-apiserver 1.36 to the same requests. Error
messages are our own.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted

SETUPS = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "optional_plugins.jsonl").read_text().splitlines()
]
OTHERWISE = {
    "extended/bad-name": "one rule of names of resources is reported, and not both",
}
"""Rows that differ for reasons outside the plugin."""


def param_of(setup: Any) -> Any:
    name = setup["rows"][0]["what"].partition("/")[0]
    marks = (pytest.mark.one_process("a limit of one event cannot be divided"),) if name == "rate" else ()
    return pytest.param(setup, id=name, marks=marks)


@pytest.mark.parametrize("setup", [param_of(setup) for setup in SETUPS])
async def test_answers_match_kube_apiserver(setup: Any, started: Callable[..., Any], tmp_path: Path) -> None:
    for name, text in setup["files"].items():
        (tmp_path / name).write_text(text)
    flags = [flag.replace("@DIR@", str(tmp_path)) for flag in setup["flags"]]
    wrong = []
    if "--enable-admission-plugins=AlwaysDeny" in flags:  # default objects already exist
        async with started():
            pass
    async with started(*flags) as api:
        for row in setup["rows"]:
            for number, recorded in enumerate(row["steps"]):
                step = substituted(recorded, {})
                headers = {"content_type": step["content_type"]} if "content_type" in step else {}
                query = f"?{step['query']}" if "query" in step else ""
                answer = await api.send(step["verb"], step["path"] + query, step.get("body"), **headers)
                shown_warnings = answer.repeated.get("warning", ())
                warnings = [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in shown_warnings]
                found = outcome(step, answer.status, json.loads(answer.body), warnings)
                if row["what"] not in OTHERWISE and (what := difference(step, found, messages=False)):
                    wrong.append(f"{row['what']} {number}: {what}")
    assert not wrong, "\n".join(wrong)
