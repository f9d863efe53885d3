"""Resources that are added, changed and removed while a whole server serves requests and watches."""

import asyncio
import gc
import itertools
import json
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from apiserver_stub.kinds import built_in, published
from apiserver_stub.kinds.resource_info import Printer, ResourceInfo, SelectableField, Subresource
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.schema.schema_types import complete, fitting
from apiserver_stub.kinds.schema.zero_values import filler
from apiserver_stub.kinds.strategies.scale import ScalePaths
from apiserver_stub.kinds.strategies.strategy import STATUS, Strategy
from apiserver_stub.patch.typed_objects import type_of
from controller_manager.common.api.tree import Tree

GROUP, ROOT = "toys.example.com", "/apis/toys.example.com/v1"
WIDGETS = f"{ROOT}/namespaces/default/widgets"
CONFIGS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def widget(edition: int = 1) -> ResourceInfo:
    """A resource whose edition shows in its defaults, columns, warnings and schema."""
    fields = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"ref": "meta.v1.ObjectMeta"},
        "spec": {"type": "object", "required": ["size"], "fields": {
            "size": {"type": "integer", "format": "int32"},
            "replicas": {"type": "integer", "format": "int32"},
            "color": {"type": "string", "enum": ["red", "green"]},
            "edition": {"type": "integer", "format": "int32"},
            "wheels": {"type": "array", "listType": "map", "listMapKeys": ["name"], "omit": True, "items": {
                "type": "object", "required": ["name"],
                "fields": {"name": {"type": "string"}, "inches": {"type": "integer", "format": "int32"}},
            }},
            f"only{edition}": {"type": "string"},
        }},
        "status": {"type": "object", "fields": {"ready": {"type": "integer", "format": "int32"}}},
    }  # fmt: skip
    schema = Schema({"type": "object", "fields": fields}, published.schemas().node)
    columns = (("Name", "string", "name", 0), (f"Edition {edition}", "integer", "", 0))
    printer = Printer(columns, lambda tree: [tree["metadata"]["name"], edition])
    status = Subresource("status", "Widget", GROUP, "v1", frozenset({"get", "patch", "update"}), schema)
    deployments = next(info for info in built_in.resources() if info.name == "deployments.apps")

    def default(tree: Tree) -> None:
        tree.setdefault("spec", {}).setdefault("edition", edition)

    def too_large(tree: Any, _at: Any, found: Any) -> None:
        if tree["spec"].get("size", 0) > 100:
            found.invalid(((None, "spec"), "size"), tree["spec"]["size"], f"too large for edition {edition}")

    return ResourceInfo(
        group=GROUP, version="v1", kind="Widget", plural="widgets", singular="widget", namespaced=True,
        verbs=frozenset(VERBS), storage="widgets.toys.example.com", schema=schema,
        strategy=Strategy(STATUS, generation=True), short_names=("wd",), categories=("all",),
        subresources={"status": status, "scale": deployments.subresources["scale"]},
        scale=ScalePaths(status=("status", "ready")), fields={"spec.color": SelectableField("spec.color")},
        defaults=default, rules=KindRules(too_large), warnings={"": lambda _new, _old: [f"edition {edition}"]},
        deprecation=f"old edition {edition}" if edition > 1 else "", printer=printer,
    )  # fmt: skip


def body(name: str, **spec: Any) -> Tree:
    return {"metadata": {"name": name}, "spec": {"size": 1, **spec}}


async def whole(api: Any, path: str, accept: str = "application/json") -> tuple[str, Any]:
    """The etag and the tree of a page."""
    response = await api.send("GET", path, accept=accept)
    assert response.status == 200, path
    return response.headers["etag"], json.loads(response.body)


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count(1)


