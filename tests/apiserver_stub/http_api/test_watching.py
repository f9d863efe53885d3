"""Watching, rules 1 to 5; Streaming lists, rules 1 to 3; Events."""

import asyncio
import json
from typing import Any

import pytest

from tests.apiserver_stub.api_client import types_and_names

STORAGES = ("memory", "workers")
CONFIGS = "/api/v1/namespaces/default/configmaps"
END = "k8s.io/initial-events-end"


async def watch_during(api: Any, query: str, *acts: Any) -> list[dict[str, Any]]:
    """The events of nine seconds, during which the acts run one after the other."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(api.get(f"{CONFIGS}?watch=1&timeoutSeconds=9&{query}"))
        await asyncio.sleep(1)
        for act in acts:
            await act
    return watching.result().events


@pytest.mark.virtual
async def test_every_change_after_a_list_is_delivered_once(api: Any) -> None:
    """Rules 1 and 2: create, update, patch and delete after the version, each with the whole object."""
    await api.config("a")
    version = (await api.get(CONFIGS)).version
    events = await watch_during(
        api,
        f"resourceVersion={version}",
        api.config("b"),
        api.put(f"{CONFIGS}/a", {"metadata": {"name": "a"}, "data": {"k": "1"}}),
        api.patch(f"{CONFIGS}/a", {"data": {"k": "2"}}),
        api.delete(f"{CONFIGS}/b"),
    )
    assert types_and_names(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert events[2]["object"] == (await api.get(f"{CONFIGS}/a")).tree
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


@pytest.mark.virtual
async def test_interrupted_watch_resumes(api: Any) -> None:
    """Rule 3: from the last seen version, nothing is missed or repeated."""
    version = (await api.config("a")).version
    first = await watch_during(api, f"resourceVersion={version}", api.config("b"), api.config("c"))
    seen = first[0]["object"]["metadata"]["resourceVersion"]
    again = await watch_during(api, f"resourceVersion={seen}", api.config("d"))
    assert types_and_names(again) == [("ADDED", "c"), ("ADDED", "d")]


@pytest.mark.virtual
async def test_slow_reader_gets_410(api: Any) -> None:
    """Rule 4, in an open stream: an ERROR event with the Status of 410 Gone, and the end."""
    version = (await api.config("a")).version
    response = await api.send("GET", f"{CONFIGS}?watch=1&resourceVersion={version}")
    stream = response.body
    for number in range(400):
        await api.patch(f"{CONFIGS}/a", {"data": {"k": "x" * 1000, "n": str(number)}})
        await asyncio.sleep(1)
    lines = b"".join([chunk async for chunk in stream]).splitlines()
    status = json.loads(lines[-1])
    assert (status["type"], status["object"]["kind"], status["object"]["code"]) == ("ERROR", "Status", 410)


@pytest.mark.virtual
async def test_bookmarks_contain_only_the_resource_version(api: Any) -> None:
    """Rule 5 and Watch event: only when asked for; of the requested kind; `metadata.resourceVersion` alone."""
    version = (await api.get(CONFIGS)).version
    events = await watch_during(api, f"resourceVersion={version}&allowWatchBookmarks=true", api.config("a"))
    assert types_and_names(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    mark = events[1]["object"]
    assert (mark["kind"], mark["apiVersion"]) == ("ConfigMap", "v1")
    metadata = {name: value for name, value in mark["metadata"].items() if value is not None}
    assert metadata == {"resourceVersion": events[0]["object"]["metadata"]["resourceVersion"]}
    assert types_and_names(await watch_during(api, f"resourceVersion={version}")) == [("ADDED", "a")]


@pytest.mark.virtual
@pytest.mark.parametrize(
    "selector", ["labelSelector=tier%3Dweb", "labelSelector=tier=web", "labelSelector=tier in (web)"]
)
async def test_label_changes_are_sent_as_added_and_deleted(api: Any, selector: str) -> None:
    """Events: ADDED also means that an object enters a selection, DELETED that it leaves it."""
    if "%3D" in selector:
        selector = selector.replace("%3D", "==")
    await api.config("a")
    version = (await api.get(CONFIGS)).version
    labelled = [api.patch(f"{CONFIGS}/a", {"metadata": {"labels": {"tier": tier}}}) for tier in ("web", "web", "db")]
    touched = api.patch(f"{CONFIGS}/a", {"data": {"k": "v"}})
    events = await watch_during(api, f"{selector}&resourceVersion={version}", labelled[0], touched, *labelled[1:])
    assert types_and_names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    last = events[2]["object"]
    assert last["metadata"]["labels"]["tier"] == "web"
    assert last["metadata"]["resourceVersion"] == (await api.get(f"{CONFIGS}/a")).version


@pytest.mark.virtual
async def test_field_changes_are_sent_as_added_and_deleted(api: Any) -> None:
    """Events, with a field selector: a Pod enters when it is bound and leaves when it ends."""
    pods = "/api/v1/namespaces/default/pods"
    made = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await api.post(pods, made)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    async with asyncio.TaskGroup() as group:
        selector = "spec.nodeName=n1,status.phase!=Succeeded"
        watching = group.create_task(api.get(f"{pods}?watch=1&timeoutSeconds=9&fieldSelector={selector}"))
        await asyncio.sleep(1)
        assert (await api.post(f"{pods}/p/binding", binding)).status == 201
        await api.patch(f"{pods}/p/status", {"status": {"phase": "Running"}})
        await api.patch(f"{pods}/p/status", {"status": {"phase": "Succeeded"}})
    assert types_and_names(watching.result().events) == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


async def test_get_of_single_object_ignores_watch(api: Any) -> None:
    """Query parameters: `watch` is one of GET on a collection."""
    await api.config("a")
    assert (await api.get(f"{CONFIGS}/a?watch=1")).tree["kind"] == "ConfigMap"


@pytest.mark.virtual
@pytest.mark.parametrize("version", ["", "0", "now"])
async def test_streaming_list_sends_state_and_bookmark(api: Any, version: str) -> None:
    """Streaming lists, rules 1 and 3: ADDED for the state, a marked BOOKMARK, then a normal watch."""
    await api.delete(CONFIGS)
    await api.config("a")
    now = (await api.config("b")).version
    version = now if version == "now" else version
    query = f"sendInitialEvents=true&allowWatchBookmarks=true&resourceVersion={version}"
    events = await watch_during(api, f"{query}&resourceVersionMatch=NotOlderThan", api.config("c"))
    assert types_and_names(events)[:4] == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", ""), ("ADDED", "c")]
    mark = events[2]["object"]["metadata"]
    assert mark["annotations"] == {END: "true"}
    assert mark["resourceVersion"] == now


@pytest.mark.virtual
@pytest.mark.parametrize("form", ["", ";as=Table;v=v1;g=meta.k8s.io", ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"])
async def test_bookmark_has_zero_object_of_its_kind(api: Any, form: str) -> None:
    """Typed clients decode the object of a bookmark: required fields are there, and null."""
    for resource, zero in (
        ("/api/v1/pods", {"spec": {"containers": None}, "status": {}}),
        ("/apis/rbac.authorization.k8s.io/v1/roles", {"rules": None}),
        ("/api/v1/limitranges", {"spec": {"limits": None}}),
    ):
        query = (
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&timeoutSeconds=1"
        )
        answer = await api.get(f"{resource}?{query}&includeObject=Object", accept=f"application/json{form}")
        found = next(event["object"] for event in answer.events if event["type"] == "BOOKMARK")
        if "Table" in form:
            (row,) = found["rows"]
            found = row["object"]
        metadata = found.pop("metadata")
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        rest = {name: value for name, value in found.items() if name not in ("kind", "apiVersion")}
        assert rest == ({} if "Partial" in form else zero)


@pytest.mark.virtual
async def test_streaming_list_without_bookmarks_has_no_end_mark(api: Any) -> None:
    """Streaming lists, rule 1: the BOOKMARK comes when `allowWatchBookmarks=true`."""
    await api.delete(CONFIGS)
    await api.config("a")
    events = await watch_during(api, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", api.config("b"))
    assert types_and_names(events) == [("ADDED", "a"), ("ADDED", "b")]


@pytest.mark.virtual
async def test_streaming_lists_can_be_disabled(started: Any) -> None:
    """Streaming lists are gated; a rejected client falls back to list."""
    async with started("--feature-gates=WatchList=false") as api:
        answer = await api.get(f"{CONFIGS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        assert (answer.status, answer.tree["reason"]) == (422, "Invalid")
        assert (await api.get(f"{CONFIGS}?watch=1&timeoutSeconds=1")).status == 200
