"""A cache whose watch of the storage breaks resumes and catches up, whatever was lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Listing, Record, TooOld, Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Collection, Retention
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.watch_cache.row import Change
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.common.api.errors import ServiceUnavailable
from tests.apiserver_stub.lagging_storage import LaggingStorage
from tests.apiserver_stub.memory_backend import MemoryBackend

pytestmark = pytest.mark.virtual


def body(uid: str, text: str = "") -> bytes:
    metadata = {"resourceVersion": "", "name": "a", "uid": uid}
    return json.dumps({"metadata": metadata, "text": text}, separators=(",", ":")).encode()


def put(key: str, expected: int = 0, text: str = "", resource: str = "pods", uid: str = "1") -> Write:
    return Write(resource, key, expected, body(uid, text))


def delete(key: str, expected: int, resource: str = "pods") -> Write:
    return Write(resource, key, expected, body("1", "last"), deleted=True)


def history(cache: WatchCache, resource: str = "pods") -> list[tuple[int, str, bool]]:
    window = cache.history(resource)
    return [(change.revision, change.row.key, change.deleted) for change in window.since(window.first)]


def rows(cache: WatchCache, resource: str = "pods") -> dict[str, int]:
    return {row.key: row.revision for row in cache.snapshot(resource).items()}


class InterruptibleStorage(LaggingStorage):
    """A view that can be unreachable, or show an older state; records lists and watches."""

    reachable = True
    shows: Callable[[Listing], Listing] = staticmethod(lambda listing: listing)

    def __init__(self, inner: EmbeddedStorage) -> None:
        super().__init__(inner)
        self.asked: list[float] = []

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        return self.shows(await super().list(resource, at))

    async def watch(self, *args: Any) -> Any:
        self.asked.append(asyncio.get_running_loop().time())
        if not self.reachable:
            raise ServiceUnavailable("no server answers")
        return await super().watch(*args)


class CachePair(NamedTuple):
    """A cache, another whose watch can break, and the view between it and the storage."""

    one: WatchCache
    other: WatchCache
    broken: InterruptibleStorage
    hub: Hub

    async def lose(self) -> None:
        """Compact the storage beyond what the other cache has seen."""
        await self.one.storage.compact(self.one.revision)


@pytest.fixture
async def two() -> AsyncIterator[CachePair]:
    storage = EmbeddedStorage(MemoryBackend())
    broken = InterruptibleStorage(storage)
    other = WatchCache(broken)
    made = CachePair(WatchCache(storage), other, broken, Hub(other, RepresentationCache(other)))
    await made.one.start()
    await other.start()
    yield made
    broken.reachable, broken.shows = True, lambda listing: listing
    await made.one.close()
    await other.close()


class RecordedWatch:
    """The events of a watch of the interrupted cache."""

    def __init__(self, hub: Hub, start: int, resource: str = "pods", trigger: tuple[str, str] | None = None) -> None:
        self.stream = hub.open(resource, "v1", "Pod", WatchOptions(start=start, trigger=trigger))
        self.task = asyncio.get_running_loop().create_task(self._read())
        self.events: list[tuple[str, Any]] = []

    async def _read(self) -> None:
        async for chunk in self.stream:
            for line in chunk.splitlines():
                event = json.loads(line)
                metadata = event["object"].get("metadata", {})
                item = event["object"].get("code") or (metadata["uid"], int(metadata["resourceVersion"]))
                self.events.append((event["type"], item))


async def test_interrupted_watch_resumes(two: CachePair) -> None:
    seen = RecordedWatch(two.hub, 0)
    await two.one.commit(put("a"))
    two.broken.cut()
    await two.one.commit(put("b"))
    await two.one.commit(delete("b", 3))
    await asyncio.sleep(0.05)
    assert rows(two.other) == {"a": 2}
    assert "the connection is gone" in two.other.problem
    await asyncio.sleep(1)
    assert two.other.problem == ""
    assert history(two.other) == history(two.one) == [(2, "a", False), (3, "b", False), (4, "b", True)]
    assert seen.events == [("ADDED", ("1", 2)), ("ADDED", ("1", 3)), ("DELETED", ("1", 4))]
    await two.one.commit(put("c"))
    assert two.other.get("pods", "c") is not None


async def test_watch_that_cannot_resume_relists_and_diffs(two: CachePair) -> None:
    groups: list[list[Change]] = []
    for write in (put("kept"), put("changed"), put("gone"), put("again"), put("n", resource="nodes")):
        await two.one.commit(write)
    assert two.other.revision == 6
    seen, nodes = RecordedWatch(two.hub, 6), RecordedWatch(two.hub, 6, "nodes")
    two.other.subscribe(lambda changes: groups.append(list(changes)))
    two.broken.cut()
    await two.one.commit(put("changed", 3, "x"))
    await two.one.commit(put("changed", 7, "y"))
    await two.one.commit(delete("gone", 4))
    await two.one.commit(delete("again", 5))
    await two.one.commit(put("again", uid="2"))
    await two.one.commit(put("short"))
    await two.one.commit(delete("short", 12))
    await two.one.commit(put("new", resource="services"))
    await two.lose()
    await asyncio.sleep(1)
    assert (two.other.revision, two.other.problem) == (14, "")
    assert rows(two.other) == rows(two.one) == {"again": 11, "changed": 8, "kept": 2}
    assert rows(two.other, "services") == {"new": 14}
    assert [[(change.row.key, change.revision) for change in group] for group in groups] == [
        [("again", 7), ("gone", 7), ("changed", 8), ("again", 11), ("new", 14)]
    ]
    assert seen.events == [
        ("DELETED", ("1", 7)), ("DELETED", ("1", 7)), ("MODIFIED", ("1", 8)), ("ADDED", ("2", 11)),
    ]  # fmt: skip
    await two.one.commit(put("later"))
    await two.one.commit(put("m", resource="nodes"))
    await asyncio.sleep(0)
    assert seen.events[-1] == ("ADDED", ("1", 15))
    assert nodes.events == [("ADDED", ("1", 16))]


async def test_watch_cannot_start_within_lost_history(two: CachePair) -> None:
    """Not every change is known there: a watch from a known revision could miss another one."""
    for key in "abc":
        await two.one.commit(put(key))
    two.broken.cut()
    await two.one.commit(put("a", 2))
    await two.one.commit(delete("b", 3))
    await two.one.commit(put("d"))
    await two.lose()
    await asyncio.sleep(1)
    watches = {start: RecordedWatch(two.hub, start) for start in range(2, 8)}
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [watches[start].events for start in (5, 6)] == [[("ERROR", 410)]] * 2
    difference = [("DELETED", ("1", 5)), ("MODIFIED", ("1", 5)), ("ADDED", ("1", 7))]
    assert watches[4].events == difference
    assert watches[3].events == [("ADDED", ("1", 4)), *difference]
    assert watches[7].events == []
    for revision in (5, 6):
        with pytest.raises(TooOld):
            two.other.snapshot_at("pods", revision)
    assert {row.key for row in two.other.snapshot_at("pods", 3).items()} == {"a", "b"}
    assert {row.key for row in two.other.snapshot_at("pods", 7).items()} == {"a", "c", "d"}


async def test_watch_of_lost_revision_restarts_and_others_continue(two: CachePair) -> None:
    """As after a restore from an earlier copy with raised revisions."""
    await two.one.commit(put("a"))
    await two.one.commit(put("n", resource="nodes"))
    await two.one.commit(put("a", 2, "lost"))
    pods, nodes = RecordedWatch(two.hub, 4), RecordedWatch(two.hub, 4, "nodes")
    others = RecordedWatch(two.hub, 4, trigger=("metadata.name", "b"))
    two.broken.cut()
    await two.one.commit(put("m", resource="nodes"))
    await two.lose()

    def earlier(listing: Listing) -> Listing:
        old = Record(2, "pods", "a", body("1").replace(b'""', b'"2"', 1), False, 0.0)
        return Listing([old if record.key == "a" else record for record in listing.records], listing.revision)

    two.broken.shows = earlier
    await asyncio.sleep(1)
    assert rows(two.other) == {"a": 2}
    assert pods.events == others.events == [("ERROR", 410)]
    assert nodes.events == [("ADDED", ("1", 5))]
    await two.one.commit(put("b"))
    again = RecordedWatch(two.hub, 5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert again.events == [("ADDED", ("1", 6))]


async def test_unreachable_storage_is_retried_and_reported(two: CachePair) -> None:
    await two.one.commit(put("a"))
    two.broken.reachable = False
    two.broken.cut()
    begun, two.broken.asked = asyncio.get_running_loop().time(), []
    await asyncio.sleep(100)
    pauses = [then - now for now, then in zip([begun, *two.broken.asked], two.broken.asked, strict=False)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, *[10.0] * 8])
    assert two.other.problem == "failed to watch the storage: no server answers"
    assert rows(two.other) == {"a": 2}
    two.broken.reachable = True
    await two.one.commit(put("b"))
    await asyncio.sleep(11)
    assert (rows(two.other), two.other.problem) == ({"a": 2, "b": 3}, "")


async def test_storage_at_older_revision_is_not_followed(two: CachePair) -> None:
    await two.one.commit(put("a"))
    await two.one.commit(put("b"))
    two.broken.cut()
    await two.one.commit(put("c"))
    await two.lose()
    two.broken.shows = lambda listing: Listing(listing.records[:1], 2)
    await asyncio.sleep(30)
    assert rows(two.other) == {"a": 2, "b": 3}
    assert "the storage is at revision 2, behind 3" in two.other.problem
    two.broken.shows = lambda listing: listing
    await asyncio.sleep(10)
    assert (rows(two.other), two.other.problem) == ({"a": 2, "b": 3, "c": 4}, "")


async def test_waiting_readers_and_writers_continue_after_relist(two: CachePair) -> None:
    await two.one.commit(put("a"))
    two.broken.cut()
    async with asyncio.TaskGroup() as group:
        created = group.create_task(two.other.commit(put("b")))
        deleted = group.create_task(two.other.commit(delete("a", 2)))
        waiting = group.create_task(two.other.reached(4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await two.lose()
        assert not any(task.done() for task in (created, deleted, waiting))
        await asyncio.sleep(0.2)
        assert all(task.done() for task in (created, deleted, waiting))
    assert created.result() is two.other.get("pods", "b")
    assert json.loads(deleted.result().data)["text"] == "last"


async def test_second_gap_discards_history_before_the_first(two: CachePair) -> None:
    await two.one.commit(put("a"))
    for key in "bc":
        two.broken.cut()
        await two.one.commit(put(key))
        await two.one.commit(put(key, two.one.revision))
        await two.lose()
        await asyncio.sleep(15)
    assert history(two.other) == [(6, "c", False)]
    for revision in (2, 3, 5):
        with pytest.raises(TooOld):
            two.other.snapshot_at("pods", revision)
    assert len(two.other.snapshot_at("pods", 4)) == 2


Step = tuple[str, bool]


@given(
    before=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=8),
    between=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=8),
    behind=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4),
)
def test_past_after_gap_is_exact_or_unavailable(before: list[Step], between: list[Step], behind: list[Step]) -> None:
    states: list[dict[str, Record]] = [{}, {}]
    collection = Collection(Retention())

    def take(steps: list[Step], apply: bool) -> None:
        for key, gone in steps:
            revision, state = len(states), dict(states[-1])
            old = state.pop(key, None)
            uid = json.loads(old.data)["metadata"]["uid"] if old else str(revision)
            record = Record(revision, "pods", key, body(uid), gone and old is not None, 0.0)
            if not record.deleted:
                state[key] = record
            states.append(state)
            if apply:
                collection.apply(record)

    take(before, apply=True)
    seen = len(states) - 1
    take(between, apply=False)
    collection.replace(states[-1], seen, len(states) - 1, 0.0)
    take(behind, apply=True)
    newest = len(states) - 1
    for revision in range(newest + 1):
        wanted = {key: record.revision for key, record in states[revision].items()}
        try:
            found = collection.snapshot_at(revision, newest)
        except TooOld:
            assert seen < revision < seen + len(between)
            continue
        assert {row.key: row.revision for row in found.items()} == wanted
        for change in collection.history.since(collection.history.position(revision)):
            assert change.revision > revision
            assert (wanted.get(change.row.key) is None) == (change.before is None)
            wanted[change.row.key] = change.revision
            if change.deleted:
                del wanted[change.row.key]
        assert wanted == {key: record.revision for key, record in states[-1].items()}
