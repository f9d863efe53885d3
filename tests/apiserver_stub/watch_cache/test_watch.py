"""Watches in virtual time: events, transitions, initial state, bookmarks, and every way to end."""

import asyncio
import json
from typing import Any

import pytest

from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.event_encoder import EventEncoder
from apiserver_stub.watch_cache.stream import WatchStream
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.common.api.selectors import FieldSelector, LabelSelector
from tests.apiserver_stub.watch_cache.conftest import ready
from tests.apiserver_stub.watch_cache.watch_readers import Cluster, WatchReader
from tests.pace import end_slices_at_each_look

pytestmark = pytest.mark.virtual


async def test_changes_after_a_revision_come_before_live_ones(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    since = await cluster.put("ns/b")
    await cluster.put("ns/a")
    seen = cluster.watch(start=since)
    await ready()
    assert seen.short == ["MODIFIED a 4"]
    await cluster.put("ns/c")
    await cluster.delete("ns/b")
    await ready()
    assert seen.short == ["MODIFIED a 4", "ADDED c 5", "DELETED b 6"]


async def test_watch_without_start_begins_with_the_state(cluster: Cluster) -> None:
    for name in ("ns/b", "ns/a", "other/c"):
        await cluster.put(name)
    seen = cluster.watch()
    await cluster.put("ns/b")
    await ready()
    assert seen.short == ["ADDED a 3", "ADDED b 2", "ADDED c 4", "MODIFIED b 5"]


async def test_initial_state_is_from_the_time_of_opening(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions())
    await cluster.put("ns/a")
    await cluster.put("ns/b")
    seen = WatchReader(stream)
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    await ready()
    assert seen.short == ["ADDED a 2", "MODIFIED a 3", "ADDED b 4"]


async def test_end_of_initial_state_is_marked_on_request(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    await cluster.store.commit(Write("nodes", "n", 0, b"{}"))
    seen = cluster.watch(initial_end=True, bookmarks=True)
    empty = cluster.watch(initial_end=True, bookmarks=True, namespace="none")
    await ready()
    assert seen.short == ["ADDED a 2", "BOOKMARK - 3"]
    assert empty.short == ["BOOKMARK - 3"]
    assert seen.events[1]["object"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "resourceVersion": "3",
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"namespace": "ns"}, ["ADDED a 2", "ADDED b 4"]),
        ({"namespace": "n"}, ["ADDED x 5"]),
        ({"namespace": "ns", "name": "b"}, ["ADDED b 4"]),
        ({"name": "a"}, ["ADDED a 2", "ADDED a 3"]),
        ({"labels": LabelSelector.parse("app=web")}, ["ADDED a 2", "ADDED x 5"]),
        ({"fields": FieldSelector.parse("spec.nodeName=n1")}, ["ADDED b 4", "ADDED x 5"]),
        ({"fields": FieldSelector.parse("metadata.name!=a,metadata.namespace=ns")}, ["ADDED b 4"]),
        ({"labels": LabelSelector.parse("app"), "fields": FieldSelector.parse("spec.nodeName=n1")}, ["ADDED x 5"]),
    ],
)
@pytest.mark.parametrize("start", [None, 1])
async def test_filters_apply_to_state_and_changes(
    cluster: Cluster, options: dict[str, Any], expected: list[str], start: int | None
) -> None:
    await cluster.put("ns/a", app="web")
    await cluster.put("other/a")
    await cluster.put("ns/b", node="n1")
    await cluster.put("n/x", node="n1", app="web")
    seen = cluster.watch(start=start, **options)
    await ready()
    assert sorted(seen.short) == sorted(expected)


async def test_object_entering_and_leaving_selection(cluster: Cluster) -> None:
    seen = cluster.watch(labels=LabelSelector.parse("app=web"))
    other = cluster.watch(labels=LabelSelector.parse("app=db"))
    await cluster.put("ns/a", text="1")
    await cluster.put("ns/a", text="2", app="web")
    await cluster.put("ns/a", text="3", app="web")
    await cluster.put("ns/a", text="4", app="db")
    await cluster.put("ns/a", text="5", app="web")
    await cluster.delete("ns/a")
    await ready()
    assert seen.short == ["ADDED a 3", "MODIFIED a 4", "DELETED a 5", "ADDED a 6", "DELETED a 7"]
    assert [event["object"]["text"] for event in seen.events] == ["2", "3", "3", "5", "5"]
    assert seen.events[2]["object"]["metadata"]["labels"] == {"app": "web"}
    assert other.short == ["ADDED a 5", "DELETED a 6"]


