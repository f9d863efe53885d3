"""Lists and watches of shards (KEP-5866), with the gate ShardedListAndWatch on and off."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller_manager.common.api.sharding import NAMESPACE, UID, even_shard

GATE = "--feature-gates=ShardedListAndWatch=true"
CONFIGS = "/api/v1/configmaps?labelSelector=x=y"


def shard_query(field: str, index: int, count: int) -> str:
    return f"&shardSelector={even_shard(field, index, count)}"


async def create_config_maps(api: Any, namespaces: tuple[str, ...] = ("red", "blue"), each: int = 6) -> dict[str, str]:
    """Create config maps; return their uids by namespace and name."""
    found = {}
    for namespace in namespaces:
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for number in range(each):
            body = {"metadata": {"name": f"c{number}", "labels": {"x": "y"}}}
            answer = await api.post(f"/api/v1/namespaces/{namespace}/configmaps", body)
            found[f"{namespace}/c{number}"] = answer.tree["metadata"]["uid"]
    return found


@pytest.fixture
async def sharded(started: Any) -> AsyncIterator[Any]:
    async with started(GATE) as api:
        yield api


def keys(tree: dict[str, Any]) -> set[str]:
    return {f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in tree["items"]}


@pytest.mark.parametrize(("field", "count"), [(UID, 1), (UID, 3), (NAMESPACE, 2), (NAMESPACE, 5)])
async def test_shards_of_a_list_add_up_to_the_whole(sharded: Any, field: str, count: int) -> None:
    uids = await create_config_maps(sharded)
    seen: list[str] = []
    for index in range(count):
        tree = (await sharded.get(CONFIGS + shard_query(field, index, count))).tree
        shard = even_shard(field, index, count)
        assert tree["metadata"]["shardInfo"] == {"selector": str(shard)}
        found = keys(tree)
        values = {key: uids[key] if field == UID else key.partition("/")[0] for key in uids}
        assert found == {key for key, value in values.items() if shard.has(value)}
        seen += found
    assert sorted(seen) == sorted(uids)


async def test_chunks_of_a_shard_stay_within_it(sharded: Any) -> None:
    uids = await create_config_maps(sharded)
    chosen, found, token = shard_query(UID, 0, 2), set(), ""
    while True:
        metadata = (await sharded.get(f"{CONFIGS}{chosen}&limit=2&continue={token}")).tree
        found |= keys(metadata)
        assert "remainingItemCount" not in metadata["metadata"]
        token = metadata["metadata"].get("continue", "")
        if not token:
            break
    assert found == {key for key, uid in uids.items() if even_shard(UID, 0, 2).has(uid)}


@pytest.mark.virtual
async def test_watches_of_all_shards_deliver_each_change_once(sharded: Any) -> None:
    version = (await sharded.get(CONFIGS)).version
    uids = await create_config_maps(sharded)
    for key in uids:
        namespace, name = key.split("/")
        await sharded.delete(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    found = []
    for index in range(2):
        answer = await sharded.get(
            f"{CONFIGS}{shard_query(UID, index, 2)}&watch=1&timeoutSeconds=1&resourceVersion={version}"
        )
        shard = even_shard(UID, index, 2)
        events = [event for event in answer.events if event["type"] != "BOOKMARK"]
        assert all(shard.has(event["object"]["metadata"]["uid"]) for event in events)
        found += [(event["type"], event["object"]["metadata"]["uid"]) for event in events]
    assert sorted(found) == sorted((type_, uid) for type_ in ("ADDED", "DELETED") for uid in uids.values())


@pytest.mark.virtual
async def test_streaming_list_is_limited_to_its_shard(sharded: Any) -> None:
    uids = await create_config_maps(sharded)
    streaming = "&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    answer = await sharded.get(f"{CONFIGS}{shard_query(UID, 1, 2)}{streaming}&timeoutSeconds=1")
    added = {event["object"]["metadata"]["uid"] for event in answer.events if event["type"] == "ADDED"}
    assert added == {uid for uid in uids.values() if even_shard(UID, 1, 2).has(uid)}


async def test_collection_is_deleted_by_shard(sharded: Any) -> None:
    uids = await create_config_maps(sharded, ("red",))
    gone = await sharded.delete(f"/api/v1/namespaces/red/configmaps?labelSelector=x=y{shard_query(UID, 0, 2)}")
    left = keys((await sharded.get(CONFIGS)).tree)
    assert left == {key for key, uid in uids.items() if not even_shard(UID, 0, 2).has(uid)}
    assert keys(gone.tree) == set(uids) - left


async def test_cluster_scoped_objects_hash_an_empty_namespace(sharded: Any) -> None:
    """The hash of the empty string is 0xcbf29ce484222325, in the upper half."""
    assert (await sharded.get("/api/v1/namespaces?x=y" + shard_query(NAMESPACE, 0, 2))).tree["items"] == []
    assert (await sharded.get("/api/v1/namespaces?x=y" + shard_query(NAMESPACE, 1, 2))).tree["items"]


@pytest.mark.parametrize("accept", ["Table", "PartialObjectMetadataList"])
async def test_other_representations_have_no_shard_info(sharded: Any, accept: str) -> None:
    accept = f"application/json;as={accept};v=v1;g=meta.k8s.io"
    answer = await sharded.get(CONFIGS + shard_query(UID, 0, 2), accept=accept)
    assert "shardInfo" not in answer.tree["metadata"]


@pytest.mark.parametrize("more", ["", "&watch=1&timeoutSeconds=1"])
async def test_malformed_selector_gets_500_without_reason(sharded: Any, more: str) -> None:
    refusal = (await sharded.get(f"{CONFIGS}&shardSelector=abc{more}")).tree
    assert (refusal["code"], "reason" in refusal) == (500, False)
    assert refusal["message"].startswith("invalid shard selector: unexpected expression kind 3")


async def test_without_gate_the_parameter_is_ignored(api: Any) -> None:
    uids = await create_config_maps(api)
    for text in ("abc", even_shard(UID, 0, 2)):
        tree = (await api.get(f"{CONFIGS}&shardSelector={text}")).tree
        assert keys(tree) >= set(uids)
        assert "shardInfo" not in tree["metadata"]


async def test_watches_of_shards_are_counted(sharded: Any) -> None:
    await create_config_maps(sharded)
    stream = (await sharded.send("GET", f"{CONFIGS}{shard_query(UID, 0, 2)}&watch=1")).body
    await anext(stream)
    shown = (await sharded.get("/metrics")).body.decode()
    assert 'apiserver_watch_shards_total{group="",resource="configmaps"} 1' in shown
    assert 'apiserver_watch_filtered_events_total{group="",resource="configmaps"}' in shown
    await stream.aclose()
    shown = (await sharded.get("/metrics")).body.decode()
    assert 'apiserver_watch_shards_total{group="",resource="configmaps"} 1' not in shown
