"""The SQLite file: locking, rejected files, failing disks, and bounded growth."""

# ruff: noqa: ASYNC240 - files are looked at while nothing else runs

import asyncio
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Unusable, Write
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from controller_manager.common.api.errors import ServiceUnavailable


def body(size: int = 100) -> bytes:
    return b'{"metadata":{"resourceVersion":""},"text":"%b"}' % (b"x" * size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


async def opened(path: Path, retention: Retention | None = None) -> WatchCache:
    store = WatchCache(EmbeddedStorage(SqliteBackend(path)), retention)
    await store.start()
    return store


def backend_of(store: WatchCache) -> SqliteBackend:
    assert isinstance(store.storage, EmbeddedStorage)
    assert isinstance(store.storage.backend, SqliteBackend)
    return store.storage.backend


async def query(backend: SqliteBackend, sql: str) -> Any:
    """The first value of a query, run on the writer thread."""
    return await backend._run(lambda: backend._opened.execute(sql).fetchone()[0])


async def test_folder_is_created_and_file_is_private_and_synced(path: Path) -> None:
    backend = SqliteBackend(path)
    store = WatchCache(EmbeddedStorage(backend))
    await store.start()
    assert [await query(backend, f"PRAGMA {name}") for name in ("journal_mode", "synchronous")] == [b"wal", 2]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    await store.close()


async def test_file_is_locked_by_one_process(path: Path) -> None:
    first = await opened(path)
    await first.commit(Write("pods", "a", 0, body()))
    with pytest.raises(Unusable, match=r"^the store \S+store\.db is in use by another process$"):
        await opened(path)
    await first.commit(Write("pods", "b", 0, body()))
    await first.close()
    second = await opened(path)
    assert len(second.snapshot("pods")) == 2
    await second.close()


async def test_file_that_is_not_a_database_is_rejected_unchanged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"precious text\n" * 1000)
    with pytest.raises(Unusable, match="damaged or not a store"):
        await opened(path)
    assert path.read_bytes() == b"precious text\n" * 1000


async def test_damage_in_the_middle_is_detected_at_start(path: Path) -> None:
    store = await opened(path)
    for number in range(200):
        await store.commit(Write("pods", str(number), 0, body(3000)))
    await store.close()
    content = bytearray(path.read_bytes())
    for page in range(4, len(content) // 8192 - 4):
        content[page * 8192 : page * 8192 + 100] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(Unusable, match="damaged"):
        await opened(path)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("CREATE TABLE t (x)", "another program"),
        ("PRAGMA application_id = 7", "another program"),
        ("PRAGMA application_id = 1802728546; PRAGMA user_version = 99; CREATE TABLE log (x)", "has schema 99"),
    ],
)
async def test_foreign_or_newer_database_is_rejected(path: Path, script: str, reason: str) -> None:
    path.parent.mkdir()
    foreign = sqlite3.connect(path)
    foreign.executescript(script)
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(Unusable, match=reason):
        await opened(path)
    assert path.read_bytes() == before


async def test_impossible_path_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match=r"cannot be created: \w+"):
        await opened(tmp_path / "file" / "store.db")
    with pytest.raises(Unusable, match="cannot be created: Is a directory"):
        await opened(tmp_path)


async def test_full_disk_fails_writes_until_space_is_freed(path: Path) -> None:
    backend = SqliteBackend(path)
    store = WatchCache(EmbeddedStorage(backend))
    await store.start()
    await store.commit(Write("pods", "a", 0, body()))
    await query(backend, "PRAGMA max_page_count = 10")
    with pytest.raises(ServiceUnavailable, match="full"):
        await store.commit(Write("pods", "b", 0, body(1_000_000)))
    assert (store.get("pods", "b"), store.revision) == (None, 2)
    assert (await store.commit(Write("pods", "c", 0, body()))).revision == 4
    await query(backend, "PRAGMA max_page_count = 1000000")
    assert (await store.commit(Write("pods", "b", 0, body(1_000_000)))).revision == 5
    await store.close()
    again = await opened(path)
    assert {row.key: row.revision for row in again.snapshot("pods").items()} == {"a": 2, "b": 5, "c": 4}
    assert again.revision == 5
    await again.close()


@pytest.mark.virtual
async def test_renewed_leases_do_not_grow_the_file(path: Path) -> None:
    store = await opened(path, Retention(seconds=30))
    sizes = []
    revisions = dict.fromkeys("abcdefghij", 0)
    for _ in range(12):
        for _ in range(30):
            async with asyncio.TaskGroup() as group:
                for lease in revisions:
                    group.create_task(_renew(store, lease, revisions))
            await asyncio.sleep(1)
        sizes.append(path.stat().st_size + path.with_name("store.db-wal").stat().st_size)
    assert max(sizes[6:]) <= max(sizes[:6]) * 1.2
    assert await query(backend_of(store), "SELECT count(*) FROM log") < 10 * 35 + 10
    await store.close()


async def test_large_compaction_does_not_block_writes(path: Path) -> None:
    store = await opened(path)
    for _ in range(30):
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                row = store.get("pods", str(number))
                group.create_task(store.commit(Write("pods", str(number), row.revision if row else 0, body())))
    compacting = store.storage.compact(store.revision)
    await store.commit(Write("pods", "x", 0, body()))
    assert await query(backend_of(store), "SELECT count(*) FROM log") > 3000
    await compacting
    assert await query(backend_of(store), "SELECT count(*) FROM log") == 201
    await store.close()
    again = await opened(path)
    assert len(again.snapshot("pods")) == 201
    assert again.history("pods").trimmed > 5000
    await again.close()


async def test_close_and_failed_open_end_the_thread(path: Path) -> None:
    before = set(threading.enumerate())
    store = await opened(path)
    with pytest.raises(Unusable):
        await opened(path)
    await store.close()
    await store.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive()


async def _renew(store: WatchCache, lease: str, revisions: dict[str, int]) -> None:
    revisions[lease] = (await store.commit(Write("leases", lease, revisions[lease], body(1000)))).revision
