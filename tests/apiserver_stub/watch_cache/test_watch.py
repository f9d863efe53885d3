"""What a watcher is told, in virtual time: events, transitions, initial state, bookmarks, and every way to end."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record, Write, as_of
from apiserver_stub.streams import EndingStream, ObservedStream
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.event_encoder import PLAIN, EventEncoder
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.watch_cache.stream import Stream
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.api.selectors import FieldSelector, LabelSelector
from controller_manager.base.slices import Share, Slices
from tests.apiserver_stub.memory_backend import MemoryBackend

pytestmark = pytest.mark.virtual


LOWER = EventEncoder("lower", frame=lambda kind, data: PLAIN.event(kind.lower(), data))


@dataclass
class Cluster:
    """A store with a hub, and shorthand for writing Pods and reading events."""

    store: WatchCache
    representations: RepresentationCache
    hub: Hub
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    async def put(self, name: str, text: str = "", node: str = "", **labels: str) -> int:
        """Write a Pod; returns its revision."""
        namespace, _, short = name.partition("/")

        metadata = {"name": short, "namespace": namespace, "labels": labels, "resourceVersion": ""}
        data = msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}, "text": text})
        row = self.store.get("pods", name)
        return (await self.store.commit(Write("pods", name, row.revision if row else 0, data))).revision

    async def delete(self, name: str) -> int:
        row = self.store.get("pods", name)
        assert row is not None
        data = as_of(row.data, "")
        return (await self.store.commit(Write("pods", name, row.revision, data, deleted=True))).revision

    def watch(self, represent: EventEncoder = PLAIN, **options: Any) -> "Seen":
        """Open a watch and read it until it ends."""
        stream = self.hub.open("pods", "v1", "Pod", WatchOptions(**options), represent)
        seen = Seen(stream)
        self.readers.append(asyncio.get_running_loop().create_task(seen.read()))
        return seen


class Seen:
    """What a stream has said so far."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.chunks: list[bytes] = []
        self.ended = False

    async def read(self) -> None:
        async for chunk in self.stream:
            assert chunk.endswith(b"\n")
            self.chunks.append(chunk)
        self.ended = True

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in b"".join(self.chunks).splitlines()]

    @property
    def short(self) -> list[str]:
        """Like `ADDED a 5`."""
        return [
            f"{event['type']} {event['object']['metadata'].get('name', '-')} "
            f"{event['object']['metadata'].get('resourceVersion', '-')}"
            for event in self.events
        ]


async def ready() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention(changes=100))
    await store.start()
    representations = RepresentationCache(store, size=256 << 20)
    made = Cluster(store, representations, Hub(store, representations))
    yield made
    made.hub.close()
    await asyncio.wait_for(asyncio.gather(*made.readers), 1)
    await store.close()


async def test_changes_after_a_revision_then_live_ones(cluster: Cluster) -> None:
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


async def test_without_a_start_the_state_comes_first(cluster: Cluster) -> None:
    for name in ("ns/b", "ns/a", "other/c"):
        await cluster.put(name)
    seen = cluster.watch()
    await cluster.put("ns/b")
    await ready()
    assert seen.short == ["ADDED a 3", "ADDED b 2", "ADDED c 4", "MODIFIED b 5"]


async def test_the_state_is_that_of_the_moment_the_watch_was_opened(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions())
    await cluster.put("ns/a")
    await cluster.put("ns/b")
    seen = Seen(stream)
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    await ready()
    assert seen.short == ["ADDED a 2", "MODIFIED a 3", "ADDED b 4"]


async def test_the_end_of_the_state_is_marked_if_asked(cluster: Cluster) -> None:
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
async def test_filters_hold_for_state_and_changes(
    cluster: Cluster, options: dict[str, Any], expected: list[str], start: int | None
) -> None:
    await cluster.put("ns/a", app="web")
    await cluster.put("other/a")
    await cluster.put("ns/b", node="n1")
    await cluster.put("n/x", node="n1", app="web")
    seen = cluster.watch(start=start, **options)
    await ready()
    assert sorted(seen.short) == sorted(expected)


async def test_an_object_enters_and_leaves_a_selection(cluster: Cluster) -> None:
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


