"""A definition with a conversion webhook on a whole server: results, and the effect of failures."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver_stub.webhooks.webhook_server import Webhook

GROUP = "stable.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = {version: f"/apis/{GROUP}/{version}/namespaces/default/things" for version in ("v1", "v2")}
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
NAMES = {"v1": ("address", "host"), "v2": ("host", "address")}


def converted(review: dict[str, Any]) -> dict[str, Any]:
    request = review["request"]
    before, after = NAMES[request["desiredAPIVersion"].rpartition("/")[2]]
    objects = json.loads(json.dumps(request["objects"]))
    for tree in objects:
        tree["apiVersion"] = request["desiredAPIVersion"]
        tree["spec"] |= {after: tree["spec"].pop(before, ""), "unknown": "pruned"}
    response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
    return {**review, "response": response}


def definition(config: dict[str, Any]) -> dict[str, Any]:
    def version(name: str, field: str) -> dict[str, Any]:
        spec = {"type": "object", "properties": {field: {"type": "string"}, "size": {"type": "integer", "default": 1}}}
        return {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            "additionalPrinterColumns": [{"name": field, "type": "string", "jsonPath": f".spec.{field}"}],
            "selectableFields": [{"jsonPath": f".spec.{field}"}],
        }

    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": names,
        "versions": [version("v1", "host"), version("v2", "address")],
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }
    return {"metadata": {"name": f"things.{GROUP}"}, "spec": spec}


def thing(name: str, version: str = "v1", value: str = "a") -> dict[str, Any]:
    spec = {NAMES[version][1]: value}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, converted) as found:
        yield found


@pytest.fixture
async def api(started: Any, hook: Webhook) -> AsyncIterator[Any]:
    async with started() as api:
        running = asyncio.ensure_future(api.server.run())
        assert (await api.post(DEFINITIONS, definition(hook.config))).status == 201
        await wait_for_code(api, THINGS["v2"], 200)
        yield api
        running.cancel()
        await asyncio.wait((running,))


async def wait_for_code(api: Any, url: str, code: int) -> Any:
    """Wait for a status code; return the answer."""
    for _ in range(500):
        found = await api.get(url)
        if found.status == code:
            return found.tree
        await asyncio.sleep(0.01)
    raise AssertionError(found.tree)


async def test_both_versions_are_served(api: Any, hook: Webhook) -> None:
    made = await api.post(THINGS["v2"], thing("a", "v2"))
    assert (made.status, made.tree["apiVersion"], made.tree["spec"]) == (
        201,
        f"{GROUP}/v2",
        {"address": "a", "size": 1},
    )
    read = (await api.get(f"{THINGS['v1']}/a")).tree
    assert (read["apiVersion"], read["spec"]) == (f"{GROUP}/v1", {"host": "a", "size": 1})
    await api.post(THINGS["v1"], thing("b", "v1", "b"))
    merge = "application/merge-patch+json"
    changed = await api.ask("PATCH", f"{THINGS['v2']}/b", {"spec": {"size": 3}}, content_type=merge)
    assert (changed.status, changed.tree["metadata"]["generation"]) == (200, 2)
    assert [entry["apiVersion"] for entry in changed.tree["metadata"]["managedFields"]] == [
        f"{GROUP}/v1",
        f"{GROUP}/v2",
    ]
    listed = (await api.get(THINGS["v2"])).tree
    assert [(tree["apiVersion"], tree["spec"]["address"]) for tree in listed["items"]] == [
        (f"{GROUP}/v2", "a"),
        (f"{GROUP}/v2", "b"),
    ]
    table = (await api.get(THINGS["v2"], accept=TABLE)).tree
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "address"]
    assert [row["cells"] for row in table["rows"]] == [["a", "a"], ["b", "b"]]
    chosen = (await api.get(f"{THINGS['v2']}?fieldSelector=spec.address=b")).tree
    assert [tree["metadata"]["name"] for tree in chosen["items"]] == ["b"]
    hook.take()
    events = await api.watch("timeoutSeconds=1", THINGS["v2"])
    assert [(event["type"], event["object"]["spec"]["address"]) for event in events] == [("ADDED", "a"), ("ADDED", "b")]
    assert hook.take() == []
    assert (await api.delete(THINGS["v2"])).status == 200
    assert (await api.get(THINGS["v1"])).tree["items"] == []


async def test_invalid_conversion_changes_nothing(api: Any, hook: Webhook) -> None:
    await api.post(THINGS["v1"], thing("a"))

    def renamed(review: dict[str, Any]) -> dict[str, Any]:
        found = converted(review)
        for tree in found["response"]["convertedObjects"]:
            tree["metadata"]["name"] = "other"
        return found

    hook.answer = renamed
    why = f"conversion webhook for {GROUP}/v1, Kind=Thing returned invalid object: must have the same name: a != other"
    for method, url, body in (
        ("GET", "/a", None),
        ("GET", "", None),
        ("DELETE", "/a", None),
        ("PATCH", "/a", {"spec": {"address": "b"}}),
    ):
        answer = await api.ask(method, THINGS["v2"] + url, body, content_type="application/merge-patch+json")
        assert (answer.status, answer.tree["message"], answer.tree.get("reason")) == (500, why, None)
    assert (await api.post(THINGS["v2"], thing("b", "v2"))).status == 500
    (error,) = await api.watch("timeoutSeconds=5", THINGS["v2"])
    assert (error["type"], error["object"]["message"]) == ("ERROR", why)
    listed = (await api.get(THINGS["v1"])).tree
    assert [(tree["metadata"]["name"], tree["spec"]["host"]) for tree in listed["items"]] == [("a", "a")]


async def test_hanging_webhook_delays_no_other_request(api: Any, hook: Webhook) -> None:
    await api.post(THINGS["v1"], thing("a"))
    go_on = asyncio.Event()

    async def hang(review: dict[str, Any]) -> dict[str, Any]:
        await go_on.wait()
        return converted(review)

    hook.answer = hang
    stuck = [asyncio.ensure_future(api.get(THINGS["v2"] + path)) for path in ("/a", "", "/a") for _ in range(20)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        assert (await api.get(f"{THINGS['v1']}/a")).status == 200
        assert (await api.post(THINGS["v1"], thing("b"))).status == 201
        await api.config("beside")
        assert len(await api.watch("timeoutSeconds=1", THINGS["v1"])) == 2
    assert not any(each.done() for each in stuck)
    go_on.set()
    assert {answer.status for answer in await asyncio.gather(*stuck)} == {200}


async def test_replaced_webhook_is_used(api: Any, hook: Webhook) -> None:
    await api.post(THINGS["v1"], thing("a"))
    url = f"{DEFINITIONS}/things.{GROUP}"
    missing = {
        "service": {"namespace": "default", "name": "nope", "path": "/convert", "port": 443},
        "caBundle": hook.ca,
    }
    right = definition(hook.config)["spec"]["conversion"]
    wrong = {**right, "webhook": {**right["webhook"], "clientConfig": missing}}
    for conversion, code in ((wrong, 500), (right, 200)):
        webhook = conversion["webhook"]
        config = {"url": None, "service": None, **webhook["clientConfig"]}
        change = {"spec": {"conversion": {**conversion, "webhook": {**webhook, "clientConfig": config}}}}
        assert (await api.patch(url, change)).status == 200
        found = await wait_for_code(api, f"{THINGS['v2']}/a", code)
        if code == 500:
            why = 'Post "https://nope.default.svc:443/convert?timeout=30s": service "nope" not found'
            assert found["message"] == f"conversion webhook for {GROUP}/v1, Kind=Thing failed: {why}"


async def test_shutdown_waits_for_no_webhook(api: Any, hook: Webhook) -> None:
    await api.post(THINGS["v1"], thing("a"))

    async def hang(_: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    hook.answer = hang
    reading = asyncio.ensure_future(api.get(f"{THINGS['v2']}/a"))
    watching = asyncio.ensure_future(api.watch("timeoutSeconds=60", THINGS["v2"]))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(2):
        api.server.end_streams()
        await api.server.stop()
        answer = await reading
        assert (answer.status, answer.tree["message"][-25:]) == (500, "the connection was closed")
        assert await watching == []
