"""The history that a watch cache can read, across restarts and compaction."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.storage.backend import Backend
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record, TooNew, TooOld, Write
from apiserver_stub.storage.memory import MemoryRows, MemoryStorage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from controller_manager.testing import virtual
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.watch_cache.conftest import HeldBackend, body, content, ready

pytestmark = pytest.mark.virtual


async def test_past_states_can_be_read(store: WatchCache) -> None:
    for key in "abc":
        await store.commit(Write("pods", key, 0, body()))
    await store.commit(Write("pods", "b", 3, body(), deleted=True))
    await store.commit(Write("nodes", "n", 0, body()))
    await store.commit(Write("pods", "c", 4, body()))

    def at(revision: int) -> dict[str, int]:
        found = store.snapshot_at("pods", revision)
        assert found.revision == revision
        return {row.key: row.revision for row in found.items()}

    assert [at(revision) for revision in range(1, 8)] == [
        {},
        {"a": 2},
        {"a": 2, "b": 3},
        {"a": 2, "b": 3, "c": 4},
        {"a": 2, "c": 4},
        {"a": 2, "c": 4},
        {"a": 2, "c": 7},
    ]
    assert at(4) == {"a": 2, "b": 3, "c": 4}
    with pytest.raises(TooNew, match="Too large resource version: 8, current: 7"):
        store.snapshot_at("pods", 8)


async def test_pages_of_past_state_share_one_snapshot(store: WatchCache) -> None:
    for key in "abc":
        await store.commit(Write("pods", key, 0, body()))
    page = store.snapshot_at("pods", 3)
    assert store.snapshot_at("pods", 3).view is page.view
    for revision in range(1, 4):
        store.snapshot_at("pods", revision)
    assert [row.key for row in page.items(after="a")] == ["b"]
    assert (page.count(after="a"), page.get("b") is not None, page.get("c"), len(page)) == (1, True, None, 2)


async def test_number_of_cached_past_states_is_limited(store: WatchCache) -> None:
    for number in range(30):
        await store.commit(Write("pods", str(number), 0, body()))
    for revision in range(1, 30):
        assert len(store.snapshot_at("pods", revision)) == revision - 1
    assert 0 < len(store._collections["pods"]._past) < 10
    await asyncio.sleep(400)
    assert len(store._collections["pods"]._past) == 0


async def test_old_history_is_trimmed_without_new_writes(store: WatchCache) -> None:
    await store.commit(Write("pods", "a", 0, body()))
    await store.commit(Write("pods", "b", 0, body()))
    await asyncio.sleep(200)
    await store.commit(Write("pods", "a", 2, body()))
    await store.commit(Write("nodes", "n", 0, body()))
    await asyncio.sleep(150)
    assert (store.history("pods").trimmed, store.history("nodes").trimmed) == (3, 0)
    assert len(store.snapshot_at("pods", 3)) == 2
    with pytest.raises(TooOld):
        store.snapshot_at("pods", 2)
    await asyncio.sleep(300)
    assert (store.history("pods").trimmed, store.history("nodes").trimmed) == (4, 5)
    assert store.snapshot_at("nodes", 5).revision == 5


async def test_total_history_size_is_limited() -> None:
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention(total=100_000))
    await store.start()
    names = [f"kind{number}" for number in range(20)]
    for number in range(100):
        for name in names:
            await store.commit(Write(name, str(number), 0, body("x" * 1000)))
            held = [store.history(name) for name in names]
            assert sum(window.size for window in held) <= 100_000
    firsts = [window.since(window.first)[0].revision for window in held]
    assert max(firsts) - min(firsts) <= len(names)
    assert min(window.trimmed for window in held) > 1800
    assert all(len(store.snapshot(name)) == 100 for name in names)
    await store.close()


async def test_restart_preserves_state_and_history(reopen: Callable[[], Backend]) -> None:
    first = WatchCache(EmbeddedStorage(reopen()))
    await first.start()
    for key in "abc":
        await first.commit(Write("pods", f"ns/{key}", 0, body(key)))
    await first.commit(Write("pods", "ns/b", 3, body("changed")))
    await first.commit(Write("pods", "ns/c", 4, body(), deleted=True))
    await first.commit(Write("nodes", "n", 0, body()))
    await first.close()
    second = WatchCache(EmbeddedStorage(reopen()))
    await second.start()
    assert _everything(second) == _everything(first)
    assert (second.revision, second.history("pods").trimmed) == (7, 0)
    assert (await second.commit(Write("pods", "ns/a", 2, body()))).revision == 8
    await second.close()


async def test_compaction_keeps_needed_rows_and_revisions_increase(
    reopen: Callable[[], Backend],
) -> None:
    first = WatchCache(EmbeddedStorage(reopen()))
    await first.start()
    for key in ("kept", "gone"):
        await first.commit(Write("pods", key, 0, body()))
    await first.commit(Write("pods", "kept", 2, body()))
    await first.commit(Write("pods", "gone", 3, body(), deleted=True))
    await asyncio.sleep(400)
    await first.close()
    log = reopen()
    assert await log.open() == 5
    assert [record.revision async for records in log.replay() for record in records] == [4]
    await log.close()
    second = WatchCache(EmbeddedStorage(reopen()))
    await second.start()
    assert (content(second), second.revision, second.history("pods").trimmed) == ({"kept": 4}, 5, 5)
    with pytest.raises(TooOld):
        second.snapshot_at("pods", 4)
    await second.close()


async def test_compaction_continues_after_failure_and_restart(backend: HeldBackend) -> None:
    store = WatchCache(EmbeddedStorage(backend), Retention(seconds=10))
    await store.start()
    backend.compactable = False
    revision = 0
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            write = group.create_task(store.commit(Write("pods", "a", revision, body())))
            await backend.finish()
        revision = write.result().revision
    await asyncio.sleep(20)
    assert len(backend._records) == 5
    backend.compactable = True
    await asyncio.sleep(5)
    assert list(backend._records) == [revision]
    backend._records = {2: Record(2, "pods", "a", b"{}", False, 0.0), **backend._records}
    again = WatchCache(EmbeddedStorage(backend))
    await again.start()
    await ready()
    assert list(backend._records) == [revision]
    assert content(again) == {"a": revision}


async def test_oversized_history_is_compacted_in_storage() -> None:
    rows = MemoryRows()
    store = WatchCache(MemoryStorage(rows), Retention(total=64 * 1000))
    await store.start()
    revision, long = 0, body(text="x" * 1000)
    for _ in range(500):
        revision = (await store.commit(Write("pods", "a", revision, long))).revision
    assert asyncio.get_running_loop().time() == 0
    assert revision - 70 < rows.compacted < revision - 50
    assert content(store) == {"a": revision}
    await store.close()


async def test_idle_store_has_no_timer(store: WatchCache) -> None:
    await store.commit(Write("pods", "a", 0, body()))
    await asyncio.sleep(400)
    assert store._upkeep._timer is None


EDITS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["put", "put", "delete", "wait"])), min_size=1, max_size=60
)


@given(edits=EDITS, retention=st.sampled_from([Retention(), Retention(seconds=8), Retention(changes=5)]))
@settings(max_examples=100, deadline=None)
def test_any_past_in_window_is_readable_after_restart(edits: list[tuple[str, str]], retention: Retention) -> None:
    virtual.run(_check_past(edits, retention))


async def _check_past(edits: list[tuple[str, str]], retention: Retention) -> None:
    log, resource = MemoryBackend(), "pods"
    store = WatchCache(EmbeddedStorage(log), retention)
    await store.start()
    states: dict[int, dict[str, int]] = {1: {}}
    for key, action in edits:
        row = store.get(resource, key)
        if action == "wait":
            await asyncio.sleep(1.5)
        elif action == "put" or row is not None:
            await store.commit(Write(resource, key, row.revision if row else 0, body(), deleted=action == "delete"))
        states[store.revision] = content(store, resource)
    _compare(store, states, resource)
    await store.close()
    again = WatchCache(EmbeddedStorage(log), retention)
    await again.start()
    assert again.revision == store.revision
    _compare(again, states, resource)
    await again.close()


def _compare(store: WatchCache, states: dict[int, dict[str, int]], resource: str) -> None:
    oldest = store.history(resource).trimmed
    for revision, state in states.items():
        if revision < oldest:
            with pytest.raises(TooOld):
                store.snapshot_at(resource, revision)
        else:
            assert {row.key: row.revision for row in store.snapshot_at(resource, revision).items()} == state


def _everything(store: WatchCache) -> list[object]:
    return [
        [(row.key, row.revision, row.data) for name in ("pods", "nodes") for row in store.snapshot(name).items()],
        [
            (change.row.data, change.before and change.before.data, change.deleted, change.at)
            for name in ("pods", "nodes")
            for change in store.history(name).since(0)
        ],
    ]