async def test_a_deletion_nobody_selected_is_not_told(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = cluster.watch(start=2, labels=LabelSelector.parse("app=web"))
    await cluster.delete("ns/a")
    await ready()
    assert seen.short == []


async def test_bookmarks_come_every_minute_with_the_revision_of_the_store(cluster: Cluster) -> None:
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


async def test_a_bookmark_never_runs_ahead_of_the_events(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1, bookmarks=True))
    for number in range(10):
        await cluster.put(f"ns/{number}", text="x" * 50_000)
    await asyncio.sleep(70)
    seen = Seen(stream)
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    await ready()
    reached = 1
    for event in seen.events:
        revision = int(event["object"]["metadata"]["resourceVersion"])
        assert revision == reached if event["type"] == "BOOKMARK" else revision == reached + 1
        reached = revision
    assert [event["type"] for event in seen.events].count("BOOKMARK") == 1
    assert reached == 11


async def test_a_timeout_ends_the_stream_after_a_last_bookmark(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, bookmarks=True, timeout=30)
    silent = cluster.watch(start=1, timeout=30)
    await asyncio.sleep(29)
    assert (seen.ended, silent.ended) == (False, False)
    await cluster.put("ns/a")
    await asyncio.sleep(2)
    assert (seen.ended, silent.ended) == (True, True)
    assert seen.short == ["ADDED a 2", "BOOKMARK - 2"]
    assert silent.short == ["ADDED a 2"]


async def test_a_start_before_the_history_is_told_and_ends(cluster: Cluster) -> None:
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


async def test_a_start_in_the_future_is_told_and_ends(cluster: Cluster) -> None:
    seen = cluster.watch(start=99)
    await ready()
    assert seen.ended
    assert seen.events[0]["type"] == "ERROR"
    assert "Too large resource version" in seen.events[0]["object"]["message"]


