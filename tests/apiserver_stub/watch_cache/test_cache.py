"""The watch cache: transactions, their order, and writes that wait, fail or are canceled."""

import asyncio
from collections.abc import Awaitable

import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import RevisionConflict, Write
from apiserver_stub.storage.pipeline import GroupLimits
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.commits import WriteLimits
from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.errors import ServiceUnavailable
from tests.apiserver_stub.watch_cache.conftest import HeldBackend, body, content, ready

pytestmark = pytest.mark.virtual


def waiting(store: WatchCache) -> int:
    assert isinstance(store.storage, EmbeddedStorage)
    return len(store.storage._pipeline._queue)


async def test_create_update_delete(store: WatchCache) -> None:
    created = await store.commit(Write("pods", "ns/a", 0, body("one")))
    assert (created.revision, store.revision) == (2, 2)
    assert created.data == b'{"metadata":{"resourceVersion":"2"},"text":"one"}'
    updated = await store.commit(Write("pods", "ns/a", 2, body("two")))
    assert store.get("pods", "ns/a") is updated
    gone = await store.commit(Write("pods", "ns/a", 3, body("last"), deleted=True))
    assert b"last" in gone.data
    assert store.get("pods", "ns/a") is None
    assert store.revision == 4
    assert [(c.revision, c.before and c.before.revision, c.deleted) for c in store.history("pods").since(0)] == [
        (2, None, False),
        (3, 2, False),
        (4, 3, True),
    ]


async def test_unexpected_revision_is_a_conflict(store: WatchCache) -> None:
    with pytest.raises(RevisionConflict) as absent:
        await store.commit(Write("pods", "a", 7, body()))
    assert (absent.value.key, absent.value.current, absent.value.revision) == ("a", 0, 1)
    with pytest.raises(RevisionConflict):
        await store.commit(Write("pods", "a", 0, body(), deleted=True))
    await store.commit(Write("pods", "a", 0, body()))
    for expected in (0, 1, 3):
        with pytest.raises(RevisionConflict) as present:
            await store.commit(Write("pods", "a", expected, body()))
        assert (present.value.key, present.value.current) == ("a", 2)
    assert store.revision == 2


async def test_concurrent_writers_of_one_row_all_succeed(store: WatchCache) -> None:
    await store.commit(Write("pods", "a", 0, body()))

    async def increment() -> int:
        for tries in range(100):
            row = store.get("pods", "a")
            assert row is not None
            try:
                await store.commit(Write("pods", "a", row.revision, body()))
            except RevisionConflict:
                continue
            return tries
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(increment()) for _ in range(20)]
    assert store.revision == 22
    assert max(task.result() for task in tasks) <= 20


async def test_changes_are_delivered_in_order_before_commit_returns(store: WatchCache) -> None:
    received: list[int] = []
    store.subscribe(lambda changes: received.extend(change.revision for change in changes))

    async def write(key: str) -> None:
        row = await store.commit(Write("pods", key, 0, body()))
        assert row.revision in received

    async with asyncio.TaskGroup() as group:
        for number in range(300):
            group.create_task(write(str(number)))
    assert received == list(range(2, 302))
    assert store.revision == 301


async def test_resource_version_is_stamped_only_where_empty(store: WatchCache) -> None:
    bodies = {
        b'{"metadata":{"resourceVersion":"","name":"a"},"ref":{"resourceVersion":""}}': (
            b'{"metadata":{"resourceVersion":"%d","name":"a"},"ref":{"resourceVersion":""}}'
        ),
        b'{"metadata":{"resourceVersion":"7"},"ref":{"resourceVersion":""}}': (
            b'{"metadata":{"resourceVersion":"7"},"ref":{"resourceVersion":""}}'
        ),
        b'{"metadata":{}}': b'{"metadata":{}}',
    }
    for number, (data, kept) in enumerate(bodies.items()):
        row = await store.commit(Write("pods", str(number), 0, data))
        assert row.data == (kept % row.revision if b"%d" in kept else kept)


async def test_multi_row_commit_is_atomic(store: WatchCache) -> None:
    held = await store.commit(Write("addresses", "10.0.0.1", 0, body()))
    with pytest.raises(RevisionConflict):
        await store.commit(Write("services", "a", 0, body()), Write("addresses", "10.0.0.1", 0, body()))
    assert (store.get("services", "a"), store.revision) == (None, 2)
    received: list[list[str]] = []
    store.subscribe(lambda changes: received.append([change.row.key for change in changes]))
    row = await store.commit(
        Write("services", "a", 0, body("a")), Write("addresses", "10.0.0.1", held.revision, body(), deleted=True)
    )
    assert row is store.get("services", "a")
    assert store.get("addresses", "10.0.0.1") is None
    assert received == [["10.0.0.1", "a"]]


