"""The store's promises, on every backend: order, visibility, concurrency, the past, failures, restarts, upkeep."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.storage.backend import Backend, Done, MemoryBackend
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record, RevisionConflict, TooNew, TooOld, Write
from apiserver_stub.storage.pipeline import GroupLimits
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.commits import WriteLimits
from apiserver_stub.watch_cache.row import Change
from controller_manager.api.errors import ServiceUnavailable
from controller_manager.testing import virtual

pytestmark = pytest.mark.virtual


def body(text: str = "") -> bytes:
    return b'{"metadata":{"resourceVersion":""},"text":"%b"}' % text.encode()


def content(store: WatchCache, resource: str = "pods") -> dict[str, int]:
    return {row.key: row.revision for row in store.snapshot(resource).items()}


async def ready() -> None:
    """Let everything that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def waiting(store: WatchCache) -> int:
    assert isinstance(store.storage, EmbeddedStorage)
    return len(store.storage._pipeline._queue)


class HeldBackend(MemoryBackend):
    """A log that finishes a group, well or badly, only when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Sequence[Record], Done]] = []
        self.compactable = True

    def append(self, records: Sequence[Record], done: Done) -> None:
        self.held.append((records, done))

    async def finish(self, failure: Exception | None = None) -> int:
        await ready()
        records, done = self.held.pop()
        if failure is None:
            super().append(records, done)
        else:
            done(failure)
        await ready()
        return len(records)

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        if self.compactable:
            super().compact(compacted, revisions, done)
        else:
            done(OSError("no space left"))


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Backend]:
    """Gives the same log again and again."""
    memory = MemoryBackend()
    return lambda: memory if request.param == "memory" else SqliteBackend(tmp_path / "store.db")


@pytest.fixture
async def store(reopen: Callable[[], Backend]) -> AsyncIterator[WatchCache]:
    made = WatchCache(EmbeddedStorage(reopen()))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def backend() -> HeldBackend:
    return HeldBackend()


@pytest.fixture
async def held(backend: HeldBackend) -> WatchCache:
    made = WatchCache(EmbeddedStorage(backend, limits=GroupLimits(records=3)), limits=WriteLimits(transactions=7))
    await made.start()
    return made


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


async def test_an_unexpected_row_is_stale(store: WatchCache) -> None:
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


async def test_of_many_writers_of_one_row_each_gets_its_turn(store: WatchCache) -> None:
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


async def test_changes_are_told_in_order_and_before_the_writer_goes_on(store: WatchCache) -> None:
    told: list[int] = []
    store.subscribe(lambda changes: told.extend(change.revision for change in changes))

    async def write(key: str) -> None:
        row = await store.commit(Write("pods", key, 0, body()))
        assert row.revision in told

    async with asyncio.TaskGroup() as group:
        for number in range(300):
            group.create_task(write(str(number)))
    assert told == list(range(2, 302))
    assert store.revision == 301


async def test_the_revision_is_stamped_where_it_was_left_empty_and_nowhere_else(store: WatchCache) -> None:
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


async def test_writes_of_several_rows_are_made_together_or_not_at_all(store: WatchCache) -> None:
    held = await store.commit(Write("addresses", "10.0.0.1", 0, body()))
    with pytest.raises(RevisionConflict):
        await store.commit(Write("services", "a", 0, body()), Write("addresses", "10.0.0.1", 0, body()))
    assert (store.get("services", "a"), store.revision) == (None, 2)
    told: list[list[str]] = []
    store.subscribe(lambda changes: told.append([change.row.key for change in changes]))
    row = await store.commit(
        Write("services", "a", 0, body("a")), Write("addresses", "10.0.0.1", held.revision, body(), deleted=True)
    )
    assert row is store.get("services", "a")
    assert store.get("addresses", "10.0.0.1") is None
    assert told == [["10.0.0.1", "a"]]


async def test_nothing_is_visible_before_it_is_durable(held: WatchCache, backend: HeldBackend) -> None:
    told: list[Change] = []
    held.subscribe(told.extend)
    async with asyncio.TaskGroup() as group:
        write = group.create_task(held.commit(Write("pods", "a", 0, body())))
        await ready()
        assert (held.get("pods", "a"), content(held), told, held.revision) == (None, {}, [], 1)
        await backend.finish()
        assert write.done()
    assert (content(held), held.revision, len(told)) == ({"a": 2}, 2, 1)


async def test_a_competitor_hears_of_staleness_once_the_winner_is_visible(
    held: WatchCache, backend: HeldBackend
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(held.commit(Write("pods", "a", 0, body())))
        loser = group.create_task(_stale(held.commit(Write("pods", "a", 0, body()))))
        await ready()
        assert not loser.done()
        await backend.finish()
    row = held.get("pods", "a")
    assert row is not None
    assert loser.result().current == row.revision


async def test_a_competitor_takes_the_place_of_a_write_that_failed(held: WatchCache, backend: HeldBackend) -> None:
    async with asyncio.TaskGroup() as group:
        failing = group.create_task(_unavailable(held.commit(Write("pods", "a", 0, body()))))
        second = group.create_task(held.commit(Write("pods", "a", 0, body("second"))))
        await backend.finish(OSError("disk full"))
        assert "disk full" in failing.result().message
        await backend.finish()
    assert held.get("pods", "a") is second.result()


async def test_a_failed_group_fails_its_writers_and_nothing_else(held: WatchCache, backend: HeldBackend) -> None:
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


async def test_waiting_writes_are_bounded(held: WatchCache, backend: HeldBackend) -> None:
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


async def test_waiting_writes_are_bounded_in_bytes() -> None:
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


async def test_a_writer_that_goes_away_disturbs_nobody(held: WatchCache, backend: HeldBackend) -> None:
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


async def test_closing_finishes_what_was_submitted_and_refuses_the_rest(held: WatchCache, backend: HeldBackend) -> None:
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


async def test_the_past(store: WatchCache) -> None:
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


async def test_reading_on_from_a_page_does_not_undo_the_history_again(store: WatchCache) -> None:
    for key in "abc":
        await store.commit(Write("pods", key, 0, body()))
    page = store.snapshot_at("pods", 3)
    assert store.snapshot_at("pods", 3)._rows is page._rows
    for revision in range(1, 4):
        store.snapshot_at("pods", revision)
    assert [row.key for row in page.items(after="a")] == ["b"]
    assert (page.count(after="a"), page.get("b") is not None, page.get("c"), len(page)) == (1, True, None, 2)


async def test_few_past_states_are_kept_and_none_beyond_the_history(store: WatchCache) -> None:
    for number in range(30):
        await store.commit(Write("pods", str(number), 0, body()))
    for revision in range(1, 30):
        assert len(store.snapshot_at("pods", revision)) == revision - 1
    assert 0 < len(store._collections["pods"]._past) < 10
    await asyncio.sleep(400)
    assert len(store._collections["pods"]._past) == 0


async def test_history_that_is_too_old_goes_even_if_nothing_happens(store: WatchCache) -> None:
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


async def test_the_history_of_all_resources_together_is_bounded() -> None:
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


async def test_a_restart_finds_everything_including_the_history(reopen: Callable[[], Backend]) -> None:
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


async def test_compaction_leaves_only_what_is_needed_and_no_revision_comes_twice(
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


async def test_compaction_goes_on_after_a_failure_and_after_a_restart(backend: HeldBackend) -> None:
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


async def test_a_store_at_rest_has_no_timer(store: WatchCache) -> None:
    await store.commit(Write("pods", "a", 0, body()))
    await asyncio.sleep(400)
    assert store._upkeep._timer is None


EDITS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["put", "put", "delete", "wait"])), min_size=1, max_size=60
)


@given(edits=EDITS, retention=st.sampled_from([Retention(), Retention(seconds=8), Retention(changes=5)]))
@settings(max_examples=100, deadline=None)
def test_any_past_within_the_window_can_be_read_before_and_after_a_restart(
    edits: list[tuple[str, str]], retention: Retention
) -> None:
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


async def _stale(write: Awaitable[object]) -> RevisionConflict:
    with pytest.raises(RevisionConflict) as refused:
        await write
    return refused.value


async def _unavailable(write: Awaitable[object]) -> ServiceUnavailable:
    with pytest.raises(ServiceUnavailable) as refused:
        await write
    return refused.value
