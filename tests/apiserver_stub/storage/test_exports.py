"""A cluster moves from one storage to another: rows, lifetimes and encrypted data; revisions never decrease."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.etcd import EtcdRules, EtcdServers, EtcdStorage
from apiserver_stub.storage.exports.etcd import EtcdSource, EtcdTarget
from apiserver_stub.storage.exports.file import ExportedRow, Sound
from apiserver_stub.storage.exports.sqlite import SqliteSource, SqliteTarget
from apiserver_stub.storage.exports.transfer import ImportTarget, Moved, Source, export_rows, import_rows
from apiserver_stub.storage.interface import RevisionConflict, Storage, TooOld, Unusable, Write, as_of
from apiserver_stub.storage.sqlite import SqliteBackend
from tests.etcd import Etcd, Partition, free_ports

_NUMBERS = count(1)
ENCRYPTED = b"k8s:enc:aesgcm:v1:k:\x00\xff"


def body(text: str) -> bytes:
    return b'{"metadata":{"resourceVersion":"","name":"a"},"text":"%b"}' % text.encode()


class Store:
    """A storage that is filled, exported or imported, and opened again."""

    def __init__(self, open_: Callable[[], Storage], source: Callable[[], Source], target: Callable[..., ImportTarget]):
        self.storage = open_
        self.source = source
        self.target = target


def sqlite(folder: Path) -> Store:
    path = folder / "apiserver.db"
    return Store(
        lambda: EmbeddedStorage(SqliteBackend(path)),
        lambda: SqliteSource(path),
        lambda jump=0: SqliteTarget(path, jump),
    )


def etcd_store(servers: EtcdServers) -> Store:
    prefix = f"/export-{os.getpid()}-{next(_NUMBERS)}"
    return Store(
        lambda: EtcdStorage(servers, EtcdRules(prefix, compaction=1e-9)),
        lambda: EtcdSource(servers, prefix),
        lambda jump=0: EtcdTarget(servers, prefix, jump),
    )


def store(kind: str, folder: Path, request: pytest.FixtureRequest) -> Store:
    return sqlite(folder) if kind == "sqlite" else etcd_store(EtcdServers(request.getfixturevalue("etcd").urls))


KINDS = ["sqlite", pytest.param("etcd", marks=pytest.mark.needs("etcd"))]


@pytest.fixture(params=KINDS)
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store(request.param, tmp_path / "before", request)


@pytest.fixture(params=KINDS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store(request.param, tmp_path / "after", request)


async def fill(store: Store, number: int = 30) -> tuple[int, dict[str, bytes]]:
    """Write rows, and change or delete some of them; return the revision and the remaining rows."""
    storage = store.storage()
    await storage.open()
    left = {}
    for one in range(number):
        key = f"default/p{one:04}"
        revision = await storage.txn([Write("pods", key, 0, body("first"))])
        if one % 3 == 0:
            await storage.txn([Write("pods", key, revision, body("last"), deleted=True)])
            continue
        if one % 3 == 1:
            await storage.txn([Write("pods", key, revision, body("changed"))])
        left[f"pods {key}"] = body("changed" if one % 3 == 1 else "first")
    await storage.txn([Write("secrets", "default/s", 0, ENCRYPTED)])
    left["secrets default/s"] = ENCRYPTED
    newest = await storage.current_revision()
    await storage.close()
    return newest, left


async def move(before: Store, after: Store, file: Path, jump: int = 0) -> tuple[Moved, Moved]:
    exported = await export_rows(before.source(), file, print)
    return exported, await import_rows(file, after.target(jump), print)


async def rows_of(storage: Storage) -> dict[str, bytes]:
    return {f"{row.resource} {row.key}": as_of(row.data, "") for row in (await storage.list()).records}


async def test_all_rows_are_imported_under_later_revisions(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    newest, rows = await fill(old_store)
    exported, imported = await move(old_store, new_store, tmp_path / "cluster.export")
    assert (exported.revision, exported.records) == (newest, len(rows))
    assert exported.encrypted == imported.encrypted == {"secrets": 1}
    storage = new_store.storage()
    await storage.open()
    assert await rows_of(storage) == rows
    listing = await storage.list()
    assert listing.revision >= imported.revision > newest
    assert all(newest < row.revision <= listing.revision for row in listing.records)
    assert all(not row.decode_error for row in listing.records if row.resource == "pods")
    await storage.close()


async def test_revisions_from_before_the_import_are_expired(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    newest, _ = await fill(old_store)
    await move(old_store, new_store, tmp_path / "cluster.export", jump=5000)
    storage = new_store.storage()
    await storage.open()
    for known in (1, newest // 2, newest, newest + 4999):
        with pytest.raises(TooOld):
            await storage.list(at=known)
        with pytest.raises(TooOld):
            await storage.watch(known, lambda *_: None)
        with pytest.raises(RevisionConflict):
            await storage.txn([Write("pods", "default/p0001", known, body("mine"))])
        with pytest.raises(RevisionConflict):
            await storage.txn([Write("pods", "default/p0000", known, body("mine"))])
    present = await storage.current_revision()
    assert await storage.oldest_revision() > newest + 5000
    received: list[str] = []
    await storage.watch(present, lambda records, _: received.extend(record.key for record in records))
    found = await storage.get("pods", "default/p0001")
    assert found is not None
    assert await storage.txn([Write("pods", "default/p0001", found.revision, body("mine"))]) > present
    async with asyncio.timeout(30):
        while received != ["default/p0001"]:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
    await storage.close()


async def test_cluster_can_be_moved_back(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    _, rows = await fill(old_store)
    _, there = await move(old_store, new_store, tmp_path / "one.export")
    back = sqlite(tmp_path / "back")
    _, again = await move(new_store, back, tmp_path / "other.export")
    storage = back.storage()
    await storage.open()
    assert await rows_of(storage) == rows
    assert await storage.current_revision() >= again.revision > there.revision
    await storage.close()


async def test_rows_keep_their_remaining_ttl(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    storage = old_store.storage()
    await storage.open()
    await storage.txn([Write("events", "default/short", 0, body("short"), ttl=30), Write("pods", "p", 0, body(""))])
    await storage.txn([Write("events", "default/long", 0, body("long"), ttl=3000)])
    await storage.close()
    file = tmp_path / "cluster.export"
    await export_rows(old_store.source(), file, print)
    lines = {line.split(b'"key":"')[1][:9]: line for line in file.read_bytes().splitlines() if b'"ttl"' in line}
    assert set(lines) == {b"default/s", b"default/l"}
    left = [int(lines[key].split(b'"ttl":')[1].split(b",")[0]) for key in sorted(lines)]
    assert 2900 <= left[0] <= 3300
    assert 20 <= left[1] <= 35
    await import_rows(file, new_store.target(), print)
    again = tmp_path / "again.export"
    await export_rows(new_store.source(), again, print)
    lives = sorted(
        int(line.split(b'"ttl":')[1].split(b",")[0]) for line in again.read_bytes().splitlines() if b'"ttl"' in line
    )
    assert 20 <= lives[0] <= 40
    assert 2900 <= lives[1] <= 3500


class Interrupted(Exception):
    pass


def failing(target: ImportTarget, after: int) -> ImportTarget:
    """A target that is interrupted after this number of parts."""
    numbers, add = count(1), target.add

    async def fail(rows: list[ExportedRow]) -> None:
        if next(numbers) > after:
            raise Interrupted
        await add(rows)

    target.add = fail  # type: ignore[method-assign, assignment]
    return target


async def write_many(store: Store) -> None:
    storage = store.storage()
    await storage.open()
    for at in range(0, 1200, 100):
        await storage.txn([Write("pods", f"default/p{one}", 0, body("")) for one in range(at, at + 100)])
    await storage.close()


async def test_interrupted_import_continues(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    await write_many(old_store)
    file = tmp_path / "cluster.export"
    await export_rows(old_store.source(), file, print)
    for parts in (0, 1, 0):
        with pytest.raises(Interrupted):
            await import_rows(file, failing(new_store.target(), parts), print)
        with pytest.raises(Unusable, match="not finished"):
            await new_store.storage().open()
    target, added = new_store.target(), []
    add = target.add

    async def noted(rows: list[ExportedRow]) -> None:
        added.extend(rows)
        await add(rows)

    target.add = noted  # type: ignore[method-assign, assignment]
    assert (await import_rows(file, target, print)).records == 1200
    assert len(added) == 200
    storage = new_store.storage()
    await storage.open()
    assert len((await storage.list()).records) == 1200
    await storage.close()


class InterruptedSource:
    """A source that is interrupted after a number of rows."""

    def __init__(self, source: Source, after: int) -> None:
        self._source, self._left = source, after
        self.open, self.close = source.open, source.close

    async def rows(self, behind: Sound | None = None) -> AsyncIterator[Sequence[ExportedRow]]:
        async for rows in self._source.rows(behind):
            yield rows[: self._left]
            self._left -= len(rows)
            if self._left <= 0:
                raise Interrupted


async def write_more(store: Store, number: int) -> int:
    """Change, delete and create rows; return the revision."""
    storage = store.storage()
    await storage.open()
    rows = {row.key: row.revision for row in (await storage.list("pods")).records}
    await storage.txn([Write("pods", "default/p5", rows["default/p5"], body(f"changed {number}"))])
    await storage.txn([Write("pods", f"default/p{number}", rows[f"default/p{number}"], body(""), deleted=True)])
    await storage.txn([Write("pods", f"default/q{number}", 0, body("new"))])
    newest = await storage.current_revision()
    await storage.close()
    return newest


async def interrupt_export(store: Store, file: Path, rows: int) -> Path:
    with pytest.raises(Interrupted):
        await export_rows(InterruptedSource(store.source(), rows), file, print)
    assert file.name not in os.listdir(file.parent)
    return file.with_name(f"{file.name}.part")


async def test_interrupted_export_continues(old_store: Store, tmp_path: Path) -> None:
    await write_many(old_store)
    whole = tmp_path / "whole.export"
    began = await export_rows(old_store.source(), whole, print)
    file = tmp_path / "cluster.export"
    part = await interrupt_export(old_store, file, 1100)
    left = part.read_bytes()
    for number, torn in enumerate((left, left[:-7], left + b'{"resource":"pods"', left + bytes(50))):
        await write_more(old_store, 10 + number)  # which is not part of the export
        part.write_bytes(torn)
        moved = await export_rows(old_store.source(), file, print)
        assert moved == (began.revision, 1200, {}, 1000)
        assert not part.exists()
        theirs, ours = (path.read_bytes().splitlines() for path in (whole, file))
        assert [line for line in ours if b'"key"' in line] == [line for line in theirs if b'"key"' in line]
        file.unlink()


async def test_export_restarts_if_history_was_compacted(old_store: Store, tmp_path: Path) -> None:
    await write_many(old_store)
    file = tmp_path / "cluster.export"
    part = await interrupt_export(old_store, file, 1100)
    newest = await write_more(old_store, 10)
    storage = old_store.storage()
    await storage.open()
    await storage.compact(newest)
    await storage.close()
    moved = await export_rows(old_store.source(), file, print)
    assert moved.revision >= newest
    assert moved[1:] == (1200, {}, 0)
    assert not part.exists()


async def test_export_of_another_store_cannot_be_continued(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    await write_many(old_store)
    file = tmp_path / "cluster.export"
    part = await interrupt_export(old_store, file, 900)
    assert not part.exists()
    part = await interrupt_export(old_store, file, 1100)
    await fill(new_store, 900)
    with pytest.raises(Unusable, match="what was exported before"):
        await export_rows(new_store.source(), file, print)
    with part.open("rb") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        with pytest.raises(Unusable, match="another process exports"):
            await export_rows(old_store.source(), file, print)
    assert (await export_rows(old_store.source(), file, print)).before == 1000


async def test_import_never_mixes_two_clusters(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    await write_many(old_store)
    files = [tmp_path / name for name in ("one.export", "other.export")]
    for file in files:
        await export_rows(old_store.source(), file, print)
    with pytest.raises(Interrupted):
        await import_rows(files[0], failing(new_store.target(), 1), print)
    with pytest.raises(Unusable, match="another export"):
        await import_rows(files[1], new_store.target(), print)
    await import_rows(files[0], new_store.target(), print)
    for file in files:
        with pytest.raises(Unusable, match=r"already exists|are objects"):
            await import_rows(file, new_store.target(), print)
    with pytest.raises(Unusable, match="already exists"):
        await export_rows(old_store.source(), files[0], print)


async def test_altered_file_is_rejected_without_changes(old_store: Store, new_store: Store, tmp_path: Path) -> None:
    await write_many(old_store)
    file = tmp_path / "cluster.export"
    await export_rows(old_store.source(), file, print)
    content = file.read_bytes()
    for changed in (content[:-200], content.replace(b"default/p1100", b"default/p11oo"), b""):
        file.write_bytes(changed)
        with pytest.raises(Unusable):
            await import_rows(file, new_store.target(), print)
    assert not (tmp_path / "after").exists()
    storage = new_store.storage()
    await storage.open()
    assert (await storage.list()).records == []
    await storage.close()


async def test_damaged_objects_are_reported_and_not_exported(tmp_path: Path) -> None:
    before = sqlite(tmp_path)
    await fill(before)
    connection = sqlite3.connect(tmp_path / "apiserver.db")
    connection.execute("UPDATE log SET data = replace(data, 'changed', 'charged') WHERE key = 'default/p0004'")
    connection.commit()
    connection.close()
    with pytest.raises(Unusable, match="damaged objects: pods default/p0004"):
        await export_rows(before.source(), tmp_path / "cluster.export", print)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("cluster")]


@pytest.mark.needs("etcd")
async def test_row_is_imported_once_if_etcd_response_is_lost(tmp_path: Path, etcd: Etcd) -> None:
    before = sqlite(tmp_path)
    await write_many(before)
    file = tmp_path / "cluster.export"
    await export_rows(before.source(), file, print)
    async with Partition(etcd.members[0].port) as way:
        after = etcd_store(EtcdServers([way.url]))
        target = after.target()
        add, lost = target.add, count()

        async def lose_an_answer(rows: list[ExportedRow]) -> None:
            if next(lost) == 0:
                await add(rows[:150])
                way.keep_answers()
                async with asyncio.TaskGroup() as group:
                    group.create_task(add(rows[150:]))
                    await asyncio.sleep(0.2)
                    way.cut()
                    way.heal()
            else:
                await add(rows)

        target.add = lose_an_answer  # type: ignore[method-assign, assignment]
        assert (await import_rows(file, target, print)).records == 1200
        storage = after.storage()
        await storage.open()
        assert len((await storage.list()).records) == 1200
        await storage.close()
    lost_way = EtcdServers([f"http://127.0.0.1:{free_ports(1)[0]}"])
    with pytest.raises(Unusable, match=r"^etcd at http://127.0.0.1:\d+ cannot be used: failed to connect"):
        await import_rows(file, etcd_store(lost_way).target(), print)