async def test_deletion_of_unselected_object_is_not_sent(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = cluster.watch(start=2, labels=LabelSelector.parse("app=web"))
    await cluster.delete("ns/a")
    await ready()
    assert seen.short == []


async def test_bookmarks_are_sent_every_minute(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = cluster.watch(start=2, bookmarks=True)
    silent = cluster.watch(start=2)
    await asyncio.sleep(59)
    assert seen.short == []
    await cluster.store.commit(Write("nodes", "n", 0, b"{}"))
    await asyncio.sleep(2)
    assert seen.short == ["BOOKMARK - 3"]
    assert seen.events[0]["object"]["kind"] == "Pod"
    assert "annotations" not in seen.events[0]["object"]["metadata"]
    await cluster.put("ns/b")
    await asyncio.sleep(120)
    assert seen.short == ["BOOKMARK - 3", "ADDED b 4", "BOOKMARK - 4", "BOOKMARK - 4"]
    assert silent.short == ["ADDED b 4"]


async def test_bookmark_is_never_ahead_of_events(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1, bookmarks=True))
    for number in range(10):
        await cluster.put(f"ns/{number}", text="x" * 50_000)
    await asyncio.sleep(70)
    seen = WatchReader(stream)
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    await ready()
    reached = 1
    for event in seen.events:
        revision = int(event["object"]["metadata"]["resourceVersion"])
        assert revision == reached if event["type"] == "BOOKMARK" else revision == reached + 1
        reached = revision
    assert [event["type"] for event in seen.events].count("BOOKMARK") == 1
    assert reached == 11


async def test_timeout_ends_the_stream_with_a_bookmark(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, bookmarks=True, timeout=30)
    silent = cluster.watch(start=1, timeout=30)
    await asyncio.sleep(29)
    assert (seen.ended, silent.ended) == (False, False)
    await cluster.put("ns/a")
    await asyncio.sleep(2)
    assert (seen.ended, silent.ended) == (True, True)
    assert seen.short == ["ADDED a 2", "BOOKMARK - 2"]
    assert silent.short == ["ADDED a 2"]


async def test_start_before_history_ends_with_error(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    await asyncio.sleep(400)
    seen = cluster.watch(start=1)
    at_the_edge = cluster.watch(start=2)
    await ready()
    assert seen.ended
    assert [event["type"] for event in seen.events] == ["ERROR"]
    status = seen.events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert (at_the_edge.ended, at_the_edge.events) == (False, [])


async def test_start_in_the_future_ends_with_error(cluster: Cluster) -> None:
    seen = cluster.watch(start=99)
    await ready()
    assert seen.ended
    assert seen.events[0]["type"] == "ERROR"
    assert "Too large resource version" in seen.events[0]["object"]["message"]


async def test_slow_reader_is_disconnected(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1))
    await cluster.put("ns/a")
    assert b'"ADDED"' in await anext(stream)
    for number in range(101):
        await cluster.put(f"ns/{number}")
    status = json.loads(await anext(stream))
    assert (status["type"], status["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_idle_watch_survives_compaction(cluster: Cluster) -> None:
    seen = cluster.watch(start=1)
    await cluster.put("ns/a")
    await asyncio.sleep(1000)
    assert cluster.store.history("pods").trimmed == 2
    await cluster.put("ns/b")
    await ready()
    assert seen.short == ["ADDED a 2", "ADDED b 3"]


async def test_closing_the_hub_ends_current_and_new_streams(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    waiting, other = cluster.watch(start=2), cluster.watch(start=2, namespace="x")
    unread = cluster.hub.open("pods", "v1", "Pod", WatchOptions())
    await ready()
    cluster.hub.close()
    await ready()
    assert (waiting.ended, other.ended) == (True, True)
    assert [chunk async for chunk in unread] == []
    assert [chunk async for chunk in cluster.hub.open("pods", "v1", "Pod", WatchOptions())] == []


async def test_streams_of_one_resource_version_can_be_ended(cluster: Cluster) -> None:
    ended, kept = cluster.watch(start=1), cluster.hub.open("pods", "v2", "Pod", WatchOptions(start=1))
    await ready()
    for name in ("ns/a", "ns/b"):
        await cluster.put(name)
    cluster.hub.end("pods", "v1")
    cluster.hub.end("nodes", "v2")
    await ready()
    assert (ended.ended, ended.short) == (True, ["ADDED a 2", "ADDED b 3"])
    assert json.loads((await anext(kept)).splitlines()[0])["object"]["metadata"]["name"] == "a"
    later = cluster.watch(start=1)
    await ready()
    assert (later.ended, later.short) == (False, ["ADDED a 2", "ADDED b 3"])


async def test_close_ends_the_reader_and_cleans_up(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, bookmarks=True, timeout=1000)
    await ready()
    await seen.stream.aclose()
    await ready()
    assert seen.ended
    assert not any(cluster.hub._waiting.values())
    assert seen.stream._alarm is None


async def test_close_without_pending_read_leaves_no_timer(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1, timeout=1000))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_next(stream))
        await ready()
        await cluster.put("ns/a")
    assert b"ADDED" in reading.result()
    assert stream._alarm is not None
    await stream.aclose()
    assert stream._alarm is None


async def test_scan_without_matches_yields_to_the_event_loop(cluster: Cluster) -> None:
    for number in range(5000):
        await cluster.put(f"ns/{number}")
    end_slices_at_each_look()
    seen = cluster.watch(labels=LabelSelector.parse("app=web"), initial_end=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen.short == []
    await ready()
    assert seen.short == ["BOOKMARK - 5001"]


async def test_canceled_reader_cleans_up(cluster: Cluster) -> None:
    seen = cluster.watch(start=1)
    await ready()
    cluster.readers.pop().cancel()
    await ready()
    assert not any(cluster.hub._waiting.values())
    await cluster.put("ns/a")
    assert b"ADDED" in await anext(seen.stream)


async def test_pending_events_are_joined_into_limited_chunks(cluster: Cluster) -> None:
    for number in range(90):
        await cluster.put(f"ns/{number:02}", text="x" * 10_000)
    changes, state = cluster.watch(start=1), cluster.watch()
    await ready()
    for seen in (changes, state):
        assert len(seen.events) == 90
        assert 4 < len(seen.chunks) < 12
        assert max(map(len, seen.chunks)) < 256 << 10


async def test_long_backlog_yields_to_the_event_loop(cluster: Cluster) -> None:
    for number in range(90):
        await cluster.put(f"ns/{number:02}", text="x" * 140_000)
    end_slices_at_each_look()
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1))
    seen: list[int] = []

    async def read() -> None:
        for _ in range(90):
            await anext(stream)
            seen.append(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(seen) < 10


def upper(converted: list[bytes]) -> EventEncoder:
    """A representation that records its calls."""

    def convert(data: bytes) -> bytes:
        converted.append(data)
        return json.dumps({**json.loads(data), "kind": "UPPER"}).encode()

    return EventEncoder("upper", convert)


async def test_event_is_encoded_once_per_representation(cluster: Cluster) -> None:
    converted: list[bytes] = []
    shape = upper(converted)
    plain = [cluster.watch(start=1), cluster.watch(start=1), cluster.watch(start=1, namespace="ns")]
    shown = [cluster.watch(represent=shape, start=1), cluster.watch(represent=shape, start=1, namespace="ns")]
    await ready()
    await cluster.put("ns/a")
    await ready()
    assert all(seen.chunks[0] is plain[0].chunks[0] for seen in plain)
    assert shown[0].chunks[0] is shown[1].chunks[0]
    assert len(converted) == 1
    assert shown[0].events[0]["object"]["kind"] == "UPPER"
    assert "kind" not in plain[0].events[0]["object"]


async def test_state_and_bookmarks_are_encoded_but_not_errors(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = cluster.watch(represent=upper([]), initial_end=True)
    failing = cluster.watch(represent=upper([]), start=99)
    await ready()
    assert [event["object"]["kind"] for event in seen.events] == ["UPPER", "UPPER"]
    assert failing.events[0]["object"]["kind"] == "Status"


async def test_shared_events_are_evicted(cluster: Cluster) -> None:
    seen = cluster.watch(start=1)
    for number in range(40):
        await cluster.put(f"ns/{number}", text="x" * 1_000_000)
    await ready()
    assert len(seen.events) == 40
    kept = [
        change
        for change in cluster.store.history("pods").since(0)
        if cluster.representations.find_event(change.row, "ADDED", "") is not None
    ]
    assert 10 < len(kept) < 20


async def _next(stream: WatchStream) -> bytes:
    return await anext(stream)