async def use_widget(api: Any) -> None:
    """Everything that can be done with a widget, once, with the answers of its first edition."""
    made = await api.post(WIDGETS, body("a", color="red"))
    assert (made.status, made.tree["spec"]["edition"], made.tree["metadata"]["generation"]) == (201, 1, 1)
    response = await api.send("POST", WIDGETS, body("b"))
    assert response.repeated["warning"] == ('299 - "edition 1"',)
    refusal = await api.post(WIDGETS, body("c", size=101, color="blue"))
    assert refusal.status == 422
    fields = [cause["field"] for cause in refusal.tree["details"]["causes"]]
    assert sorted(fields) == ["spec.color", "spec.size"]
    unknown = await api.post(f"{WIDGETS}?fieldValidation=Strict", body("c", only2="x"))
    assert (unknown.status, "spec.only2" in unknown.tree["message"]) == (400, True)
    found = await api.ask("PATCH", f"{WIDGETS}/a", {"spec": {"size": 2}}, content_type=MERGE_PATCH)
    assert (found.status, found.tree["spec"]["size"], found.tree["metadata"]["generation"]) == (200, 2, 2)
    operations = [{"op": "replace", "path": "/spec/size", "value": 3}]
    found = await api.ask("PATCH", f"{WIDGETS}/a", operations, content_type=JSON_PATCH)
    assert (found.status, found.tree["spec"]["size"]) == (200, 3)
    refusal = await api.ask("PATCH", f"{WIDGETS}/a", {"spec": {"size": 2}}, content_type=STRATEGIC)
    assert (refusal.status, STRATEGIC in refusal.tree["message"]) == (415, False)
    for manager, name in (("one", "front"), ("two", "rear")):
        config = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "spec": {"wheels": [{"name": name, "inches": 26}]}}
        found = await api.ask("PATCH", f"{WIDGETS}/a?fieldManager={manager}", config, content_type=APPLY)
        assert found.status == 200
    assert [wheel["name"] for wheel in found.tree["spec"]["wheels"]] == ["front", "rear"]
    assert {entry["manager"] for entry in found.tree["metadata"]["managedFields"]} >= {"one", "two"}
    found = await api.put(f"{WIDGETS}/a/status", {**found.tree, "status": {"ready": 7}, "spec": {"size": 9}})
    assert (found.status, found.tree["status"], found.tree["spec"]["size"]) == (200, {"ready": 7}, 3)
    scale = await api.ask("PATCH", f"{WIDGETS}/a/scale", {"spec": {"replicas": 4}}, content_type=MERGE_PATCH)
    assert (scale.status, scale.tree["spec"], scale.tree["status"]) == (200, {"replicas": 4}, {"replicas": 7})
    listed = await api.get(f"{WIDGETS}?fieldSelector=spec.color=red")
    assert (listed.status, [item["metadata"]["name"] for item in listed.tree["items"]]) == (200, ["a"])
    table = (await api.get(WIDGETS, accept=TABLE)).tree
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Edition 1"]
    assert [row["cells"] for row in table["rows"]] == [["a", 1], ["b", 1]]
    response = await api.send("GET", f"{WIDGETS}/a", accept=PROTOBUF)
    assert response.status == 406
    code = (await api.get(f"{WIDGETS}/a", accept=f"{PROTOBUF},application/json")).status
    assert code == 200
    response = await api.send("DELETE", f"{WIDGETS}/a/status")
    assert (response.status, response.headers["allow"]) == (405, "GET, PUT, PATCH")
    described = (await whole(api, f"/openapi/v3{ROOT}"))[1]["components"]["schemas"]["com.example.toys.v1.Widget"]
    assert described["properties"]["spec"]["properties"]["color"]["enum"] == ["red", "green"]
    assert "com.example.toys.v1.Widget" in (await whole(api, "/openapi/v2"))[1]["definitions"]
    metrics = (await api.send("GET", "/metrics")).body
    assert b'apiserver_resource_objects{group="toys.example.com",resource="widgets"} 2' in metrics


async def pages(api: Any) -> dict[str, str]:
    """The etags of all pages that describe the served resources."""
    paths = ("/apis", "/api", "/apis/apps/v1", "/openapi/v3/apis/apps/v1", "/openapi/v3/api/v1", "/openapi/v2")
    tags = {path: (await whole(api, path))[0] for path in paths}
    return {**tags, "aggregated": (await whole(api, "/apis", AGGREGATED))[0]}


def compiled(info: ResourceInfo) -> list[Any]:
    """The objects compiled from a schema while it is used."""
    schema = info.schema
    wheels = schema.fields["spec"].fields["wheels"]
    assert wheels.items is not None
    made = [fitting(schema), complete(schema), filler(schema), type_of(schema), type_of(wheels)]
    made += [fitting(wheels.items), complete(wheels.items)]
    return [weakref.ref(one) for one in [info, schema, wheels, *made]]


async def live_references(api: Any, references: list[Any]) -> list[Any]:
    """The remaining references once the thread has finished its earlier work."""
    await api.server.scope.offload.run(int)
    gc.collect()
    return [reference() for reference in references if reference() is not None]


async def test_resource_can_be_added_used_and_removed(started: Any) -> None:
    async with started() as api:
        before = await pages(api)
        missing = await api.get(WIDGETS)
        assert (missing.status, missing.tree["reason"]) == (404, "NotFound")
        references = await _add_and_remove(api)
        assert await live_references(api, references) == []
        again = await api.get(WIDGETS)
        assert (again.status, again.tree) == (404, missing.tree)
        assert (await api.send("GET", f"/openapi/v3{ROOT}")).status == 404
        assert (await api.send("GET", ROOT)).status == 404
        assert await pages(api) == before
        assert b"widgets" not in b"".join(
            line for line in (await api.send("GET", "/metrics")).body.splitlines() if b"_objects{" in line
        )


