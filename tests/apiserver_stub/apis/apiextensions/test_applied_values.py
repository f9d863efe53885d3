"""Configurations with nulls and empty values, applied to a custom object by two managers, with the results of kube-
apiserver 1.36.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver_stub.apis.apiextensions.conftest import DEFINITIONS, Administrator, served

pytestmark = pytest.mark.virtual

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data/applied_values.json").read_text())
CASES: dict[str, list[dict[str, Any]]] = RECORDED["cases"]
THING = "/apis/example.org/v1/namespaces/default/things/a"


async def test_applied_values_match_kube_apiserver() -> None:
    async with served() as admin:
        await admin("POST", DEFINITIONS, RECORDED["definition"])
        await asyncio.sleep(0.1)
        for name, steps in CASES.items():
            assert [await actual(admin, step) for step in steps] == [expected(step) for step in steps], name
            await admin("DELETE", THING)


def expected(step: dict[str, Any]) -> Any:
    if "owners" in step:
        return step["code"], step["owners"], step["spec"]
    return step["code"], step["reason"], step["causes"]


async def actual(admin: Administrator, step: dict[str, Any]) -> Any:
    metadata = {"name": "a", **step["applied"].get("metadata", {})}
    tree = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": metadata, "spec": step["applied"]["spec"]}
    code, found = await admin("PATCH", f"{THING}?fieldManager={step['manager']}", tree, "application/apply-patch+yaml")
    if code >= 300:
        causes = {(cause["reason"], cause["field"]) for cause in found.get("details", {}).get("causes", ())}
        return code, found.get("reason", ""), [list(cause) for cause in sorted(causes)]
    entries = found["metadata"].get("managedFields", [])
    owners = [{"manager": one["manager"], "timed": "time" in one, "fields": one["fieldsV1"]} for one in entries]
    return code, owners, found.get("spec")