async def test_a_reader_left_behind_by_the_history_is_cut_off(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1))
    await cluster.put("ns/a")
    assert b'"ADDED"' in await anext(stream)
    for number in range(101):
        await cluster.put(f"ns/{number}")
    status = json.loads(await anext(stream))
    assert (status["type"], status["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_idle_watcher_outlives_the_history(cluster: Cluster) -> None:
    seen = cluster.watch(start=1)
    await cluster.put("ns/a")
    await asyncio.sleep(1000)
    assert cluster.store.history("pods").trimmed == 2
    await cluster.put("ns/b")
    await ready()
    assert seen.short == ["ADDED a 2", "ADDED b 3"]


async def test_closing_the_hub_ends_all_streams_and_later_ones(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    waiting, other = cluster.watch(start=2), cluster.watch(start=2, namespace="x")
    unread = cluster.hub.open("pods", "v1", "Pod", WatchOptions())
    await ready()
    cluster.hub.close()
    await ready()
    assert (waiting.ended, other.ended) == (True, True)
    assert [chunk async for chunk in unread] == []
    assert [chunk async for chunk in cluster.hub.open("pods", "v1", "Pod", WatchOptions())] == []


async def test_the_streams_of_one_version_of_a_resource_can_be_ended(cluster: Cluster) -> None:
    ended, kept = cluster.watch(start=1), cluster.hub.open("pods", "v2", "Pod", WatchOptions(start=1))
    await cluster.put("ns/a")
    cluster.hub.end("pods", "v1")
    cluster.hub.end("nodes", "v2")
    await ready()
    assert (ended.ended, ended.short) == (True, ["ADDED a 2"])
    assert json.loads(await anext(kept))["object"]["metadata"]["name"] == "a"
    later = cluster.watch(start=1)
    await ready()
    assert (later.ended, later.short) == (False, ["ADDED a 2"])


def on_node(node: str) -> dict[str, Any]:
    return {"fields": FieldSelector.parse(f"spec.nodeName={node}"), "trigger": ("spec.nodeName", node)}


def count_looks(seen: "Seen", monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that grows whenever the watcher of a stream looks for something to say."""
    looks: list[float] = []
    watcher = seen.stream._watcher
    take = watcher.take

    def counted(now: float) -> bytes:
        looks.append(now)
        return take(now)

    monkeypatch.setattr(watcher, "take", counted)
    return looks


async def test_a_watch_of_one_node_is_woken_by_its_pods_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put("ns/mine", node="n1")
    seen = cluster.watch(start=2, **on_node("n1"))
    await ready()
    looks = count_looks(seen, monkeypatch)
    for number in range(150):  # more than history holds
        await cluster.put(f"ns/{number}", node="n2")
    await ready()
    assert looks == []
    await cluster.put("ns/0", node="n1")
    await cluster.put("ns/mine", node="n3")
    await cluster.put("ns/1", node="n3")
    await ready()
    assert seen.short == ["ADDED 0 153", "DELETED mine 154"]
    await cluster.delete("ns/0")
    await ready()
    assert seen.short[2:] == ["DELETED 0 156"]


async def test_a_watch_that_nothing_concerned_has_seen_everything_when_it_says_how_far_it_is(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, bookmarks=True, timeout=3600, **on_node("n1"))
    await ready()
    for number in range(150):
        await cluster.put(f"ns/{number}", node="n2")
    await asyncio.sleep(61)
    assert seen.short == ["BOOKMARK - 151"]
    await cluster.put("ns/a", node="n1")
    await ready()
    assert seen.short == ["BOOKMARK - 151", "ADDED a 152"]


async def test_of_many_watches_some_are_woken_in_each_round_and_all_are_told(cluster: Cluster) -> None:
    watches = [cluster.watch(start=1) for _ in range(200)]
    await ready()
    await cluster.put("ns/a")
    told = []
    while len(told) < 20 and (not told or told[-1] < len(watches)):
        await asyncio.sleep(0)
        told.append(sum(map(bool, (seen.chunks for seen in watches))))
    assert max(after - before for before, after in zip([0, *told], told, strict=False)) <= 64
    assert [seen.short for seen in watches] == [["ADDED a 2"]] * 200


@pytest.mark.parametrize("namespace", ["", "ns"])
async def test_whole_namespaces_are_told_as_those_who_choose_are_told(cluster: Cluster, namespace: str) -> None:
    first = await cluster.put("ns/a", app="web")
    await cluster.put("ns/b", app="web")
    row = cluster.store.get("pods", "ns/b")
    assert row is not None
    row.hold((row.data[:20], row.data[20:]))
    if not namespace:
        await cluster.put("other/c", app="web")
    chosen = LabelSelector.parse("app=web")
    starts = None, first
    watches = [
        (cluster.watch(start=start, namespace=namespace), cluster.watch(start=start, namespace="ns", labels=chosen))
        for start in starts
    ]
    await cluster.put("ns/a", app="web")
    await cluster.delete("ns/b")
    await cluster.delete("ns/a")
    await ready()
    for whole, chosen_of in watches:
        of_all = [event for event in whole.events if event["object"]["metadata"]["namespace"] == "ns"]
        assert of_all == chosen_of.events
        assert len(of_all) == len(whole.events) - (not namespace)
    assert watches[0][0].short[:2] == ["ADDED a 2", "ADDED b 3"]


class Pushed(Seen):
    """What a stream has said to a sink, and to its reader, who gets an empty chunk to look after the sink."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.is_taken = True
        self.looked = 0
        stream.push_to(self.take)

    def take(self, chunk: bytes) -> bool:
        self.chunks.append(chunk)
        return self.is_taken

    async def read(self) -> None:
        async for chunk in self.stream:
            self.looked += not chunk
            self.chunks.append(chunk)
        self.ended = True


def pushed(cluster: Cluster, **options: Any) -> Pushed:
    seen = Pushed(cluster.hub.open("pods", "v1", "Pod", WatchOptions(**options)))
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    return seen


async def test_a_stream_with_a_sink_speaks_at_once_and_its_reader_gets_the_rest(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = pushed(cluster, timeout=90, bookmarks=True)
    await ready()
    assert seen.short == ["ADDED a 2"]  # by its reader
    told: list[list[str]] = []
    cluster.store.subscribe(lambda changes: told.append(seen.short))
    await cluster.put("ns/b")
    await cluster.delete("ns/a")
    assert told == [["ADDED a 2", "ADDED b 3"], ["ADDED a 2", "ADDED b 3", "DELETED a 4"]]
    await asyncio.sleep(61)
    assert seen.short[3:] == ["BOOKMARK - 4"]
    seen.is_taken = False
    await cluster.put("ns/c")
    await ready()
    assert seen.looked == 1
    await cluster.put("ns/d", text="x" * 300_000)  # too much to be said at once
    await asyncio.sleep(30)
    assert seen.short[3:] == ["BOOKMARK - 4", "ADDED c 5", "ADDED d 6", "BOOKMARK - 6"]
    assert seen.ended


class PushedBookmarks(Pushed):
    """What a stream has said to a sink for bookmarks, apart from what it has said to its reader."""

    def __init__(self, stream: Stream) -> None:
        Seen.__init__(self, stream)
        self.is_taken, self.looked = True, 0
        self.sunk: list[bytes] = []
        ObservedStream(stream, lambda: None).push_bookmarks_to(self.take)

    def take(self, chunk: bytes) -> bool:
        self.sunk.append(chunk)
        return self.is_taken

    @property
    def reached(self) -> list[str]:
        return [json.loads(chunk)["object"]["metadata"]["resourceVersion"] for chunk in self.sunk]


async def test_bookmarks_go_to_a_sink_for_them_and_all_else_to_the_reader(cluster: Cluster) -> None:
    options = WatchOptions(start=1, timeout=200, bookmarks=True)
    seen = PushedBookmarks(cluster.hub.open("pods", "v1", "Pod", options))
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    await ready()
    await cluster.put("ns/a")
    await asyncio.sleep(61)
    assert (seen.reached, seen.short, seen.looked) == (["2"], ["ADDED a 2"], 0)
    await cluster.put("other/b")
    seen.is_taken = False
    await asyncio.sleep(60)
    assert (seen.reached, seen.short, seen.looked) == (["2", "3"], ["ADDED a 2", "ADDED b 3"], 1)
    seen.is_taken = True
    await asyncio.sleep(60)
    assert not seen.ended
    await asyncio.sleep(30)
    assert seen.reached == ["2", "3", "3", "3"]
    assert seen.ended


async def test_many_streams_with_sinks_speak_in_slices_and_late_ones_without(cluster: Cluster) -> None:
    slices = Slices(asyncio.get_running_loop())
    Share(slices).enter()
    watches = [pushed(cluster, start=1) for _ in range(100)]
    await ready()
    numbers = []
    cluster.store.subscribe(lambda changes: numbers.append(sum(bool(seen.chunks) for seen in watches)))
    await cluster.put("ns/a")
    assert numbers == [32]
    while not all(seen.chunks for seen in watches):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    await cluster.put("ns/b")
    await cluster.put("ns/c")
    assert numbers == [32, 100, 100]
    assert all(len(seen.chunks) == 1 for seen in watches), "the next round is not begun before its time"
    await asyncio.sleep(0.05)
    assert all(seen.short == ["ADDED a 2", "ADDED b 3", "ADDED c 4"] for seen in watches)
    assert len({id(seen.chunks[1]) for seen in watches}) == 1, "what they say together is put together once"


async def test_streams_say_at_once_what_comes_after_a_pause_and_no_round_waits_long(cluster: Cluster) -> None:
    Share(Slices(asyncio.get_running_loop())).enter()
    watches = [pushed(cluster, start=1) for _ in range(20)]
    await ready()
    for number in range(10):
        await cluster.put(f"ns/a{number}")
        assert all(len(seen.short) == number + 1 for seen in watches)
        await asyncio.sleep(0.003)
    more = [pushed(cluster, start=11) for _ in range(2000)]
    await ready()
    await cluster.put("ns/b")
    await cluster.put("ns/c")
    await asyncio.sleep(0.2)
    assert all(seen.short == ["ADDED b 12", "ADDED c 13"] for seen in more)


async def test_what_is_put_together_is_for_those_of_the_same_place_and_form(cluster: Cluster) -> None:
    Share(Slices(asyncio.get_running_loop())).enter()
    await cluster.put("ns/z")
    for name in ("ns/a", "of/b", "ns/c"):
        await cluster.put(name)
    whole, late = pushed(cluster, start=2), pushed(cluster, start=3)
    ours, theirs = (pushed(cluster, start=2, namespace=name) for name in ("ns", "of"))
    told = Pushed(cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=2), LOWER))
    cluster.readers.append(asyncio.get_running_loop().create_task(told.read()))
    for number in range(3):
        await asyncio.sleep(0.1)
        assert whole.short[1:] == late.short
        assert [line.lower() for line in whole.short] == told.short
        for seen, namespace in ((ours, "ns"), (theirs, "of")):
            of_it = [event for event in whole.events if event["object"]["metadata"]["namespace"] == namespace]
            assert seen.events == of_it
        await asyncio.gather(cluster.put(f"ns/n{number}"), cluster.put(f"of/n{number}"))
    assert len(whole.events) >= 7


async def test_a_stream_that_was_ended_says_nothing_to_a_sink(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1))
    ending = EndingStream(ObservedStream(stream, lambda: None), math.inf)
    chunks: list[bytes] = []

    def take(chunk: bytes) -> bool:
        chunks.append(chunk)
        return True

    async def read() -> None:
        async for chunk in ending:
            take(chunk)

    ending.push_to(take)
    cluster.readers.append(asyncio.get_running_loop().create_task(read()))
    await ready()
    await cluster.put("ns/a")
    assert len(chunks) == 1
    ending.end()
    assert stream._sink is not None
    assert stream._sink(b"late")  # in the same round of the loop, before its reader knows
    await cluster.put("ns/b")
    await ready()
    assert len(chunks) == 1


async def test_a_watch_that_is_about_to_be_woken_skips_nothing_when_its_clock_rings(cluster: Cluster) -> None:
    watches = [cluster.watch(start=1) for _ in range(200)]
    last = cluster.watch(start=1, bookmarks=True, timeout=3600, **on_node("n1"))
    await ready()
    cluster.store.subscribe(lambda changes: last.stream._ring())  # when some are woken already
    await cluster.put("ns/a", node="n1")
    await asyncio.sleep(1)
    assert last.short == watches[0].short == ["ADDED a 2"]


async def test_a_watch_of_one_node_learns_of_an_object_that_cannot_be_read(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, **on_node("n1"))
    await ready()
    broken = Record(2, "pods", "ns/broken", b"", False, 0.0, decode_error="it is no object")
    cluster.store._deliver([broken], 2)
    await ready()
    assert seen.ended


async def test_closing_a_stream_ends_its_reader_and_leaves_nothing_behind(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, bookmarks=True, timeout=1000)
    await ready()
    await seen.stream.aclose()
    await ready()
    assert seen.ended
    assert not any(cluster.hub._waiting.values())
    assert seen.stream._alarm is None


async def test_closing_a_stream_that_nobody_reads_just_now_leaves_no_timer(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1, timeout=1000))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_next(stream))
        await ready()
        await cluster.put("ns/a")
    assert b"ADDED" in reading.result()
    assert stream._alarm is not None
    await stream.aclose()
    assert stream._alarm is None


