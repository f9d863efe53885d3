"""Kinds with rows of several versions: calls of the converter, and its effect in every verb."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from apiserver_stub.common.offload import at_once
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from apiserver_stub.kinds.resource_info import ResourceInfo, SelectableField
from apiserver_stub.patch.conversions import Conversions
from apiserver_stub.storage.interface import Write
from controller_manager.common.api.errors import ApiError, InternalError, TooManyRequests
from controller_manager.common.api.tree import Tree
from tests.apiserver_stub.verbs.conftest import started_api

GROUP = "example.com"
V1, V2 = (f"/apis/{GROUP}/{version}/namespaces/default/things" for version in ("v1", "v2"))
NAMES = {"v1": "host", "v2": "address"}
STORAGE = f"things.{GROUP}"


@dataclass
class Renamer:
    """Renames a field in each version, adds a label to converted objects, and records its calls."""

    asked: list[tuple[list[str], str]] = field(default_factory=list)
    refusal: ApiError | None = None
    gate: asyncio.Event | None = None

    async def __call__(self, trees: Sequence[Tree], api_version: str, /) -> list[Tree]:
        wanted = api_version.rpartition("/")[2]
        shown = [tree["metadata"].get("name", "") for tree in trees if tree["apiVersion"] != api_version]
        if shown:
            self.asked.append((shown, wanted))
            if self.gate is not None:
                await self.gate.wait()
            if self.refusal is not None:
                raise self.refusal
        return [tree if tree["apiVersion"] == api_version else self._renamed(tree, wanted) for tree in trees]

    def _renamed(self, tree: Tree, wanted: str) -> Tree:
        found = json.loads(json.dumps(tree))
        found["apiVersion"] = f"{GROUP}/{wanted}"
        data = found.get("data", {})
        other = next(name for version, name in NAMES.items() if version != wanted)
        if other in data:
            data[NAMES[wanted]] = data.pop(other)
        labels = found["metadata"].setdefault("labels", {})
        labels["seen-in"] = wanted
        return found

    def take(self) -> list[tuple[list[str], str]]:
        """The calls since the last time."""
        taken, self.asked = self.asked, []
        return taken


def thing(version: str, converter: Any) -> ResourceInfo:
    return replace(
        next(kind for kind in built_in().all() if kind.plural == "configmaps"),
        group=GROUP,
        version=version,
        kind="Thing",
        plural="things",
        singular="thing",
        storage=STORAGE,
        definition="",
        fields={f"data.{NAMES[version]}": SelectableField(f"data.{NAMES[version]}")},
        stored_as=(GROUP, "v1", "Thing"),
        converter=converter,
    )


@pytest.fixture
def renamer() -> Renamer:
    return Renamer()


@pytest.fixture
async def api(renamer: Renamer) -> AsyncIterator[Any]:
    kinds = ResourceRegistry([*built_in().all(), thing("v1", renamer), thing("v2", renamer)])
    async with started_api(kinds) as api:
        yield api


def body(version: str, name: str, value: str = "a", **more: Any) -> Tree:
    metadata = {"name": name, **more.pop("metadata", {})}
    data = {NAMES[version]: value, **more}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Thing", "metadata": metadata, "data": data}


def version_and_data(tree: Tree) -> tuple[str, Any]:
    """Version and data; items of a list may omit the version."""
    name = next(iter(tree["data"]), "host")
    version = next((version for version, known in NAMES.items() if known == name), "")
    return tree.get("apiVersion", f"{GROUP}/{version}").rpartition("/")[2], tree["data"]


async def lines_of(api: Any, url: str, count: int) -> list[Tree]:
    """The first events of a watch."""
    stream = (await api.send("GET", url)).body
    found: list[Tree] = []
    async for chunk in stream:
        found += [json.loads(line) for line in chunk.splitlines()]
        if len(found) >= count:
            break
    await stream.aclose()
    return found


async def test_objects_are_stored_in_one_version(api: Any, renamer: Renamer) -> None:
    created = (await api.post(V2, body("v2", "a"))).tree
    assert version_and_data(created) == ("v2", {"address": "a"})
    assert renamer.take() == [(["a"], "v1"), (["a"], "v2")]
    row = api.store.get(STORAGE, "default/a")
    assert version_and_data(json.loads(row.data)) == ("v1", {"host": "a"})
    assert created["metadata"]["resourceVersion"] == str(row.revision)
    assert version_and_data((await api.get(f"{V1}/a")).tree) == ("v1", {"host": "a"})
    assert renamer.take() == []
    read = (await api.get(f"{V2}/a")).tree
    assert read == created
    assert renamer.take() == [(["a"], "v2")]


async def test_rows_of_any_version_are_converted(api: Any, renamer: Renamer) -> None:
    metadata = {"resourceVersion": "", "name": "old", "namespace": "default", "uid": "u"}
    old = {**body("v2", "old"), "metadata": metadata}
    await api.store.commit(Write(STORAGE, "default/old", 0, json.dumps(old, separators=(",", ":")).encode()))
    await api.post(V1, body("v1", "new"))
    assert [version_and_data(item) for item in (await api.get(V1)).tree["items"]] == [("v1", {"host": "a"})] * 2
    assert renamer.take() == [(["old"], "v1")]
    assert version_and_data((await api.get(f"{V2}/old")).tree) == ("v2", {"address": "a"})
    assert renamer.take() == []
    changed = (await api.patch(f"{V1}/old", {"data": {"more": "b"}})).tree
    assert version_and_data(changed) == ("v1", {"host": "a", "more": "b"})
    assert version_and_data(json.loads(api.store.get(STORAGE, "default/old").data))[0] == "v1"


async def test_list_is_converted_once_in_batches(api: Any, renamer: Renamer) -> None:
    names = [f"n{number:03}" for number in range(250)]
    for name in names:
        await api.post(V1, body("v1", name))
    renamer.take()
    listed = (await api.get(V2)).tree
    assert [item["metadata"]["name"] for item in listed["items"]] == names
    assert [len(asked) for asked, _ in renamer.take()] == [100, 100, 50]
    assert (await api.get(V2)).tree == {**listed, "metadata": (await api.get(V2)).tree["metadata"]}


async def test_converted_rows_are_shared_by_lists_and_watches(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    await api.post(V1, body("v1", "b"))
    await api.get(V2)
    assert renamer.take() == [(["a", "b"], "v2")]
    await api.get(V2)
    await lines_of(api, f"{V2}?watch=1", 2)
    assert renamer.take() == []
    await api.patch(f"{V1}/a", {"data": {"host": "c"}})
    assert version_and_data((await api.get(V2)).tree["items"][0]) == ("v2", {"address": "c"})
    assert renamer.take() == [(["a"], "v2")]


async def test_concurrent_reads_share_one_conversion(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    renamer.gate = asyncio.Event()
    watches = [asyncio.ensure_future(lines_of(api, f"{V2}?watch=1", 1)) for _ in range(20)]
    await asyncio.sleep(0.01)
    assert renamer.take() == [(["a"], "v2")]
    watches[0].cancel()  # the first reader is canceled: another converts
    await asyncio.sleep(0.01)
    renamer.gate.set()
    shown = await asyncio.gather(*watches[1:])
    assert {version_and_data(lines[0]["object"])[0] for lines in shown} == {"v2"}
    assert renamer.take() == [(["a"], "v2")]


async def test_failed_conversion_rejects_every_waiting_read(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    renamer.gate, renamer.refusal = asyncio.Event(), InternalError("no way")
    lists = [asyncio.ensure_future(api.get(V2)) for _ in range(5)]
    await asyncio.sleep(0.01)
    renamer.gate.set()
    refusals = await asyncio.gather(*lists, return_exceptions=True)
    assert [str(refusal) for refusal in refusals] == ["no way"] * 5
    assert len({id(refusal) for refusal in refusals}) == 5
    assert renamer.take() == [(["a"], "v2")]


async def test_selectors_apply_to_the_served_version(api: Any) -> None:
    await api.post(V1, body("v1", "a", "x"))
    await api.post(V1, body("v1", "b", "y"))
    for query, names in (
        ("labelSelector=seen-in=v2", ["a", "b"]),
        ("labelSelector=seen-in=v1", []),
        ("fieldSelector=data.address=y", ["b"]),
        ("fieldSelector=metadata.name=a,data.address=x", ["a"]),
        ("fieldSelector=metadata.name=a,data.address=y", []),
    ):
        assert [item["metadata"]["name"] for item in (await api.get(f"{V2}?{query}")).tree["items"]] == names, query
    assert [item["metadata"]["name"] for item in (await api.get(f"{V1}?fieldSelector=data.host=y")).tree["items"]] == [
        "b"
    ]
    first = (await api.get(f"{V2}?labelSelector=seen-in=v2&limit=1")).tree
    rest = (await api.get(f"{V2}?labelSelector=seen-in=v2&limit=1&continue={first['metadata']['continue']}")).tree
    assert [item["metadata"]["name"] for item in (*first["items"], *rest["items"])] == ["a", "b"]


async def test_watch_delivers_converted_objects_in_order(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    watching = asyncio.ensure_future(lines_of(api, f"{V2}?watch=1", 6))
    await asyncio.sleep(0.01)
    renamer.gate = asyncio.Event()
    await api.post(V1, body("v1", "b"))
    metadata = {"resourceVersion": "", "name": "c", "namespace": "default", "uid": "u"}
    as_served = {**body("v2", "c"), "metadata": metadata}
    await api.store.commit(Write(STORAGE, "default/c", 0, json.dumps(as_served, separators=(",", ":")).encode()))
    await api.patch(f"{V1}/a", {"data": {"host": "z"}})
    await asyncio.sleep(0.01)
    assert not watching.done()
    renamer.gate.set()
    await api.delete(f"{V1}/b")
    await api.delete(f"{V1}/a")
    lines = [
        (line["type"], line["object"]["metadata"]["name"], *version_and_data(line["object"])) for line in await watching
    ]
    assert lines == [
        ("ADDED", "a", "v2", {"address": "a"}),
        ("ADDED", "b", "v2", {"address": "a"}),
        ("ADDED", "c", "v2", {"address": "a"}),
        ("MODIFIED", "a", "v2", {"address": "z"}),
        ("DELETED", "b", "v2", {"address": "a"}),
        ("DELETED", "a", "v2", {"address": "z"}),
    ]


async def test_watch_with_selector_follows_converted_fields(api: Any) -> None:
    await api.post(V1, body("v1", "a", "x"))
    watching = asyncio.ensure_future(lines_of(api, f"{V2}?watch=1&fieldSelector=data.address=x", 4))
    await asyncio.sleep(0.01)
    await api.patch(f"{V1}/a", {"data": {"host": "y"}})
    changed = (await api.patch(f"{V1}/a", {"data": {"host": "x"}})).tree
    await api.post(V1, body("v1", "b", "y"))
    await api.delete(f"{V1}/a")
    lines = await watching
    logged = [(line["type"], line["object"]["metadata"]["name"], line["object"]["data"]["address"]) for line in lines]
    assert logged == [("ADDED", "a", "x"), ("DELETED", "a", "x"), ("ADDED", "a", "x"), ("DELETED", "a", "x")]
    assert lines[2]["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_watch_delivers_long_initial_state_in_order(api: Any, renamer: Renamer) -> None:
    names = [f"n{number:03}" for number in range(250)]
    for name in names:
        await api.post(V1, body("v1", name))
    renamer.take()
    url = f"{V2}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    lines = await lines_of(api, url, 251)
    assert [line["object"]["metadata"].get("name") for line in lines] == [*names, None]
    assert lines[-1]["type"] == "BOOKMARK"
    assert [len(asked) for asked, _ in renamer.take()] == [100, 100, 50]


@pytest.mark.parametrize("table", [False, True])
async def test_watch_converts_large_objects_in_batches(api: Any, table: bool) -> None:
    names = [f"n{number:02}" for number in range(12)]
    for name in names:
        await api.post(V1, body("v1", name, more="x" * 150_000))
    headers = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"} if table else {}
    stream = (await api.send("GET", f"{V2}?watch=1", **headers)).body
    found: list[str] = []
    async for chunk in stream:
        objects = [json.loads(line)["object"] for line in chunk.splitlines()]
        found += [(tree["rows"][0]["object"] if table else tree)["metadata"]["name"] for tree in objects]
        if len(found) == len(names):
            break
    await stream.aclose()
    assert found == names


async def test_watch_ends_with_error_if_conversion_fails(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    watching = asyncio.ensure_future(lines_of(api, f"{V2}?watch=1", 9))
    beside = asyncio.ensure_future(lines_of(api, f"{V1}?watch=1", 2))
    await asyncio.sleep(0.01)
    renamer.take()
    renamer.refusal = InternalError("no way")
    await api.post(V1, body("v1", "b"))
    added, error = await watching
    assert renamer.take() == [(["b"], "v2")]
    assert (added["type"], error["type"]) == ("ADDED", "ERROR")
    assert (error["object"]["code"], error["object"]["message"]) == (500, "no way")
    assert [line["object"]["metadata"]["name"] for line in await beside] == ["a", "b"]


async def test_watch_ended_during_conversion_delivers_nothing(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    renamer.gate = asyncio.Event()
    watching = asyncio.ensure_future(lines_of(api, f"{V2}?watch=1", 1))
    await asyncio.sleep(0.01)
    api.hub.end(STORAGE, f"{GROUP}/v2")
    renamer.gate.set()
    assert await watching == []


@pytest.mark.parametrize("verb", ["get", "list", "create", "update", "patch", "apply", "delete", "collection"])
async def test_failed_conversion_rejects_request_without_write(api: Any, renamer: Renamer, verb: str) -> None:
    made = (await api.post(V2, body("v2", "a"))).tree
    revision = api.store.revision
    renamer.refusal = InternalError("no way")
    ask: dict[str, Callable[[], Any]] = {
        "get": lambda: api.get(f"{V2}/a"),
        "list": lambda: api.get(V2),
        "create": lambda: api.post(V2, body("v2", "b")),
        "update": lambda: api.put(f"{V2}/a", {**made, "data": {"address": "b"}}),
        "patch": lambda: api.patch(f"{V2}/a", {"data": {"address": "b"}}),
        "apply": lambda: api.patch(f"{V2}/b?fieldManager=m", body("v2", "b"), "apply-patch+yaml"),
        "delete": lambda: api.delete(f"{V2}/a"),
        "collection": lambda: api.delete(V2),
    }
    with pytest.raises(InternalError, match="no way"):
        await ask[verb]()
    assert api.store.revision == revision
    assert version_and_data((await api.get(f"{V1}/a")).tree) == ("v1", {"host": "a"})


async def test_response_is_converted_before_the_write(api: Any, renamer: Renamer) -> None:
    converted = renamer._renamed
    renamer._renamed = lambda tree, wanted: _fail() if wanted == "v2" else converted(tree, wanted)
    with pytest.raises(InternalError):
        await api.post(V2, body("v2", "a"))
    assert api.store.get(STORAGE, "default/a") is None


def _fail() -> Tree:
    raise InternalError("no way back")


async def test_dry_run_returns_the_converted_object(api: Any, renamer: Renamer) -> None:
    answered = (await api.post(f"{V2}?dryRun=All", body("v2", "a"))).tree
    assert answered["metadata"]["labels"] == {"seen-in": "v2"}
    assert renamer.take() == [(["a"], "v1"), (["a"], "v2")]
    assert api.store.get(STORAGE, "default/a") is None


async def test_delete_returns_last_state_in_requested_version(api: Any) -> None:
    await api.post(V1, body("v1", "a", metadata={"finalizers": ["example.com/x"]}))
    await api.post(V1, body("v1", "b"))
    assert version_and_data((await api.delete(f"{V2}/a")).tree) == ("v2", {"address": "a"})
    left = (await api.delete(V2)).tree
    assert [(item["metadata"]["name"], *version_and_data(item)) for item in left["items"]] == [
        ("a", "v2", {"address": "a"}),
        ("b", "v2", {"address": "a"}),
    ]
    assert [item["metadata"]["name"] for item in (await api.get(V1)).tree["items"]] == ["a"]


async def test_tables_and_metadata_show_the_served_version(api: Any) -> None:
    await api.post(V1, body("v1", "a"))
    meta = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert (await api.get(V2, accept=meta)).tree["items"][0]["metadata"]["labels"] == {"seen-in": "v2"}
    table = (await api.get(f"{V2}?includeObject=Object", accept="application/json;as=Table;g=meta.k8s.io;v=v1")).tree
    assert version_and_data(table["rows"][0]["object"]) == ("v2", {"address": "a"})
    one = (await api.get(f"{V2}/a?includeObject=Object", accept="application/json;as=Table;g=meta.k8s.io;v=v1")).tree
    assert version_and_data(one["rows"][0]["object"]) == ("v2", {"address": "a"})
    protobuf = await api.get(
        V2, accept="application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    )
    assert b"seen-in" in protobuf.body


async def test_managed_fields_have_several_versions(api: Any, apply: Any, owners: Any, renamer: Renamer) -> None:
    await apply(f"{V1}/a", body("v1", "a", more="1"), "one")
    changed = (await apply(f"{V2}/a", {**body("v2", "a"), "data": {"other": "b"}}, "two")).tree
    assert owners(changed) == {
        ("one", "Apply", ""): [".data.host", ".data.more"],
        ("two", "Apply", ""): [".data.other"],
    }
    with pytest.raises(ApiError, match=r'conflict with "one": \.data\.host'):
        await apply(f"{V2}/a", {**body("v2", "a", "z")}, "two")
    taken = (await apply(f"{V2}/a", {**body("v2", "a", "z")}, "two", "force=true")).tree
    assert owners(taken) == {("one", "Apply", ""): [".data.more"], ("two", "Apply", ""): [".data.address"]}
    assert version_and_data(taken) == ("v2", {"address": "z", "more": "1"})
    merged = (await api.patch(f"{V2}/a?fieldManager=three", {"data": {"more": "2"}})).tree
    assert owners(merged)[("three", "Update", "")] == [".data.more"]
    assert ("one", "Apply", "") not in owners(merged)
    back = (await apply(f"{V1}/a", body("v1", "a", "z"), "two")).tree
    assert owners(back)[("two", "Apply", "")] == [".data.host"]


async def test_managed_fields_of_new_object_are_converted(api: Any, owners: Any, renamer: Renamer) -> None:
    fields = {"f:data": {"f:host": {}}}
    entry = {"manager": "one", "operation": "Update", "apiVersion": f"{GROUP}/v1", "fieldsType": "FieldsV1"}
    metadata = {"generateName": "a", "managedFields": [{**entry, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]}
    tree = {**body("v2", "", more="1"), "metadata": metadata}
    made = (await api.post(V2, tree)).tree
    assert owners(made)[("unknown", "Update", "")] == [
        ".data",
        ".data.address",
        ".data.more",
        ".metadata.generateName",
    ]
    assert version_and_data(made) == ("v2", {"address": "a", "more": "1"})
    asked = {names[0] for names, _ in renamer.take()}
    assert asked == {"", made["metadata"]["name"]}, "its name is drawn when its fields are owned"


async def test_step_needing_too_many_conversions_fails(renamer: Renamer) -> None:
    conversions, number = Conversions(renamer), count()

    def step() -> None:
        conversions.convert(body("v1", f"n{next(number)}"), f"{GROUP}/v2")

    with pytest.raises(InternalError, match="more than 200 conversions"):
        await conversions.interrupting(at_once)(step)


async def test_hanging_converter_blocks_only_its_requests(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    renamer.gate = asyncio.Event()
    waiting = [asyncio.ensure_future(api.get(f"{V2}/a")) for _ in range(5)]
    watching = asyncio.ensure_future(lines_of(api, f"{V2}?watch=1", 1))
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        assert version_and_data((await api.get(f"{V1}/a")).tree)[0] == "v1"
        await api.post(V1, body("v1", "b"))
        assert len(await lines_of(api, f"{V1}?watch=1", 2)) == 2
        await api.config("beside")
    assert not any(each.done() for each in (*waiting, watching))
    renamer.gate.set()
    assert {version_and_data(each.tree)[0] for each in await asyncio.gather(*waiting)} == {"v2"}
    assert (await watching)[0]["object"]["metadata"]["name"] == "a"


@pytest.mark.virtual
async def test_too_many_waiting_conversions_are_rejected(api: Any, renamer: Renamer) -> None:
    await api.post(V1, body("v1", "a"))
    renamer.gate = asyncio.Event()
    waiting = [asyncio.ensure_future(api.get(f"{V2}/a")) for _ in range(20)]
    await asyncio.sleep(31)
    refused = [each for each in waiting if each.done()]
    assert len(refused) == 4
    assert all(isinstance(each.exception(), TooManyRequests) for each in refused)
    renamer.gate.set()
    await asyncio.gather(*(each for each in waiting if each not in refused))
