"""The caches of two servers on one storage: no guarantee depends on a single process."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Listing, RevisionConflict, TooNew, TooOld, Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.row import Change, Row
from tests.apiserver_stub.lagging_storage import LaggingStorage
from tests.apiserver_stub.memory_backend import MemoryBackend

pytestmark = pytest.mark.virtual

HOUR = 3600.0


def put(key: str, expected: int = 0, text: str = "", resource: str = "pods") -> Write:
    return Write(resource, key, expected, b'{"metadata":{"resourceVersion":""},"text":"%b"}' % text.encode())


def delete(key: str, expected: int) -> Write:
    return Write("pods", key, expected, b'{"metadata":{"resourceVersion":""}}', deleted=True)


def history(cache: WatchCache, resource: str = "pods") -> list[tuple[int, int, bytes, bool]]:
    window = cache.history(resource)
    return [
        (change.revision, change.before.revision if change.before else 0, change.row.data, change.deleted)
        for change in window.since(window.first)
    ]


async def ready() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class CachePair(NamedTuple):
    """A cache, another that can be late, and their storage."""

    one: WatchCache
    other: WatchCache
    late: LaggingStorage
    log: MemoryBackend


@pytest.fixture
async def two() -> AsyncIterator[CachePair]:
    log = MemoryBackend()
    storage = EmbeddedStorage(log)
    late = LaggingStorage(storage)
    ttls = {"events": HOUR}
    made = CachePair(WatchCache(storage, ttls=ttls), WatchCache(late, Retention(seconds=200), ttls=ttls), late, log)
    await made.one.start()
    await made.other.start()
    yield made
    await made.one.close()
    await made.other.close()


async def test_both_caches_see_all_writes_in_one_order(two: CachePair) -> None:
    received: dict[str, list[int]] = {"one": [], "other": []}
    two.one.subscribe(lambda changes: received["one"].extend(change.revision for change in changes))
    two.other.subscribe(lambda changes: received["other"].extend(change.revision for change in changes))

    async def write(cache: WatchCache, name: str) -> None:
        revision = 0
        for number in range(20):
            row = await cache.commit(put(name, revision, str(number)))
            revision = row.revision
            assert cache.get("pods", name) is row
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(write(two.one, f"a{number}"))
            group.create_task(write(two.other, f"b{number}"))
    assert received["one"] == received["other"] == sorted(received["one"])
    assert len(received["one"]) == 120
    assert history(two.one) == history(two.other)
    assert two.one.revision == two.other.revision


@pytest.mark.parametrize("lag", [0.0, 0.5])
async def test_loser_of_race_sees_winning_row_and_retries(two: CachePair, lag: float) -> None:
    await two.one.commit(put("a", text="0"))
    tries: list[int] = []
    lost: list[tuple[int, int, Row | None]] = []

    async def increment(cache: WatchCache) -> None:
        for number in range(100):
            row = cache.get("pods", "a")
            assert row is not None
            try:
                await cache.commit(put("a", row.revision, str(int(row.field("text")) + 1)))
            except RevisionConflict as conflict:
                lost.append((row.revision, conflict.current, cache.get("pods", "a")))
                continue
            tries.append(number)
            return
        raise AssertionError

    async def be_late() -> None:
        while True:
            two.late.held = lag > 0
            await asyncio.sleep(lag)
            two.late.release()
            await asyncio.sleep(lag)

    async with asyncio.TaskGroup() as group:
        lagging = group.create_task(be_late())
        async with asyncio.TaskGroup() as writers:
            for _ in range(20):
                writers.create_task(increment(two.one))
                writers.create_task(increment(two.other))
        lagging.cancel()
    assert len(tries) == 40
    assert all(seen is not None and seen.revision >= current > expected for expected, current, seen in lost)
    assert [json.loads(data)["text"] for _, _, data, _ in history(two.one)] == [str(number) for number in range(41)]
    assert history(two.one) == history(two.other)


async def test_consistent_read_sees_writes_of_other_server(two: CachePair) -> None:
    two.late.held = True
    row = await two.one.commit(put("a"))
    assert two.other.get("pods", "a") is None
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(two.other.wait_for_latest())
        await ready()
        assert not reading.done()
        two.late.release()
    seen = two.other.get("pods", "a")
    assert seen is not None
    assert (seen.revision, seen.data) == (row.revision, row.data)
    with pytest.raises(StopIteration):  # nothing is pending here
        two.one.wait_for_latest().send(None)


async def test_write_is_pending_until_visible_in_own_cache(two: CachePair) -> None:
    """Until it is visible here it counts as pending, for writers of the same row and for allocation."""
    two.late.held = True
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(two.other.commit(put("a")))
        await ready()
        assert two.one.get("pods", "a") is not None
        assert (writing.done(), two.other.is_pending("pods", "a")) == (False, True)
        turn = two.other.turn(("pods", "a"))
        assert turn is not None
        next_ = group.create_task(turn)
        await ready()
        assert not next_.done()
        two.late.release()
    assert two.other.get("pods", "a") is writing.result()
    assert not two.other.is_pending("pods", "a")
    assert two.other.turn(("pods", "a")) is None


async def test_conflict_is_raised_once_its_cause_is_visible(two: CachePair) -> None:
    two.late.held = True
    created = await two.one.commit(put("a"))
    deleted = await two.one.commit(delete("b", (await two.one.commit(put("b"))).revision))
    async with asyncio.TaskGroup() as group:
        refused = [group.create_task(_conflict(two.other, write)) for write in (put("a"), put("b", 3))]
        await ready()
        assert not any(task.done() for task in refused)
        two.late.release()
    assert [task.result().current for task in refused] == [created.revision, 0]
    assert two.other.revision == deleted.revision


async def test_commit_returns_its_row_even_if_overwritten(two: CachePair) -> None:
    two.late.held = True
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(two.other.commit(put("a", text="mine")))
        await ready()
        row = two.one.get("pods", "a")
        assert row is not None
        await two.one.commit(put("a", row.revision, "theirs"))
        two.late.release()
    assert (writing.result().revision, writing.result().data) == (row.revision, row.data)
    newest = two.other.get("pods", "a")
    assert newest is not None
    assert b"theirs" in newest.data


async def test_commit_waits_3_seconds_for_a_late_cache(two: CachePair) -> None:
    begun = asyncio.get_running_loop().time()
    two.late.held = True
    async with asyncio.TaskGroup() as group:
        kept = group.create_task(two.other.commit(put("a", text="mine")))
        await asyncio.sleep(2.9)
        assert not kept.done()
    assert asyncio.get_running_loop().time() - begun == pytest.approx(3)
    mine = two.one.get("pods", "a")
    assert mine is not None
    assert (kept.result().revision, kept.result().data) == (mine.revision, mine.data)
    assert two.other.get("pods", "a") is None
    assert not two.other.is_pending("pods", "a")
    gone = await two.other.commit(delete("a", mine.revision))
    assert (gone.revision, gone.field("metadata.resourceVersion")) == (mine.revision + 1, str(mine.revision + 1))
    two.late.release()
    assert [(revision, deleted) for revision, _, _, deleted in history(two.other)] == [(2, False), (3, True)]


async def test_invisible_conflict_is_not_retried(two: CachePair) -> None:
    created = await two.one.commit(put("a"))
    two.late.held = True
    changed = await two.one.commit(put("a", created.revision))
    with pytest.raises(TooNew, match=f"{changed.revision}, current: {created.revision}"):
        await two.other.commit(put("a", created.revision))
    two.late.release()
    await two.other.commit(put("a", changed.revision))


async def test_late_cache_can_be_closed(two: CachePair) -> None:
    late = LaggingStorage(two.one.storage)
    third = WatchCache(late)
    await third.start()
    late.held = True
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(third.commit(put("a")))
        await ready()
        async with asyncio.timeout(4):
            await third.close()
    assert two.one.get("pods", "a") is not None
    assert writing.result().key == "a"


async def test_canceled_writer_leaves_no_pending_write(two: CachePair) -> None:
    two.late.held = True
    writing = asyncio.ensure_future(two.other.commit(put("a")))
    await ready()
    writing.cancel()
    await ready()
    assert two.other.is_pending("pods", "a")
    two.late.release()
    assert not two.other.is_pending("pods", "a")
    assert two.other.get("pods", "a") is not None


async def test_multi_row_commit_is_delivered_atomically(two: CachePair) -> None:
    groups: list[list[str]] = []
    two.other.subscribe(lambda changes: groups.append([change.row.key for change in changes]))
    row = await two.one.commit(put("s", resource="services"), put("10.0.0.1", resource="addresses"))
    assert (row.resource, row.key) == ("services", "s")
    with pytest.raises(RevisionConflict) as refused:
        await two.other.commit(put("t", resource="services"), put("10.0.0.1", resource="addresses"))
    assert refused.value.key == "10.0.0.1"
    assert two.one.get("services", "t") is None
    assert groups == [["10.0.0.1", "s"]]


async def test_row_expires_once(two: CachePair) -> None:
    received: list[Change] = []
    two.other.subscribe(received.extend)
    await two.one.commit(put("a", resource="events"))
    await two.other.commit(put("b", resource="events"))
    await asyncio.sleep(HOUR + 5)
    assert len(two.one.snapshot("events")) == len(two.other.snapshot("events")) == 0
    assert [(change.row.key, change.deleted) for change in received] == [
        ("a", False), ("b", False), ("a", True), ("b", True),
    ]  # fmt: skip


async def test_compaction_by_both_servers_is_harmless(two: CachePair) -> None:
    revision = 0
    for _ in range(50):
        revision = (await two.one.commit(put("a", revision))).revision
        await asyncio.sleep(10)
    assert 30 <= len(history(two.one)) <= 31
    assert 19 <= len(history(two.other)) <= 21
    assert 20 <= len(two.log._records) <= 24  # what the cache with the shorter history leaves
    assert await two.late.oldest_revision() < revision
    late = WatchCache(EmbeddedStorage(two.log.copy()))
    await late.start()
    assert history(late) == history(two.one)[-len(history(late)) :]
    await late.close()
    await asyncio.sleep(400)
    assert list(two.log._records) == [revision]
    assert two.one._upkeep._timer is two.other._upkeep._timer is None


async def test_cache_started_during_writes_misses_nothing(two: CachePair) -> None:
    revision = 0
    for _ in range(30):
        revision = (await two.one.commit(put("a", revision))).revision

    class Raced(LaggingStorage):
        races = 3

        async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
            found = await super().list(resource, at)
            if self.races:
                self.races -= 1
                await self.inner.compact(await self.inner.oldest_revision() + 5)
            return found

    third = WatchCache(Raced(two.one.storage))
    await third.start()
    oldest = await two.one.storage.oldest_revision()
    assert history(third) == [entry for entry in history(two.one) if entry[0] > oldest]
    with pytest.raises(TooOld):
        third.snapshot_at("pods", oldest - 1)
    assert len(third.snapshot_at("pods", oldest)) == 1
    await third.commit(put("b"))
    assert two.other.get("pods", "b") is not None
    await third.close()
    await two.one.commit(put("c"))


async def _conflict(cache: WatchCache, write: Any) -> RevisionConflict:
    with pytest.raises(RevisionConflict) as refused:
        await cache.commit(write)
    return refused.value
