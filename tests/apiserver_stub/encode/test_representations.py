"""The cache of representations: holds current rows only, within its size limit."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.row import Row
from controller_manager.testing import virtual
from tests.apiserver_stub.memory_backend import MemoryBackend

pytestmark = pytest.mark.virtual

FORM = 872  # bytes of an encoded row, which takes 1000 with its cache entry


class Rows:
    """A store, and clients that list all rows of a resource through a cache."""

    def __init__(self, store: WatchCache, size: int) -> None:
        self.store = store
        self.cache = RepresentationCache(store, size)

    async def write(self, resource: str, key: str, deleted: bool = False) -> Row:
        row = self.store.get(resource, key)
        data = b'{"metadata":{"name":"%b","resourceVersion":""}}' % key.encode()
        return await self.store.commit(Write(resource, key, row.revision if row else 0, data, deleted))

    async def fill(self, resource: str, count: int) -> None:
        for number in range(count):
            await self.write(resource, f"{number:04d}")

    def list(self, resource: str, name: str = "protobuf", size: int = FORM) -> int:
        """List all rows; return how many were cached."""
        return self.encode(resource, tuple(self.store.snapshot(resource).items()), name, size)

    def encode(self, resource: str, rows: tuple[Row, ...], name: str = "protobuf", size: int = FORM) -> int:
        cached, found = self.cache.rows(resource, name), 0
        for row in rows:
            encoded = cached.get(row)
            if encoded is None:
                cached.add(row, form(row, name, size))
                cached.keep()
            else:
                assert encoded == form(row, name, size)
                found += 1
        return found


def form(row: Row, name: str, size: int = FORM) -> bytes:
    return f"{name} {row.resource} {row.key} {row.revision}".encode().ljust(size, b".")


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention())
    await store.start()
    yield store
    await store.close()


async def test_rows_are_encoded_once_in_each_representation(store: WatchCache) -> None:
    rows = Rows(store, 1 << 20)
    await rows.fill("pods", 10)
    assert [rows.list("pods"), rows.list("pods", "table")] == [0, 0]
    assert [rows.list("pods"), rows.list("pods", "table")] == [10, 10]
    assert sum(rows.cache.sizes) == 20_000


async def test_replaced_and_deleted_rows_leave_the_cache(store: WatchCache) -> None:
    rows = Rows(store, 1 << 20)
    await rows.fill("pods", 3)
    rows.list("pods"), rows.list("pods", "table")
    await rows.write("pods", "0000")
    assert sum(rows.cache.sizes) == 4000
    await rows.write("pods", "0001", deleted=True)
    assert sum(rows.cache.sizes) == 2000
    assert [rows.list("pods"), rows.list("pods", "table")] == [1, 1]
    for key in ("0000", "0002"):
        await rows.write("pods", key, deleted=True)
    assert sum(rows.cache.sizes) == 0


async def test_outdated_rows_are_not_cached(store: WatchCache) -> None:
    """A list of the past, or one that was outdated while it was encoded."""
    rows = Rows(store, 1 << 20)
    await rows.fill("pods", 2)
    before = tuple(store.snapshot("pods").items())
    await rows.write("pods", "0000")
    assert rows.encode("pods", before) == 0
    assert rows.encode("pods", before) == 1
    assert sum(rows.cache.sizes) == 1000


async def test_lists_larger_than_cache_are_cached_in_part(store: WatchCache) -> None:
    rows = Rows(store, 32_000)
    await rows.fill("pods", 100)
    assert [rows.list("pods") for _ in range(3)] == [0, 30, 30]
    await rows.fill("secrets", 100)
    for _ in range(3):
        rows.list("pods"), rows.list("secrets")
    assert 13 <= rows.list("pods") <= 16
    assert 13 <= rows.list("secrets") <= 16


async def test_small_list_is_cached_beside_large_one(store: WatchCache) -> None:
    rows = Rows(store, 32_000)
    await rows.fill("pods", 100)
    await rows.fill("nodes", 10)
    rows.list("pods"), rows.list("nodes")
    for _ in range(3):
        assert rows.list("pods") == 20
        assert rows.list("nodes") == 10


async def test_unused_representations_are_evicted(store: WatchCache) -> None:
    rows = Rows(store, 32_000)
    await rows.fill("pods", 100)
    rows.list("pods", "table"), rows.list("pods")
    await asyncio.sleep(200)
    assert 13 <= rows.list("pods") <= 16
    await asyncio.sleep(200)
    rows.list("pods")
    assert rows.list("pods") == 30
    assert rows.list("pods", "table") == 0


async def test_oversized_representation_evicts_nothing(store: WatchCache) -> None:
    rows = Rows(store, 32_000)
    await rows.fill("pods", 20)
    await rows.fill("secrets", 2)
    rows.list("pods")
    assert [rows.list("secrets", size=50_000) for _ in range(2)] == [0, 0]
    assert rows.list("pods") == 20


async def test_oldest_events_are_evicted_first(store: WatchCache) -> None:
    cache = RepresentationCache(store, 160_000)
    rows = [Row("pods", str(number), number, b"{}") for number in range(20)]
    for row in rows:
        cache.keep_event(row, "ADDED", "json", form(row, "json"))
    assert [cache.find_event(row, "ADDED", "json") is not None for row in rows] == [False] * 10 + [True] * 10
    assert cache.find_event(rows[-1], "MODIFIED", "json") is cache.find_event(rows[-1], "ADDED", "yaml") is None


async def test_cached_event_counts_the_size_of_its_row(store: WatchCache) -> None:
    cache = RepresentationCache(store, 160_000)
    for number in range(20):
        cache.keep_event(Row("pods", str(number), number, b"x" * 3000), "ADDED", "metadata", b"{}")
    assert 3000 * 3 <= sum(cache.sizes) <= 10_000


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["a", "b"]), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from(["a", "b"]), st.integers(0, 9)),
        st.tuples(st.just("list"), st.sampled_from(["a", "b"]), st.sampled_from(["json", "table", "protobuf"])),
        st.tuples(st.just("event"), st.sampled_from(["a", "b"]), st.sampled_from(["json", "table"])),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 400)),
    ),
    max_size=60,
)


@given(steps=STEPS, size=st.integers(0, 20_000))
@settings(max_examples=200, deadline=None)
def test_cache_stays_correct_and_bounded_after_any_steps(steps: list[Any], size: int) -> None:
    virtual.run(_check(steps, size))


async def _check(steps: list[Any], size: int) -> None:
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention())
    await store.start()
    rows = Rows(store, size)
    lengths = {"json": 10, "table": 300, "protobuf": 1500}
    for act, resource, argument in steps:
        if act == "wait":
            await asyncio.sleep(argument)
        elif act == "list":
            rows.list(resource, argument, lengths[argument])
        elif act == "event":
            for row in store.snapshot(resource).items():
                rows.cache.keep_event(row, "ADDED", argument, form(row, argument))
        elif act == "write" or store.get(resource, str(argument)):
            await rows.write(resource, str(argument), deleted=act == "delete")
        assert 0 <= sum(rows.cache.sizes) <= size
        kept = [some for group in rows.cache._rows.values() for some in group]
        assert all(store.get(row.resource, row.key) is row for some in kept for row in some)
        assert all(kept)
    for resource in "ab":
        for number in range(10):
            if store.get(resource, str(number)):
                await rows.write(resource, str(number), deleted=True)
    assert rows.cache.sizes[0] == 0
    assert not rows.cache._rows
    await store.close()