async def test_looking_through_a_large_state_in_vain_lets_others_run(cluster: Cluster) -> None:
    for number in range(5000):
        await cluster.put(f"ns/{number}")
    seen = cluster.watch(labels=LabelSelector.parse("app=web"), initial_end=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen.short == []
    await ready()
    assert seen.short == ["BOOKMARK - 5001"]


async def test_a_cancelled_reader_leaves_nothing_behind(cluster: Cluster) -> None:
    seen = cluster.watch(start=1)
    await ready()
    cluster.readers.pop().cancel()
    await ready()
    assert not any(cluster.hub._waiting.values())
    await cluster.put("ns/a")
    assert b"ADDED" in await anext(seen.stream)


async def test_pending_events_are_joined_into_bounded_chunks(cluster: Cluster) -> None:
    for number in range(90):
        await cluster.put(f"ns/{number:02}", text="x" * 10_000)
    changes, state = cluster.watch(start=1), cluster.watch()
    await ready()
    for seen in (changes, state):
        assert len(seen.events) == 90
        assert 4 < len(seen.chunks) < 12
        assert max(map(len, seen.chunks)) < 256 << 10


async def test_a_long_backlog_lets_others_run(cluster: Cluster) -> None:
    for number in range(90):
        await cluster.put(f"ns/{number:02}", text="x" * 140_000)
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
    """A representation that notes its work."""

    def convert(data: bytes) -> bytes:
        converted.append(data)
        return json.dumps({**json.loads(data), "kind": "UPPER"}).encode()

    return EventEncoder("upper", convert)


async def test_a_line_is_made_once_per_representation_and_shared(cluster: Cluster) -> None:
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


async def test_state_and_bookmarks_are_represented_too_but_errors_are_not(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = cluster.watch(represent=upper([]), initial_end=True)
    failing = cluster.watch(represent=upper([]), start=99)
    await ready()
    assert [event["object"]["kind"] for event in seen.events] == ["UPPER", "UPPER"]
    assert failing.events[0]["object"]["kind"] == "Status"


async def test_shared_lines_do_not_pile_up(cluster: Cluster) -> None:
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


async def _next(stream: Stream) -> bytes:
    return await anext(stream)
