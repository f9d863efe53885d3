"""Recorded definitions, created on a whole server, give the recorded results."""

import asyncio
from typing import Any

import pytest

from controller_manager.common.api.tree import Tree
from tests.apiserver_stub.apis.apiextensions.recorded_definitions import MANIFESTS, SEQUENCES

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCEPTED = [row for row in MANIFESTS if row["code"] == 201]
TIMES = ("lastTransitionTime", "creationTimestamp", "deletionTimestamp")

pytestmark = pytest.mark.virtual


async def create(admin: Any, manifest: Tree) -> tuple[int, Any]:
    made = await admin("POST", DEFINITIONS, manifest)
    await asyncio.sleep(0.1)
    return made


async def discovered(admin: Any, found: Tree) -> Tree:
    """The discovery of each version, or the error code."""
    group, plural, shown = found["spec"]["group"], found["spec"]["names"]["plural"], {}
    for version in found["spec"]["versions"]:
        code, listed = await admin("GET", f"/apis/{group}/{version['name']}")
        entries = [one for one in listed.get("resources", ()) if one["name"].split("/")[0] == plural]
        for entry in entries:
            entry.pop("storageVersionHash", None)
        shown[version["name"]] = sorted(entries, key=lambda one: str(one["name"])) if code == 200 else code
    return shown


def actions(item: Tree) -> list[list[str]]:
    return [[method, one.get("x-kubernetes-action", "")] for method, one in item.items() if isinstance(one, dict)]


async def openapi_of(admin: Any, found: Tree) -> Tree:
    """OpenAPI v3 of each version: the schemas of the kind and its list, and the paths."""
    group, kind, shown = found["spec"]["group"], found["spec"]["names"]["kind"], {}
    for version in found["spec"]["versions"]:
        _, document = await admin("GET", f"/openapi/v3/apis/{group}/{version['name']}")
        schemas = document["components"]["schemas"]
        own = {name: schema for name, schema in schemas.items() if name.endswith((f".{kind}", f".{kind}List"))}
        paths = {path: sorted(actions(item)) for path, item in document["paths"].items()}
        shown[version["name"]] = {"schemas": own, "paths": paths}
    return shown


@pytest.mark.parametrize("row", ACCEPTED, ids=lambda row: row["id"])
async def test_definition_results_match_kube_apiserver(admin: Any, row: Any) -> None:
    for before in row.get("before", ()):
        assert (await create(admin, before))[0] == 201
    assert (await create(admin, row["manifest"]))[0] == 201
    found = await admin.definition(row["manifest"]["metadata"]["name"])
    status = found["status"]
    shown = [{key: one[key] for key in ("type", "status", "reason", "message")} for one in status["conditions"]]
    assert sorted(shown, key=lambda one: one["type"]) == row["conditions"]
    assert status["acceptedNames"] == row["acceptedNames"]
    assert status["storedVersions"] == row["storedVersions"]
    assert await discovered(admin, found) == row["discovery"]
    if "openapi" in row:
        assert await openapi_of(admin, found) == row["openapi"]


@pytest.mark.parametrize("row", SEQUENCES, ids=lambda row: row["id"])
async def test_request_sequences_match_kube_apiserver(admin: Any, row: Any) -> None:
    for step in row["steps"]:
        for _ in range(int(step.get("retry_s", 0) / 0.25) + 1):
            got = await send_step(admin, step)
            if got == expected_result(step):
                break
            await asyncio.sleep(0.25)
        assert got == expected_result(step)


async def send_step(admin: Any, step: Tree) -> Tree:
    await asyncio.sleep(step.get("wait_s", 0))
    url = f"{step['path']}?{step['query']}" if "query" in step else step["path"]
    code, body = await admin(step["verb"], url, step.get("body"), step.get("content_type", ""))
    if "status" in step:
        causes = (body.get("details") or {}).get("causes", ())
        return {"code": code, "reason": body.get("reason"), "causes": {(one["field"], one["reason"]) for one in causes}}
    return {"code": code, "parts": {path: timeless(value_at(body, path)) for path in step.get("body_out", ())}}


def expected_result(step: Tree) -> Tree:
    if "status" in step:
        causes = step["status"].get("causes") or ()
        found = {(one["field"], one["reason"]) for one in causes}
        return {"code": step["code"], "reason": step["status"]["reason"], "causes": found}
    return {"code": step["code"], "parts": {path: timeless(value) for path, value in step.get("body_out", {}).items()}}


def value_at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree[int(name)] if isinstance(tree, list) else (tree or {}).get(name)
    return tree


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in TIMES}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


async def test_openapi_v2_of_int_or_string_and_open_objects(admin: Any) -> None:
    text = {"type": "string"}
    fields = {
        "any": {"x-kubernetes-int-or-string": True},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": text}},
        "maybe": {"type": "string", "nullable": True},
        "judged": {"type": "string", "anyOf": [{"minLength": 1}]},
    }  # fmt: skip
    spec = {"type": "object", "properties": fields, "required": ["maybe", "judged"]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "kind": "Thing"}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {"group": "example.org", "scope": "Cluster", "names": names, "versions": [version]},
    }  # fmt: skip
    assert (await create(admin, manifest))[0] == 201
    _, document = await admin("GET", "/openapi/v2")
    assert document["definitions"]["org.example.v1.Thing"]["properties"]["spec"] == {
        "type": "object",
        "properties": {
            "any": {"x-kubernetes-int-or-string": True},
            "open": {"x-kubernetes-preserve-unknown-fields": True},
            "maybe": {},
            "judged": {"type": "string"},
        },
        "required": ["judged"],
    }