async def _add_and_remove(api: Any) -> list[Any]:
    registry, info = api.server.kinds, widget()
    before = await pages(api)
    registry.add(info)
    response = await api.send("GET", f"{WIDGETS}?watch=1", accept=TABLE)
    stream = aiter(response.body)
    await use_widget(api)
    first = json.loads((await anext(stream)).splitlines()[0])
    assert (first["type"], first["object"]["rows"][0]["cells"]) == ("ADDED", ["a", 1])
    during = await pages(api)
    assert {path for path in before if before[path] != during[path]} == {"/apis", "/openapi/v2", "aggregated"}
    resources = {entry["name"]: entry for entry in (await whole(api, ROOT))[1]["resources"]}
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert resources.keys() == {"widgets", "widgets/status", "widgets/scale"}
    references = compiled(info)
    registry.remove(info)
    rest = [line async for chunk in stream for line in chunk.splitlines()]
    assert [json.loads(line)["type"] for line in rest].count("ERROR") == 0
    return references


async def test_changed_resource_takes_effect_at_next_request(started: Any) -> None:
    async with started() as api:
        registry = api.server.kinds
        registry.add(widget())
        references = compiled(registry.find(GROUP, "v1", "widgets"))
        await api.post(WIDGETS, body("a", only1="x"))
        watched = asyncio.create_task(api.watch("timeoutSeconds=60", WIDGETS))
        others = asyncio.create_task(api.watch("timeoutSeconds=60", CONFIGS))
        tags = await pages(api)
        await asyncio.sleep(0)
        registry.add(widget(2))
        assert [event["object"]["metadata"]["name"] for event in await watched] == ["a"]
        made = await api.post(f"{WIDGETS}?fieldValidation=Strict", body("b", only2="x"))
        assert (made.status, made.tree["spec"]["edition"]) == (201, 2)
        response = await api.send("PUT", f"{WIDGETS}/a", body("a", size=5))
        assert response.repeated["warning"] == ('299 - "old edition 2"', '299 - "edition 2"')
        table = (await api.get(WIDGETS, accept=TABLE)).tree
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Edition 2"]
        assert [row["cells"] for row in table["rows"]] == [["a", 2], ["b", 2]]
        described = (await whole(api, f"/openapi/v3{ROOT}"))[1]["components"]["schemas"]["com.example.toys.v1.Widget"]
        assert "only2" in described["properties"]["spec"]["properties"]
        after = await pages(api)
        assert {path for path in tags if tags[path] != after[path]} == {"/openapi/v2"}
        assert await live_references(api, references) == []
        assert not others.done()
        others.cancel()
        with suppress(asyncio.CancelledError):
            await others


async def test_watch_opened_after_removal_ends_at_once(started: Any) -> None:
    """The resource is removed between the request and its stream."""
    async with started() as api:
        info = widget()
        api.server.kinds.add(info)
        made = await api.post(WIDGETS, body("a"))
        assert made.status == 201
        future = int(made.tree["metadata"]["resourceVersion"]) + 1
        late = asyncio.create_task(api.watch(f"resourceVersion={future}", WIDGETS))
        await asyncio.sleep(0.01)
        assert not late.done()
        api.server.kinds.remove(info)
        await api.config("one")
        assert await asyncio.wait_for(late, 10) == []


EDITIONS = 12
ANSWERS = 15  # answers at least while each edition is served


