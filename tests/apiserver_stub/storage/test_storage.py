"""What every storage guarantees: one order, transactions with compares, history, watches and lifetimes."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from apiserver_stub.storage.interface import Compare, Record, RevisionConflict, Storage, TooNew, TooOld, Unusable, Write
from controller_manager.common.api.errors import ServiceUnavailable
from tests.apiserver_stub.storage.storages import KINDS, LOCAL, Follower, Reopen, body, plain, reopener, stamped_body


def put(key: str, expected: int = 0, text: str = "", resource: str = "pods", ttl: float = 0) -> Write:
    return Write(resource, key, expected, body(text), ttl=ttl)


def delete(key: str, expected: int, resource: str = "pods") -> Write:
    return Write(resource, key, expected, body("last"), deleted=True)


def revisions(records: Sequence[Record]) -> dict[str, int]:
    return {f"{record.resource} {record.key}": record.revision for record in records}


@pytest.fixture(params=KINDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    return reopener(request.param, tmp_path, lambda: request.getfixturevalue("etcd"))


@pytest.fixture
async def storage(reopen: Reopen) -> AsyncIterator[Storage]:
    made = reopen()
    await made.open()
    yield made
    await made.close()


async def test_row_is_read_as_written_with_its_revision(storage: Storage) -> None:
    assert await storage.get("pods", "a") is None
    revision = await storage.txn([put("a", text="one")])
    found = await storage.get("pods", "a")
    assert found is not None
    assert (found.revision, found.data, found.deleted) == (revision, stamped_body("one", revision), False)
    assert await storage.current_revision() == revision
    assert await storage.get("nodes", "a") is None


async def test_existing_resource_version_in_data_is_preserved(storage: Storage) -> None:
    """Rows of earlier versions have one; empty fields further inside are not touched."""
    data = b'{"metadata":{"resourceVersion":"7"},"ref":{"resourceVersion":""}}'
    await storage.txn([Write("pods", "a", 0, data)])
    found = await storage.get("pods", "a")
    assert found is not None
    assert found.data == data


async def test_conflict_names_the_row(storage: Storage) -> None:
    first = await storage.txn([put("a")])
    wrong = {"there": put("a"), "older": put("a", first - 1), "newer": put("a", first + 1), "gone": delete("a", 99)}
    for write in wrong.values():
        with pytest.raises(RevisionConflict) as refused:
            await storage.txn([write])
        assert (refused.value.resource, refused.value.key, refused.value.current) == ("pods", "a", first)
        assert refused.value.revision == first
    for write in (put("b", 5), delete("b", 0), delete("b", 5)):
        with pytest.raises(RevisionConflict) as absent:
            await storage.txn([write])
        assert (absent.value.key, absent.value.current) == ("b", 0)
    assert await storage.current_revision() == first


async def test_transaction_is_atomic(storage: Storage) -> None:
    seen = Follower(await storage.current_revision())
    sizes: list[int] = []

    def noted(records: Sequence[Record], revision: int) -> None:
        sizes.extend([len(records)] if records else [])
        seen(records, revision)

    await storage.watch(seen.after, noted)
    address = await storage.txn([put("10.0.0.1", resource="addresses")])
    with pytest.raises(RevisionConflict) as refused:
        await storage.txn([put("s", resource="services"), put("10.0.0.1", resource="addresses")])
    assert refused.value.key == "10.0.0.1"
    newest = await storage.txn([delete("10.0.0.1", address, "addresses"), put("s", resource="services")])
    assert newest == await storage.current_revision()
    await seen.reach(newest)
    assert revisions((await storage.list()).records) == {"services s": newest}
    assert sizes in ([1, 2], [3])  # rows of a transaction come together
    assert [(record.key, record.deleted) for record in seen.records] == [
        ("10.0.0.1", False),
        ("10.0.0.1", True),
        ("s", False),
    ]


async def test_compared_row_must_match_and_is_unchanged(storage: Storage) -> None:
    namespace = await storage.txn([put("n", resource="namespaces")])
    there, absent = Compare("namespaces", "n", namespace), Compare("namespaces", "other", 0)
    made = await storage.txn([put("a")], [there, absent])
    seen = Follower(made)
    await storage.watch(made, seen)
    wrong = (
        Compare("namespaces", "n", 0),
        Compare("namespaces", "n", namespace + 1),
        Compare("namespaces", "other", 5),
    )
    for one in wrong:
        with pytest.raises(RevisionConflict) as refused:
            await storage.txn([put("b")], [there, one])
        current = namespace if one.key == "n" else 0
        assert (refused.value.key, refused.value.current, refused.value.revision) == (one.key, current, made)
    assert revisions((await storage.list()).records) == {"namespaces n": namespace, "pods a": made}
    await storage.txn([delete("n", namespace, "namespaces")])
    with pytest.raises(RevisionConflict):
        await storage.txn([put("b")], [there])
    last = await storage.txn([put("b")], [Compare("namespaces", "n", 0)])
    await seen.reach(last)
    assert revisions(seen.records) == {"namespaces n": last - 1, "pods b": last}


@pytest.mark.parametrize("reopen", LOCAL, indirect=True)  # concurrent ones have no order in etcd
async def test_compare_sees_earlier_submitted_writes(storage: Storage) -> None:
    namespace = await storage.txn([put("n", resource="namespaces")])
    there = Compare("namespaces", "n", namespace)
    before = [storage.txn([put(f"before{number}")], [there]) for number in range(3)]
    ended = storage.txn([delete("n", namespace, "namespaces")])
    behind = [storage.txn([put(f"behind{number}")], [there]) for number in range(3)]
    numbers = [await one for one in before]
    assert numbers == sorted(numbers)
    assert await ended > numbers[-1]
    for one in behind:
        with pytest.raises(RevisionConflict) as refused:
            await one
        assert (refused.value.current, refused.value.revision) == (0, await ended)
    assert [record.key for record in (await storage.list()).records] == ["before0", "before1", "before2"]


async def test_one_of_concurrent_compare_and_swaps_wins(storage: Storage) -> None:
    await storage.txn([put("a", text="0")])

    async def increment() -> None:
        for _ in range(100):
            found = await storage.get("pods", "a")
            assert found is not None
            number = int(json.loads(found.data)["text"])
            try:
                await storage.txn([put("a", found.revision, str(number + 1))])
            except RevisionConflict:
                continue
            return
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(increment())
    found = await storage.get("pods", "a")
    assert found is not None
    assert found.data == stamped_body("20", found.revision)


async def test_past_revisions_can_be_listed(storage: Storage) -> None:
    a = await storage.txn([put("a", text="old")])
    node = await storage.txn([put("n", resource="nodes")])
    newer = await storage.txn([put("a", a, "new")])
    gone = await storage.txn([delete("a", newer)])
    again = await storage.txn([put("a")])
    listed = await storage.list("pods", a)
    assert (listed.revision, [record.data for record in listed.records]) == (a, [stamped_body("old", a)])
    assert revisions((await storage.list(at=node)).records) == {"nodes n": node, "pods a": a}
    assert revisions((await storage.list(at=newer)).records) == {"nodes n": node, "pods a": newer}
    assert revisions((await storage.list("pods", gone)).records) == {}
    assert revisions((await storage.list("pods")).records) == {"pods a": again}
    assert [record.key for record in (await storage.list()).records] == ["n", "a"]
    with pytest.raises(TooNew):
        await storage.list("pods", again + 1)


async def test_watch_delivers_past_and_future_changes_once(storage: Storage) -> None:
    first = await storage.txn([put("a", text="one")])
    second = await storage.txn([put("a", first, "two")])
    early, late = Follower(first - 1), Follower(second)
    stop = await storage.watch(early.after, early)
    await storage.watch(late.after, late)
    assert [record.revision for record in early.records] == [first, second]
    assert not late.records
    assert late.revision >= second
    third = await storage.txn([delete("a", second)])
    await early.reach(third)
    await late.reach(third)
    assert plain(early.records[-1:]) == plain(late.records[-1:])
    assert (late.records[-1].deleted, late.records[-1].data) == (True, stamped_body("last", third))
    stop()
    await storage.txn([put("b")])
    assert (len(early.records), len(late.records)) == (3, 2)


async def test_watch_started_during_writes_misses_nothing(storage: Storage) -> None:
    async def write(name: str) -> None:
        for number in range(50):
            await storage.txn([put(f"{name}{number}")])

    start = await storage.current_revision()
    followers = [Follower(start) for _ in range(10)]
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(write(name))
        for follower in followers:
            await asyncio.sleep(0.001)
            group.create_task(storage.watch(start, follower))
    for follower in followers:
        await follower.reach(await storage.current_revision())
    numbers = [[record.revision for record in follower.records] for follower in followers]
    assert numbers[0] == sorted(set(numbers[0]))
    assert len(numbers[0]) == 150
    assert all(found == numbers[0] for found in numbers)


async def test_compaction_removes_only_history(storage: Storage) -> None:
    a = await storage.txn([put("a")])
    b = await storage.txn([put("b")])
    newer = await storage.txn([put("a", a)])
    gone = await storage.txn([delete("b", b)])
    last = await storage.txn([put("c")])
    await storage.compact(newer)
    assert await storage.oldest_revision() == newer
    for revision in (a, b):
        with pytest.raises(TooOld):
            await storage.list("pods", revision)
        with pytest.raises(TooOld):
            await storage.watch(revision, Follower(revision))
    assert revisions((await storage.list(at=newer)).records) == {"pods a": newer, "pods b": b}
    seen = Follower(newer)
    await storage.watch(newer, seen)
    assert [record.revision for record in seen.records] == [gone, last]
    await storage.compact(a)
    assert await storage.oldest_revision() == newer
    await storage.compact(last)
    await storage.compact(last)
    assert revisions((await storage.list()).records) == {"pods a": newer, "pods c": last}
    assert await storage.txn([put("b")]) > last


async def test_restart_preserves_everything(reopen: Reopen) -> None:
    first = reopen()
    await first.open()
    start = await first.current_revision()
    a = await first.txn([put("a", text="one")])
    await first.txn([put("b")])
    await first.txn([delete("b", a + 1)])
    newest = await first.txn([put("a", a, "two")])
    everything = Follower(start)
    await first.watch(start, everything)
    await first.close()
    second = reopen()
    await second.open()
    again = Follower(start)
    await second.watch(start, again)
    assert plain(again.records) == plain(everything.records)
    assert again.revision >= newest
    assert plain((await second.list(at=a)).records) == plain(everything.records[:1])
    await second.compact(newest)
    await second.close()
    third = reopen()
    await third.open()
    assert revisions((await third.list()).records) == {"pods a": newest}
    assert await third.oldest_revision() == newest
    assert await third.txn([put("b")]) > newest
    await third.close()


async def test_storage_is_open_until_last_user_closes_it(reopen: Reopen) -> None:
    storage = reopen()
    await storage.open()
    await storage.open()
    await storage.close()
    await storage.txn([put("a")])
    await storage.close()
    with pytest.raises(ServiceUnavailable, match="closed"):
        await storage.txn([put("b")])


async def test_closed_storage_cannot_be_reopened(reopen: Reopen) -> None:
    storage = reopen()
    await storage.open()
    revision = await storage.txn([put("a")])
    await storage.close()
    for _ in range(2):
        with pytest.raises(Unusable, match="closed by its last user"):
            await storage.open()
    again = reopen()
    await again.open()
    assert revisions((await again.list()).records) == {"pods a": revision}
    await again.close()


async def test_watch_is_notified_when_storage_closes(reopen: Reopen) -> None:
    storage = reopen()
    await storage.open()
    ended: list[str] = []
    start = await storage.current_revision()
    await storage.watch(start, Follower(start), ended.append)
    stop = await storage.watch(start, Follower(start), ended.append)
    await storage.watch(start, Follower(start))
    stop()
    await storage.txn([put("a")])
    assert ended == []
    await storage.close()
    assert ended == ["the storage is closed"]


async def test_concurrent_users_share_one_log(reopen: Reopen) -> None:
    first = reopen()
    await first.open()
    revision = await first.txn([put("a")])
    await first.close()
    storage = reopen()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(storage.open())
    await storage.compact(await storage.txn([put("a", revision)]))
    for _ in range(3):
        assert revisions((await storage.list()).records) == {"pods a": revision + 1}
        await storage.close()


async def test_canceled_waiter_does_not_undo_the_write(storage: Storage) -> None:
    done = storage.txn([put("a")])
    done.cancel()
    await storage.txn([put("b")])
    assert await storage.get("pods", "a") is not None


@pytest.mark.virtual
@pytest.mark.parametrize("reopen", LOCAL, indirect=True)
async def test_row_with_ttl_expires_and_watch_is_notified(storage: Storage) -> None:
    seen = Follower(await storage.current_revision())
    await storage.watch(seen.after, seen)
    short = await storage.txn([put("short", ttl=10, text="x")])
    renewed = await storage.txn([put("renewed", ttl=10)])
    changed = await storage.txn([put("changed", ttl=10)])
    await storage.txn([put("long", ttl=60), put("kept")])
    await asyncio.sleep(6)
    await storage.txn([put("renewed", renewed, ttl=10), put("changed", changed)])
    await asyncio.sleep(6)
    assert [record.key for record in (await storage.list()).records] == ["changed", "kept", "long", "renewed"]
    assert (seen.records[-1].key, seen.records[-1].deleted) == ("short", True)
    assert seen.records[-1].data == stamped_body("x", seen.revision)
    with pytest.raises(RevisionConflict):
        await storage.txn([put("short", short)])
    await asyncio.sleep(100)
    assert [record.key for record in (await storage.list()).records] == ["changed", "kept"]


@pytest.mark.virtual
@pytest.mark.parametrize("reopen", LOCAL, indirect=True)
async def test_ttl_survives_restart(reopen: Reopen) -> None:
    first = reopen()
    await first.open()
    await first.txn([put("a", ttl=100), put("b", ttl=1000), put("c")])
    await first.close()
    await asyncio.sleep(50)
    second = reopen()
    await second.open()
    assert [record.ttl for record in (await second.list()).records] == [100, 1000, 0]
    await asyncio.sleep(40)
    assert await second.get("pods", "a") is not None
    await asyncio.sleep(20)
    assert [record.key for record in (await second.list()).records] == ["b", "c"]
    await second.close()
