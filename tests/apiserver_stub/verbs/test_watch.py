"""Watches: where they start, what they select, how they end (API concepts, Watching and Streaming lists)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller_manager.common.api import errors
from controller_manager.common.base.clock import monotonic
from tests.apiserver_stub.api_client import types_and_names

CONFIGS = "/api/v1/namespaces/default/configmaps"


async def opened(api, url: str, **headers: str) -> AsyncIterator[bytes]:
    body = (await api.send("GET", url, **headers)).body
    assert not isinstance(body, bytes)
    return body


async def read(stream: AsyncIterator[bytes], count: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while len(events) < count:
        events += map(json.loads, (await anext(stream)).splitlines())
    return events


@pytest.mark.parametrize("version", ["", "0"])
async def test_watch_without_version_starts_with_current_state(api, version: str) -> None:
    await api.config("a")
    stream = await opened(api, f"{CONFIGS}?watch=1&resourceVersion={version}")
    await api.config("b")
    await api.patch(f"{CONFIGS}/a", {"data": {"k": "new"}})
    await api.delete(f"{CONFIGS}/b")
    assert types_and_names(await read(stream, 4)) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ]


async def test_watch_with_version_delivers_later_changes(api) -> None:
    version = (await api.config("a")).tree["metadata"]["resourceVersion"]
    await api.config("b")
    stream = await opened(api, f"{CONFIGS}?watch=1&resourceVersion={version}")
    assert types_and_names(await read(stream, 1)) == [("ADDED", "b")]


@pytest.mark.parametrize(
    "url",
    [f"{CONFIGS}?watch=1&fieldSelector=metadata.name=b",
     "/api/v1/watch/namespaces/default/configmaps/b", f"{CONFIGS}?watch=1&labelSelector=x=1",
     "/api/v1/configmaps?watch=1&labelSelector=x"],
)  # fmt: skip
async def test_watch_applies_selectors(api, url: str) -> None:
    stream = await opened(api, url)
    await api.config("a")
    await api.config("b", labels={"x": "1"})
    await api.delete(f"{CONFIGS}/a")
    await api.delete(f"{CONFIGS}/b")
    assert types_and_names(await read(stream, 2)) == [("ADDED", "b"), ("DELETED", "b")]


@pytest.mark.virtual
async def test_watch_ends_after_its_timeout(api) -> None:
    stream = await opened(api, f"{CONFIGS}?watch=1&timeoutSeconds=7")
    assert [chunk async for chunk in stream] == []
    assert monotonic() == pytest.approx(7)


@pytest.mark.virtual
@pytest.mark.parametrize("query", ["", "&timeoutSeconds=0"])
async def test_watch_without_timeout_ends_within_an_hour(api, query: str) -> None:
    assert [chunk async for chunk in await opened(api, f"{CONFIGS}?watch=1{query}")] == []
    assert 1800 <= monotonic() <= 3600


async def test_initial_events_can_be_disabled(api) -> None:
    await api.config("a")
    stream = await opened(api, f"{CONFIGS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
    await api.config("b")
    assert types_and_names(await read(stream, 1)) == [("ADDED", "b")]


@pytest.mark.parametrize(
    "query",
    ["sendInitialEvents=true", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
     "resourceVersionMatch=NotOlderThan&resourceVersion=1"],
)  # fmt: skip
async def test_invalid_streaming_list_options_are_rejected(api, query: str) -> None:
    with pytest.raises(errors.Invalid, match="ListOptions"):
        await api.get(f"{CONFIGS}?watch=1&{query}")


@pytest.mark.parametrize("query", ["timeoutSeconds=x", "labelSelector=(", "fieldSelector=data.k=1"])
async def test_invalid_parameter_is_a_bad_request(api, query: str) -> None:
    with pytest.raises(errors.BadRequest):
        await api.get(f"{CONFIGS}?watch=1&{query}")


async def test_events_have_requested_version_and_representation(api) -> None:
    core = await opened(api, "/api/v1/events?watch=1")
    other = await opened(api, "/apis/events.k8s.io/v1/events?watch=1&allowWatchBookmarks=1")
    tables = await opened(api, "/api/v1/events?watch=1", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
             "message": "m", "reason": "R"}  # fmt: skip
    await api.post("/api/v1/namespaces/default/events", event)
    assert (await read(core, 1))[0]["object"]["message"] == "m"
    assert (await read(other, 1))[0]["object"]["note"] == "m"
    table = (await read(tables, 1))[0]["object"]
    assert (table["kind"], len(table["rows"])) == ("Table", 1)


async def test_last_pod_event_has_grace_period_zero(api) -> None:
    pods, options = "/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0}
    for name, deletions in {"at-once": [options], "after-a-grace": [None, options], "collected": []}.items():
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        made = (await api.post(pods, {"metadata": {"name": name}, "spec": spec})).tree
        stream = await opened(api, f"{pods}?watch=1&resourceVersion={made['metadata']['resourceVersion']}")
        for body in deletions:
            last = (await api.delete(f"{pods}/{name}", body)).tree
        if not deletions:
            await api.delete(pods, options)
        events = await read(stream, len(deletions) + 1 if deletions else 2)
        graces = [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events]
        versions = [event["object"]["metadata"]["resourceVersion"] for event in events]
        assert types_and_names(events) == [*[("MODIFIED", name)] * (len(events) - 1), ("DELETED", name)]
        assert graces == ([30, 0, 0] if len(deletions) == 2 else [0, 0])
        assert len(set(versions)) == len(versions)
        if deletions:
            assert last["metadata"]["resourceVersion"] == versions[-1]


async def test_pod_held_by_finalizer_is_deleted_with_one_event(api) -> None:
    pods = "/api/v1/namespaces/default/pods"
    meta = {"name": "p", "finalizers": ["example.org/x"]}
    made = (await api.post(pods, {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}})).tree
    stream = await opened(api, f"{pods}?watch=1&resourceVersion={made['metadata']['resourceVersion']}")
    await api.delete(f"{pods}/p")
    await api.patch(f"{pods}/p", {"metadata": {"finalizers": None}})
    assert types_and_names(await read(stream, 2)) == [("MODIFIED", "p"), ("DELETED", "p")]
