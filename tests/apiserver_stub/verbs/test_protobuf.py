"""Real manifests over protobuf: read like their JSON, written back unchanged, listed and watched."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver_stub.encode.protobuf import MEDIA_TYPE, decode, envelope, raw
from controller_manager.common.api.protobuf.wire import fields

MANIFESTS = sorted((Path(__file__).parents[2] / "manifests").glob("*.yaml"))
CONFIGS = "/api/v1/namespaces/default/configmaps"


def read(data: bytes) -> Any:
    return decode(data, "", "")


def untyped(tree: Any) -> Any:
    """An object as it is embedded in protobuf: without type, and without empty lists."""
    found = {name: value for name, value in tree.items() if name not in ("apiVersion", "kind")}
    if "status" in found:
        found["status"] = {name: value for name, value in found["status"].items() if value is not None}
    if claims := found.get("spec", {}).get("volumeClaimTemplates"):
        found["spec"] = {**found["spec"], "volumeClaimTemplates": [untyped(claim) for claim in claims]}
    return found


def messages(data: bytes) -> Iterator[tuple[str, Any]]:
    """The events of a watch, each with its object."""
    while data:
        size = int.from_bytes(data[:4], "big")
        event, data = dict(fields(data[4 : 4 + size])), data[4 + size :]
        kind, [(_, shown)] = event[1 << 3 | 2], fields(event[2 << 3 | 2])
        yield kind.decode(), read(shown)


def manifests() -> Iterator[dict[str, Any]]:
    """Every object of the manifests."""
    for file in MANIFESTS:
        for tree in yaml.safe_load_all(file.read_text()):
            yield from tree["items"] if tree["kind"] == "List" else [tree]


@pytest.fixture
async def stored(api: Any) -> list[str]:
    """The paths of the objects of all manifests."""
    kinds = {(kind.api_version, kind.kind): kind for kind in api.kinds.all()}
    paths = []
    for tree in manifests():
        kind = kinds[tree["apiVersion"], tree["kind"]]
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        if kind.namespaced:
            path += f"/namespaces/{tree['metadata'].get('namespace', 'default')}"
        await api.post(f"{path}/{kind.plural}", tree)
        paths.append(f"{path}/{kind.plural}/{tree['metadata']['name']}")
    return paths


async def test_objects_equal_their_json(api: Any, stored: list[str]) -> None:
    """API concepts, Protobuf envelope, raw: the complete object."""
    for path in stored:
        answer = await api.get(path, accept=MEDIA_TYPE)
        assert answer.headers["content-type"] == MEDIA_TYPE
        found, plain = read(answer.body), (await api.get(path)).tree
        assert (found["apiVersion"], found["kind"]) == (plain["apiVersion"], plain["kind"])
        assert untyped(found) == untyped(plain)


async def test_put_of_unchanged_object_changes_nothing(api: Any, stored: list[str]) -> None:
    """As Go clients update: fields they did not touch are sent back as read."""
    for path in stored:
        await api.put(path, (await api.get(path)).tree)
        whole = (await api.get(path, accept=MEDIA_TYPE)).body
        answer = await api.put(path, whole, content_type=MEDIA_TYPE, accept=MEDIA_TYPE)
        assert read(answer.body) == read(whole)


async def test_lists_equal_their_json(api: Any, stored: list[str]) -> None:
    for path in dict.fromkeys(path.rpartition("/")[0] for path in stored):
        answer = await api.get(path, accept=MEDIA_TYPE)
        plain = (await api.get(path)).tree
        assert read(answer.body) == {**plain, "items": [untyped(item) for item in plain["items"]]}
        assert (await api.get(path, accept=MEDIA_TYPE)).body == answer.body


@pytest.mark.parametrize("count", [0, 1, 300])
async def test_lists_of_any_size(api: Any, count: int) -> None:
    names = [f"c-{n:03}" for n in range(count)]
    for name in names:
        await api.config(name)
    found = read((await api.get(CONFIGS, accept=MEDIA_TYPE)).body)
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMapList")
    assert [item["metadata"]["name"] for item in found.get("items", [])] == names
    assert found["metadata"]["resourceVersion"] == str(api.store.revision)


async def test_list_chunks_have_continue_and_remaining_count(api: Any) -> None:
    """API concepts, Chunked listing, rule 2: `continue` and `remainingItemCount` are in the list's metadata."""
    for name in "abc":
        await api.config(name)
    first = read((await api.get(f"{CONFIGS}?limit=2", accept=MEDIA_TYPE)).body)
    assert first["metadata"]["remainingItemCount"] == 1
    token = first["metadata"]["continue"]
    last = read((await api.get(f"{CONFIGS}?limit=2&continue={token}", accept=MEDIA_TYPE)).body)
    assert [item["data"]["k"] for item in first["items"] + last["items"]] == ["a", "b", "c"]