async def test_write_is_invisible_until_durable(held: WatchCache, backend: HeldBackend) -> None:
    received: list[Change] = []
    held.subscribe(received.extend)
    async with asyncio.TaskGroup() as group:
        write = group.create_task(held.commit(Write("pods", "a", 0, body())))
        await ready()
        assert (held.get("pods", "a"), content(held), received, held.revision) == (None, {}, [], 1)
        await backend.finish()
        assert write.done()
    assert (content(held), held.revision, len(received)) == ({"a": 2}, 2, 1)


async def test_conflict_is_raised_after_winning_write_is_visible(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(held.commit(Write("pods", "a", 0, body())))
        loser = group.create_task(_stale(held.commit(Write("pods", "a", 0, body()))))
        await ready()
        assert not loser.done()
        await backend.finish()
    row = held.get("pods", "a")
    assert row is not None
    assert loser.result().current == row.revision


async def test_waiting_write_replaces_failed_write(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        failing = group.create_task(_unavailable(held.commit(Write("pods", "a", 0, body()))))
        second = group.create_task(held.commit(Write("pods", "a", 0, body("second"))))
        await backend.finish(OSError("disk full"))
        assert "disk full" in failing.result().message
        await backend.finish()
    assert held.get("pods", "a") is second.result()


async def test_failed_group_fails_only_its_writers(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        for key in "abc":
            group.create_task(_unavailable(held.commit(Write("pods", key, 0, body()))))
        later = group.create_task(held.commit(Write("pods", "d", 0, body())))
        assert await backend.finish(OSError("disk full")) == 3
        assert (content(held), held.revision, later.done()) == ({}, 1, False)
        await backend.finish()
    assert content(held) == {"d": 5}
    assert held.revision == 5
    assert [change.revision for change in held.history("pods").since(0)] == [5]


async def test_number_of_pending_writes_is_limited(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(held.commit(Write("pods", f"{number:02}", 0, body())))
        await ready()
        assert waiting(held) <= 7
        sizes: list[int] = []
        while sum(sizes) < 20:
            assert waiting(held) <= 7
            sizes.append(await backend.finish())
        assert max(sizes) == 3
    assert list(content(held).values()) == list(range(2, 22))


async def test_bytes_of_pending_writes_are_limited() -> None:
    backend = HeldBackend()
    storage = EmbeddedStorage(backend, limits=GroupLimits(size=100))
    store = WatchCache(storage, limits=WriteLimits(size=100))
    await store.start()
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(store.commit(Write("pods", str(number), 0, body("x" * 1000))))
        await ready()
        assert waiting(store) <= 1
        assert [await backend.finish() for _ in range(4)] == [1, 1, 1, 1]


async def test_canceled_writer_affects_no_others(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(held.commit(Write("pods", "a", 0, body())))
        second = group.create_task(held.commit(Write("pods", "a", 0, body())))
        third = group.create_task(_stale(held.commit(Write("pods", "a", 0, body()))))
        await ready()
        first.cancel()
        second.cancel()
        await backend.finish()
    row = held.get("pods", "a")
    assert row is not None
    assert third.result().current == row.revision


async def test_close_finishes_submitted_writes_and_rejects_new_ones(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        writes = [group.create_task(held.commit(Write("pods", str(number), 0, body()))) for number in range(7)]
        refused = group.create_task(_unavailable(held.commit(Write("pods", "x", 0, body()))))
        await ready()
        closing = group.create_task(held.close())
        await ready()
        assert not closing.done()
        assert [await backend.finish() for _ in range(3)] == [3, 3, 1]
        assert all(write.done() for write in writes)
        assert "closed" in refused.result().message
    with pytest.raises(ServiceUnavailable, match="closed"):
        await held.commit(Write("pods", "y", 0, body()))


async def _stale(write: Awaitable[object]) -> RevisionConflict:
    with pytest.raises(RevisionConflict) as refused:
        await write
    return refused.value


async def _unavailable(write: Awaitable[object]) -> ServiceUnavailable:
    with pytest.raises(ServiceUnavailable) as refused:
        await write
    return refused.value
