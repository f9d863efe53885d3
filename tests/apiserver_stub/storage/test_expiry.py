"""Rows with a lifetime: deleted within seconds after it, and in batches."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.expiry import TTLIndex
from apiserver_stub.storage.interface import Record, RevisionConflict, Write, stamped
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import decode_error_of
from controller_manager.common.base.clock import wall_seconds

HOUR = 3600.0
TTLS = {"events": HOUR, "kept": 0}

Opened = Callable[..., AbstractAsyncContextManager[WatchCache]]


BODY = b'{"kind":"Event","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":""}}'


@pytest.fixture
def opened(disk: Any) -> Opened:
    @asynccontextmanager
    async def start() -> AsyncIterator[WatchCache]:
        store = WatchCache(EmbeddedStorage(disk, StorageRules(decode_error_of, TTLS)), ttls=TTLS)
        await store.start()
        yield store
        await store.close()

    return start


def expire(store: WatchCache, revision: int) -> None:
    assert isinstance(store.storage, EmbeddedStorage)
    store.storage._expire([("events", "ns/a", revision)])


@pytest.mark.virtual
async def test_row_expires_after_its_ttl(opened: Opened) -> None:
    async with opened() as store:
        for resource in ("events", "kept", "pods"):
            await store.commit(Write(resource, "ns/a", 0, BODY))
        await asyncio.sleep(HOUR - 1)
        assert store.get("events", "ns/a")
        await asyncio.sleep(3)
        assert store.get("events", "ns/a") is None
        gone = store.history("events").since(store.history("events").end - 1)[0]
        assert (gone.deleted, gone.row.data) == (True, stamped(BODY, store.revision))
        await asyncio.sleep(10 * HOUR)
        assert store.get("kept", "ns/a")
        assert store.get("pods", "ns/a")


@pytest.mark.virtual
async def test_each_write_restarts_the_ttl(opened: Opened) -> None:
    async with opened() as store:
        revision = 0
        for _ in range(3):
            revision = (await store.commit(Write("events", "ns/a", revision, BODY))).revision
            await asyncio.sleep(HOUR - 5)
        assert store.get("events", "ns/a")
        await asyncio.sleep(10)
        assert store.get("events", "ns/a") is None


@pytest.mark.virtual
async def test_concurrent_write_wins_over_expiry(opened: Opened) -> None:
    async with opened() as store:
        first = await store.commit(Write("events", "ns/a", 0, BODY))
        await asyncio.sleep(HOUR - 0.001)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(store.commit(Write("events", "ns/a", first.revision, BODY)))
            await asyncio.sleep(0)
            expire(store, first.revision)
        written = writing.result()
        assert store.get("events", "ns/a") is written
        expire(store, first.revision)
        await asyncio.sleep(1)
        assert store.get("events", "ns/a") is written


@pytest.mark.virtual
async def test_write_after_expiry_conflicts(opened: Opened) -> None:
    async with opened() as store:
        first = await store.commit(Write("events", "ns/a", 0, BODY))
        expire(store, first.revision)
        await asyncio.sleep(0)
        with pytest.raises(RevisionConflict):
            await store.commit(Write("events", "ns/a", first.revision, BODY))
        assert store.get("events", "ns/a") is None


@pytest.mark.virtual
async def test_ttl_continues_while_server_is_down(opened: Opened) -> None:
    """The log has the time of each record."""
    async with opened() as store:
        await store.commit(Write("events", "ns/old", 0, BODY))
        await asyncio.sleep(HOUR / 2)
        await store.commit(Write("events", "ns/new", 0, BODY))
    await asyncio.sleep(HOUR / 2)
    async with opened() as store:
        await asyncio.sleep(2)
        assert [row.key for row in store.snapshot("events").items()] == ["ns/new"]
        await asyncio.sleep(HOUR / 2)
        assert len(store.snapshot("events")) == 0


def set_clock(hours: float) -> None:
    """Set the wall clock forward or back."""
    loop: Any = asyncio.get_running_loop()
    before = loop.wall_time
    loop.wall_time = lambda: before() + hours * HOUR


@pytest.mark.virtual
@pytest.mark.parametrize("hours", [24 * 365.0, -24 * 365.0])
async def test_changed_system_clock_does_not_affect_expiry(opened: Opened, hours: float) -> None:
    async with opened() as store:
        await store.commit(Write("events", "ns/first", 0, BODY))
        set_clock(hours)
        await asyncio.sleep(HOUR / 2)
        await store.commit(Write("events", "ns/second", 0, BODY))
        set_clock(-hours)
        await asyncio.sleep(HOUR / 2 - 10)
        assert len(store.snapshot("events")) == 2
        await asyncio.sleep(15)
        assert [row.key for row in store.snapshot("events").items()] == ["ns/second"]
        await asyncio.sleep(HOUR / 2)
        assert len(store.snapshot("events")) == 0


@pytest.mark.virtual
async def test_future_timestamp_does_not_block_expiry(opened: Opened, disk: Any) -> None:
    """It does not live longer than others either, and earlier rows expire at their time."""
    year = 365 * 24 * HOUR
    records = [
        Record(2, "events", "ns/before", stamped(BODY, 2), False, wall_seconds() - HOUR / 2),
        Record(3, "events", "ns/ahead", stamped(BODY, 3), False, wall_seconds() + year),
        Record(4, "events", "ns/after", stamped(BODY, 4), False, wall_seconds() - HOUR / 4),
    ]
    disk.append(records, lambda _: None)
    async with opened() as store:
        await asyncio.sleep(HOUR / 2 + 5)
        assert [row.key for row in store.snapshot("events").items()] == ["ns/after", "ns/ahead"]
        await asyncio.sleep(HOUR / 2)
        assert len(store.snapshot("events")) == 0


@pytest.mark.virtual
async def test_past_timestamp_expires_no_other_row(opened: Opened, disk: Any) -> None:
    records = [
        Record(2, "events", "ns/before", stamped(BODY, 2), False, wall_seconds()),
        Record(3, "events", "ns/back", stamped(BODY, 3), False, wall_seconds() - 365 * 24 * HOUR),
    ]
    disk.append(records, lambda _: None)
    async with opened() as store:
        await asyncio.sleep(HOUR - 10)
        assert len(store.snapshot("events")) == 2
        await asyncio.sleep(15)
        assert len(store.snapshot("events")) == 0


@pytest.mark.virtual
async def test_history_window_ignores_system_clock(opened: Opened) -> None:
    async with opened() as store:
        await store.commit(Write("pods", "ns/a", 0, BODY))
        set_clock(24 * 365)
        await asyncio.sleep(100)
        assert store.history("pods").trimmed == 0
        set_clock(-24 * 365 * 2)
        await asyncio.sleep(300)
        assert store.history("pods").trimmed == 2


@pytest.mark.virtual
async def test_full_disk_delays_expiry(opened: Opened, disk: Any) -> None:
    async with opened() as store:
        await store.commit(Write("events", "ns/a", 0, BODY))
        disk.full = True
        await asyncio.sleep(HOUR + 10)
        assert store.get("events", "ns/a")
        assert store.storage.problem
        disk.full = False
        await asyncio.sleep(5)
        assert store.get("events", "ns/a") is None


@pytest.mark.virtual
async def test_many_rows_expire_in_batches(opened: Opened) -> None:
    async with opened() as store:
        sizes: list[int] = []
        for number in range(3000):
            await store.commit(Write("events", f"ns/{number}", 0, BODY))
        store.subscribe(lambda changes: sizes.append(len(changes)))
        await asyncio.sleep(HOUR + 2)
        assert len(store.snapshot("events")) == 0
        assert sum(sizes) == 3000
        assert max(sizes) <= 256


@pytest.mark.virtual
async def test_unreadable_rows_do_not_expire(opened: Opened, disk: Any) -> None:
    async with opened() as store:
        await store.commit(Write("events", "ns/a", 0, b"broken"))
        await store.commit(Write("events", "ns/b", 0, BODY))
    async with opened() as store:
        await asyncio.sleep(HOUR + 5)
        assert [row.key for row in store.snapshot("events").items()] == ["ns/a"]


writes = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 40)), max_size=20)


@settings(max_examples=150)
@given(writes)
def test_ttl_index_agrees_with_full_scan(steps: list[tuple[str, bool, int]]) -> None:
    ages, last, now = TTLIndex(), dict[str, Any](), 0.0
    for revision, (key, deleted, seconds) in enumerate(steps, 1):
        now += seconds
        record = Record(revision, "events", key, b"", deleted, now, 60)
        ages.note(record)
        ages.note(record._replace(resource="others", ttl=0))
        last.pop(key, None)
        if not deleted:
            last[key] = record
    due = [("events", record.key, record.revision) for record in last.values() if record.at <= now - 60]
    assert list(ages.due(now, 10)) == due
    assert list(ages.due(now, 1)) == due[:1]
    assert ages.next() == min((record.at + 60 for record in last.values()), default=None)