class Traffic:
    """Continuous requests to a resource that is added, changed and removed, and to others; `edition` is the served one,
    0 for none, and each answer must be of an edition that was served during its request.
    """

    def __init__(self, api: Any) -> None:
        self.api = api
        self.edition = 0
        self.answered: dict[int, int] = {}
        self._names = itertools.count()
        self._heard = asyncio.Event()

    def serve(self, edition: int) -> None:
        registry = self.api.server.kinds
        if edition:
            registry.add(widget(edition))
        else:
            registry.remove(registry.find(GROUP, "v1", "widgets"))
        self.edition = edition

    async def ask(self, ok: int, method: str, url: str, sent: Any = None, **headers: str) -> tuple[set[int], Any]:
        """The editions that may have answered, and the answer if it was found."""
        served = {self.edition}
        forget = self._note(served)
        response = await self.api.send(method, url, sent, **headers)
        forget()
        data = response.body if isinstance(response.body, bytes) else b"".join([chunk async for chunk in response.body])
        code, found = response.status, json.loads(data)
        self.answered[code] = self.answered.get(code, 0) + 1
        self._heard.set()
        if code == 404:
            missing = "details" in found and found["details"].get("name")
            assert missing or 0 in served, found
            return served, None
        assert code == ok or (code, method) == (409, "PATCH"), found
        assert served != {0}
        return served, found if code == ok else None

    async def wait_for_answers(self) -> None:
        """Wait for some more answers."""
        for _ in range(ANSWERS):
            self._heard.clear()
            await self._heard.wait()

    def _note(self, served: set[int]) -> Callable[[], None]:
        def listener(change: Any) -> None:
            served.add(0 if change.after is None else int(change.after.printer.columns[1][0].split()[1]))

        listeners = self.api.server.kinds._listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    async def write(self) -> None:
        while True:
            name = f"w{next(self._names)}"
            served, made = await self.ask(201, "POST", WIDGETS, body(name))
            await asyncio.sleep(0)
            if made is None:
                continue
            assert made["spec"]["edition"] in served
            url = f"{WIDGETS}/{name}"
            await self.ask(200, "PATCH", url, {"spec": {"size": 2}}, content_type=MERGE_PATCH)
            config = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "spec": {"wheels": [{"name": "front"}]}}
            served, found = await self.ask(200, "PATCH", f"{url}?fieldManager=x", config, content_type=APPLY)
            if found is not None:
                assert found["spec"]["wheels"] == [{"name": "front"}]

    async def read(self) -> None:
        while True:
            served, table = await self.ask(200, "GET", WIDGETS, accept=TABLE)
            if table is not None:
                edition = int(table["columnDefinitions"][1]["name"].split()[1])
                assert edition in served
                assert {row["cells"][1] for row in table["rows"]} <= {edition}
            await asyncio.sleep(0)

    async def describe(self) -> None:
        while True:
            served, page = await self.ask(200, "GET", f"/openapi/v3{ROOT}")
            if page is not None:
                spec = page["components"]["schemas"]["com.example.toys.v1.Widget"]["properties"]["spec"]
                assert any(f"only{edition}" in spec["properties"] for edition in served)
            seen = {self.edition}
            groups = (await self.api.get("/apis", accept=AGGREGATED)).tree
            seen.add(self.edition)
            assert any(group["metadata"]["name"] == GROUP for group in groups["items"]) in {bool(one) for one in seen}
            await asyncio.sleep(0)

    async def watch(self) -> None:
        while True:
            response = await self.api.send("GET", f"{WIDGETS}?watch=1", accept=TABLE)
            self.answered[response.status] = self.answered.get(response.status, 0) + 1
            columns = set()
            if response.status == 200:
                async for chunk in response.body:
                    for line in chunk.splitlines():
                        event = json.loads(line)
                        assert event["type"] in ("ADDED", "MODIFIED"), event
                        columns |= {event["object"]["rows"][0]["cells"][1]}
            assert len(columns) <= 1, "a stream tells in one form"
            await asyncio.sleep(0)

    async def others(self) -> None:
        for number in itertools.count():
            await self.api.config(f"c{number}")
            found = await self.api.ask("PATCH", f"{CONFIGS}/c{number}", {"data": {"k": "2"}}, content_type=STRATEGIC)
            assert (found.status, found.tree["data"]) == (200, {"k": "2"})
            table = await self.api.get(f"{CONFIGS}?limit=3", accept=TABLE)
            assert (table.status, [column["name"] for column in table.tree["columnDefinitions"]]) == (
                200,
                ["Name", "Data", "Age"],
            )
            await asyncio.sleep(0)


async def _under_traffic(traffic: Traffic) -> list[Any]:
    """Change the served resources during requests; canceled tasks, whose errors hold references, end here."""
    references: list[Any] = []
    async with asyncio.TaskGroup() as group:
        work = (traffic.write, traffic.write, traffic.read, traffic.describe, traffic.watch, traffic.others)
        tasks = [group.create_task(one()) for one in work]
        for edition in range(1, EDITIONS):
            served = edition if edition % 4 else 0
            traffic.serve(served)
            if served:
                references += compiled(traffic.api.server.kinds.find(GROUP, "v1", "widgets"))
            await traffic.wait_for_answers()
        traffic.serve(0)
        await traffic.wait_for_answers()
        for task in tasks:
            task.cancel()
    return references


async def test_requests_continue_while_a_resource_changes(started: Any) -> None:
    async with started() as api:
        traffic = Traffic(api)
        before = await pages(api)
        undisturbed = asyncio.create_task(api.watch("timeoutSeconds=60", CONFIGS))
        references = await _under_traffic(traffic)
        assert traffic.answered.keys() >= {200, 201, 404}
        assert await pages(api) == before
        assert await live_references(api, references) == []
        assert not undisturbed.done()
        api.server.end_streams()
        events = await undisturbed
        made = [event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED"]
        assert made == [name for name in made if name == "kube-root-ca.crt"] + [
            f"c{number}" for number in range(sum(name.startswith("c") for name in made))
        ]
        assert len(made) > 3
        assert {event["type"] for event in events} == {"ADDED", "MODIFIED"}