async def test_metadata_only(api: Any) -> None:
    made = (await api.config("a", labels={"team": "x"})).tree
    accept = f"{MEDIA_TYPE};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = read((await api.get(CONFIGS, accept=accept)).body)
    assert (found["apiVersion"], found["kind"]) == ("meta.k8s.io/v1", "PartialObjectMetadataList")
    assert found["items"] == [{"metadata": made["metadata"]}]
    accept = f"{MEDIA_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    found = read((await api.get(f"{CONFIGS}/a", accept=accept)).body)
    assert found == {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": made["metadata"]}


async def test_watch_delivers_initial_state_and_changes(api: Any) -> None:
    """API concepts, Watching: the same events as in JSON, each a message of its own."""
    await api.config("a")
    accept = f"{MEDIA_TYPE};stream=watch"
    url = f"{CONFIGS}?watch=1&timeoutSeconds=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
    response = await api.send("GET", f"{url}&allowWatchBookmarks=1", accept=accept)
    assert response.headers["content-type"] == accept
    chunks = [await anext(response.body)]
    await api.config("b")
    await api.delete(f"{CONFIGS}/a")
    while len(list(messages(b"".join(chunks)))) < 4:
        chunks.append(await anext(response.body))
    await response.body.aclose()
    events = list(messages(b"".join(chunks)))
    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK", "ADDED", "DELETED"]
    assert [tree["metadata"].get("name") for _, tree in events] == ["a", None, "b", "a"]
    assert {(tree["apiVersion"], tree["kind"]) for _, tree in events} == {("v1", "ConfigMap")}
    assert events[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[2][1] == (await api.get(f"{CONFIGS}/b")).tree


@pytest.mark.parametrize("view", ["", ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"])
async def test_object_leaving_selector_is_sent_as_deleted(api: Any, view: str) -> None:
    """API concepts, Watching: a DELETED event for a selector has the state last selected, as of the change."""
    await api.config("a", labels={"team": "x"})
    url = f"{CONFIGS}?watch=1&labelSelector=team=x&resourceVersion={api.store.revision}"
    response = await api.send("GET", url, accept=f"{MEDIA_TYPE};stream=watch{view}")
    changed = (await api.patch(f"{CONFIGS}/a", {"metadata": {"labels": {"team": "y"}}})).tree
    [(kind, shown)] = messages(await anext(response.body))
    await response.body.aclose()
    assert (kind, shown["metadata"]["labels"]) == ("DELETED", {"team": "x"})
    assert shown["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_watch_of_metadata(api: Any) -> None:
    made = (await api.config("a")).tree
    accept = f"{MEDIA_TYPE};stream=watch;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    response = await api.send("GET", f"{CONFIGS}?watch=1", accept=accept)
    [(kind, shown)] = messages(await anext(response.body))
    await response.body.aclose()
    assert kind == "ADDED"
    assert shown == {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": made["metadata"]}


async def test_watch_in_another_version_than_stored(api: Any) -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "action": "Run",
        "reason": "R",
        "type": "Normal",
        "note": "boo",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
    }
    url = "/apis/events.k8s.io/v1/namespaces/default/events"
    made = (await api.post(url, event)).tree
    response = await api.send("GET", f"{url}?watch=1", accept=f"{MEDIA_TYPE};stream=watch")
    [(kind, shown)] = messages(await anext(response.body))
    await response.body.aclose()
    assert (kind, shown["note"], shown) == (
        "ADDED",
        "boo",
        {name: value for name, value in made.items() if value is not None},
    )


async def test_expired_watch_ends_with_a_status(api: Any) -> None:
    """API concepts, Watching: an ERROR event holds a `Status`."""
    url = f"{CONFIGS}?watch=1&resourceVersion={api.store.revision}"
    response = await api.send("GET", url, accept=f"{MEDIA_TYPE};stream=watch")
    for name in range(250):  # more than the history holds
        await api.config(f"c-{name}")
    [(kind, status)] = messages(b"".join([chunk async for chunk in response.body]))
    assert (kind, status["apiVersion"], status["kind"]) == ("ERROR", "v1", "Status")
    assert (status["code"], status["reason"]) == (410, "Expired")


async def test_scale_has_a_message(api: Any, stored: list[str]) -> None:
    path = next(path for path in stored if "/deployments/" in path)
    found = read((await api.get(f"{path}/scale", accept=MEDIA_TYPE)).body)
    assert (found["apiVersion"], found["kind"]) == ("autoscaling/v1", "Scale")
    shown = {**found, "spec": {"replicas": 7}}
    body = envelope("autoscaling/v1", "Scale", raw(json.dumps(shown).encode(), "autoscaling/v1", "Scale"))
    answer = await api.put(f"{path}/scale", body, content_type=MEDIA_TYPE, accept=MEDIA_TYPE)
    assert read(answer.body)["spec"] == {"replicas": 7}
