"""Objects held in pieces by a memory storage are read as they were written."""

import asyncio
import json
from collections.abc import Sequence

from apiserver_stub.storage.interface import Record, StoredObject, Write
from apiserver_stub.storage.memory import MemoryRows, MemoryStorage
from apiserver_stub.watch_cache.cache import WatchCache

COUNT = 1300


def body(name: str, text: str = "") -> bytes:
    env = [{"name": f"variable-{number}", "value": "the same for all"} for number in range(20)]
    tree = {"metadata": {"resourceVersion": "", "name": name, "uid": name}, "kind": "Pod", "spec": env, "text": text}
    return json.dumps(tree, separators=(",", ":")).encode()


def stamped_body(name: str, revision: int, text: str = "") -> bytes:
    return body(name, text).replace(b'"resourceVersion":""', b'"resourceVersion":"%d"' % revision)


def packed_object(key: str, revision: int, data: bytes) -> StoredObject:
    """An object whose row is packed into pieces."""
    found = StoredObject("pods", key, revision, data)
    found.hold((data[:100], data[100:]))
    return found


async def test_storage_shares_packed_rows_of_the_cache() -> None:
    rows = MemoryRows()
    store = WatchCache(MemoryStorage(rows))
    await store.start()
    names = [f"web-{number:04}" for number in range(COUNT)]
    await asyncio.gather(*(store.commit(Write("pods", name, 0, body(name))) for name in names))
    cached = list(store.snapshot("pods").items())
    kept = [rows.get("pods", name) for name in names]
    assert 200 < sum(not row.is_whole for row in cached) < 300
    for row, one in zip(cached, kept, strict=True):
        assert one is not None
        assert list(map(id, one.pieces)) == list(map(id, row.pieces))
        assert one.data == stamped_body(row.key, row.revision)
    await store.close()


async def test_start_packs_rows_of_the_storage() -> None:
    rows = MemoryRows()
    for number in range(COUNT):
        rows.add(Record(number + 2, "pods", f"web-{number:04}", stamped_body(f"web-{number}", number + 2), False, 0.0))
    store = WatchCache(MemoryStorage(rows))
    await store.start()
    await store.pack()
    assert 200 < sum(not one.is_whole for one in rows.snapshot().rows["pods"].items()) < 300
    await store.close()


async def test_packed_rows_are_watched_and_listed_whole() -> None:
    rows = MemoryRows()
    storage = MemoryStorage(rows)
    await storage.open()
    first = await storage.txn([Write("pods", "a", 0, body("a", "one"))])
    second = await storage.txn([Write("pods", "a", first, body("a", "two"))])
    began = rows.snapshot()
    for revision, text in ((first, "one"), (second, "two")):
        storage.share(packed_object("a", revision, stamped_body("a", revision, text)))
    wanted = [stamped_body("a", first, "one"), stamped_body("a", second, "two")]
    seen: list[Record] = []

    def deliver(records: Sequence[Record], _: int) -> None:
        seen.extend(records)

    await storage.watch(first - 1, deliver)
    assert [record.data for record in seen] == wanted
    assert [written.kept.is_whole for written in rows._history] == [False, False]
    for revision, data in zip((first, second), wanted, strict=True):
        assert [record.data for record in (await storage.list("pods", revision)).records] == [data]
    found, again = await storage.get("pods", "a"), MemoryRows.of(began).get("pods", "a")
    assert found is not None
    assert again is not None
    assert (found.data, again.data) == (wanted[1], wanted[1])
    await storage.close()


async def test_packed_rows_of_other_revisions_are_ignored() -> None:
    rows = MemoryRows()
    storage = MemoryStorage(rows)
    await storage.open()
    first = await storage.txn([Write("pods", "a", 0, body("a", "one"))])
    second = await storage.txn([Write("pods", "a", first, body("a", "two"))])
    other = await storage.txn([Write("pods", "b", 0, body("b"))])
    await storage.compact(second)
    for key, revision in (("a", first), ("a", other + 1), ("b", first), ("c", 1)):
        storage.share(packed_object(key, revision, b"x" * 200))
    listed = await storage.list("pods")
    assert [record.data for record in listed.records] == [stamped_body("a", second, "two"), stamped_body("b", other)]
    assert all(one.is_whole for one in rows.snapshot().rows["pods"].items())
    await storage.close()
