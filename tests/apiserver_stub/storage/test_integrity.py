"""Damage to the files of a store: all acknowledged writes exist, or the start reports the loss; no
revision is reused.
"""

# ruff: noqa: ASYNC240 - files are looked at while nothing else runs

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apiserver_stub.storage import schema
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.integrity import JUMP, Tally, checksum
from apiserver_stub.storage.interface import TooOld, Unusable, Write, stamped
from apiserver_stub.storage.snapshot import restore, take
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.storage.witness import Witness, parse, witness_path
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import CorruptRow, Record, decode_error_of
from tests.apiserver_stub.storage.store_files import BODY, FILES, backend_of, crash, flip, opened, truncate, write


def files(path: Path) -> dict[str, bytes]:
    return {end: file.read_bytes() for end in FILES if (file := path.with_name(path.name + end)).exists()}


def wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """A killed store: ten objects are in its file, ten more in the write-ahead log."""
    path = tmp_path / "live" / "store.db"
    store = await opened(path)
    await write(store, *(f"ns/{number:02}" for number in range(10)))
    await backend_of(store)._fold()
    await write(store, *(f"ns/{number:02}" for number in range(10, 20)))
    assert store.revision == 21
    left = crash(path, tmp_path / "killed")
    await store.close()
    return left


async def test_killed_store_continues(killed: Path) -> None:
    store = await opened(killed)
    assert (store.revision, len(store.snapshot("pods")), store.history("pods").trimmed) == (21, 20, 0)
    await write(store, "ns/20")
    assert store.revision == 22
    await store.close()
    again = await opened(killed)
    assert again.revision == 22
    await again.close()


LOST: dict[str, tuple[Callable[[Path], object], str]] = {
    "write-ahead log missing": (lambda path: wal(path).unlink(), "revisions 12 to 21 are gone"),
    "write-ahead log empty": (lambda path: truncate(wal(path), 0), "revisions 12 to 21 are gone"),
    "write-ahead log cut": (lambda path: truncate(wal(path), wal(path).stat().st_size // 2), "to 21 are gone"),
    "last group cut": (lambda path: truncate(wal(path), wal(path).stat().st_size - 10), "revisions 21 to 21 are gone"),
    "a bit in its head": (lambda path: flip(wal(path), 9), "revisions 12 to 21 are gone"),
    "a bit in its middle": (lambda path: flip(wal(path), wal(path).stat().st_size // 2), "to 21 are gone"),
    "database missing": (lambda path: path.unlink(), "the database is missing, and with it everything up to revision"),
    "database empty": (lambda path: truncate(path, 0), "the database is missing"),
    "witness missing": (lambda path: witness_path(path).unlink(), "its witness file, .* is missing"),
    "witness empty": (lambda path: truncate(witness_path(path), 0), "its witness file, .* is missing"),
    "witness damaged": (
        lambda path: [flip(witness_path(path), 40), flip(witness_path(path), 552)],
        "its witness file, .* is damaged",
    ),
}


@pytest.mark.parametrize("name", LOST)
async def test_loss_is_reported_and_files_are_unchanged(killed: Path, name: str) -> None:
    harm, sentence = LOST[name]
    harm(killed)
    before = files(killed)
    for _ in range(2):
        with pytest.raises(Unusable, match=sentence) as refused:
            await opened(killed)
        assert str(refused.value).startswith(f"the store {killed} has lost acknowledged writes: ")
        assert "--accept-data-loss" in str(refused.value)
        assert {end: data for end, data in files(killed).items() if data} == {
            end: data for end, data in before.items() if data
        }


@pytest.mark.parametrize("name", LOST)
async def test_accepted_loss_continues_with_unused_revisions(killed: Path, name: str) -> None:
    LOST[name][0](killed)
    store = await opened(killed, accept=True)
    assert store.revision >= JUMP
    for resource in ("pods", "never-used"):
        for revision in (1, 21, JUMP - 1):
            with pytest.raises(TooOld):
                store.snapshot_at(resource, revision)
            with pytest.raises(TooOld):
                store.history(resource).position(revision)
    await write(store, "ns/new")
    assert store.revision > JUMP + 10
    rows, revision = len(store.snapshot("pods")), store.revision
    await store.close()
    again = await opened(killed)
    assert (len(again.snapshot("pods")), again.revision, again.history("nodes").trimmed > JUMP) == (
        rows,
        revision,
        True,
    )
    await again.close()


async def test_unreadable_database_can_be_moved_away(killed: Path) -> None:
    wal(killed).unlink()
    killed.write_bytes(b"\xff" * 100 + killed.read_bytes()[100:])
    with pytest.raises(Unusable, match=r"damaged or not a store: .*; restore .* move it away"):
        await opened(killed)
    killed.rename(killed.with_name("broken.db"))
    store = await opened(killed, accept=True)
    assert (len(store.snapshot("pods")), store.revision) == (0, 21 + JUMP)
    await store.close()


async def test_half_of_the_witness_is_sufficient(killed: Path) -> None:
    flip(witness_path(killed), 40)
    store = await opened(killed)
    assert store.revision == 21
    await store.close()


async def test_older_copy_of_database_is_rejected(killed: Path, tmp_path: Path) -> None:
    older = files(killed)
    store = await opened(killed)
    await write(store, "ns/later")
    await store.close()
    killed.write_bytes(older[""])
    wal(killed).write_bytes(older["-wal"])
    with pytest.raises(Unusable, match=r"revisions 22 to 22 are gone .*older copy"):
        await opened(killed)
    other = await opened(tmp_path / "other" / "store.db")
    await write(other, *(f"ns/{number}" for number in range(50)))
    await other.close()
    shutil.copy(tmp_path / "other" / "store.db", killed)
    wal(killed).unlink()
    with pytest.raises(Unusable, match="its witness file belongs to another store"):
        await opened(killed)


async def test_missing_database_and_witness_are_reported(killed: Path) -> None:
    killed.unlink()
    witness_path(killed).unlink()
    with pytest.raises(Unusable, match="the database is missing; only its write-ahead log exists"):
        await opened(killed)
    assert wal(killed).stat().st_size


async def test_record_missing_in_the_middle_is_detected(killed: Path) -> None:
    store = await opened(killed)
    await store.close()
    direct(killed, "DELETE FROM log WHERE revision IN (5, 6)")
    with pytest.raises(Unusable, match="2 records up to revision 21 missing"):
        await opened(killed)
    direct(killed, "UPDATE state SET data = data || ' '")
    with pytest.raises(Unusable, match="its own record is damaged"):
        await opened(killed)
    store = await opened(killed, accept=True)
    assert len(store.snapshot("pods")) == 18
    await store.close()
    again = await opened(killed)
    await again.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [("key", "'ns/99'"), ("resource", "'secrets'"), ("revision", "100"), ("deleted", "1"), ("at", "7"),
     ("checksum", "7"), ("checksum", "'x'"), ("ttl", "7"), ("ttl", "'x'"),
     ("resource", "X'ff'"), ("key", "X'00ff'"), ("at", "'never'"),
     ("revision", str(2**62)), ("checksum", str(2**62))],
)  # fmt: skip
async def test_only_the_damaged_record_is_given_up(killed: Path, column: str, value: str) -> None:
    store = await opened(killed)
    await store.close()
    direct(killed, f"UPDATE log SET {column} = {value} WHERE revision = 6")
    number = value if column == "revision" else "6"
    with pytest.raises(Unusable, match=rf"damaged: revision {number} \("):
        await opened(killed)
    store = await opened(killed, accept=True)
    assert (len(store.snapshot("pods")), store.get("pods", "ns/04")) == (19, None)
    assert JUMP < store.revision < 2 * JUMP
    await store.close()
    again = await opened(killed)
    assert len(again.snapshot("pods")) == 19
    await again.close()


async def test_readable_records_of_damaged_database_are_recovered(tmp_path: Path) -> None:
    """The damaged database stays beside it for manual recovery."""
    path = tmp_path / "data" / "store.db"
    store = await opened(path)
    for number in range(60):
        await store.commit(Write("pods", f"{number:02}", 0, BODY + b" " * 3000))
    await store.close()
    content = path.read_bytes()
    for page in range(12, len(content) // 8192):
        content = content[: page * 8192] + b"\xff" * 100 + content[page * 8192 + 100 :]
    path.write_bytes(content)
    with pytest.raises(Unusable, match="damaged"):
        await opened(path)
    store = await opened(path, accept=True)
    kept = [row.key for row in store.snapshot("pods").items()]
    assert kept == [f"{number:02}" for number in range(len(kept))]
    assert 10 < len(kept) < 60
    await write(store, "new")
    await store.close()
    again = await opened(path)
    assert len(again.snapshot("pods")) == len(kept) + 1
    await again.close()
    assert path.with_name("store.db-damaged").read_bytes() == content


async def test_damaged_object_is_a_corrupt_object(killed: Path) -> None:
    """API concepts, corrupt objects: it is named, cannot be read, and can be deleted; all others are served."""
    store = await opened(killed)
    await store.close()
    direct(killed, "UPDATE log SET data = replace(CAST(data AS TEXT), '\"Pod\"', '\"Pox\"') WHERE revision = 6")
    store = await opened(killed)
    row = store.get("pods", "ns/04")
    assert isinstance(row, CorruptRow)
    assert row.decode_error == "the bytes are not those that were written"
    assert (store.revision, len(store.snapshot("pods"))) == (21, 20)
    await store.commit(Write("pods", "ns/04", 6, BODY, deleted=True))
    await store.close()
    again = await opened(killed)
    assert (again.get("pods", "ns/04"), len(again.snapshot("pods"))) == (None, 19)
    await again.close()


async def test_revisions_jump_after_machine_crash(killed: Path) -> None:
    """The last acknowledged writes may not have reached the disk; a clean shutdown leaves no doubt."""
    acknowledged, _ = parse(witness_path(killed).read_bytes())
    assert acknowledged is not None
    backend = SqliteBackend(killed)
    await backend.open()
    assert backend._witness is not None
    backend._witness.note(acknowledged._replace(boot="another"))
    await backend.close()
    store = await opened(killed)
    assert (store.revision, len(store.snapshot("pods"))) == (21 + JUMP, 20)
    with pytest.raises(TooOld):
        store.snapshot_at("pods", 21)
    await store.close()
    again = await opened(killed)
    assert again.revision == 21 + JUMP
    await again.close()


async def test_witness_is_synced_soon(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    store = await opened(killed)
    beside = backend_of(store)._beside
    monkeypatch.setattr(beside, "sync", lambda: synced.append(witness_path(killed).read_bytes()))
    await write(store, "ns/20")
    async with asyncio.timeout(30):
        while not synced:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)
    acknowledged, _ = parse(synced[0])
    assert acknowledged is not None
    assert acknowledged.revision == 22
    monkeypatch.undo()
    await store.close()


async def test_store_without_checksums_is_upgraded(tmp_path: Path) -> None:
    """A data folder of an earlier version is used without further steps, history and marks included."""
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("""
        PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;
        CREATE TABLE log (revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
            deleted INTEGER NOT NULL, at REAL NOT NULL);
        CREATE TABLE compacted (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
        PRAGMA application_id = 1802728546; PRAGMA user_version = 1;
        INSERT INTO compacted VALUES ('pods', 5);
    """)
    for revision in (4, 6, 7):
        values = (revision, "pods", f"ns/{revision}", stamped(BODY, revision), 0, 1.7e9)
        connection.execute("INSERT INTO log VALUES (?,?,?,?,?,?)", values)
    connection.close()
    store = await opened(path, seconds=1e12)
    assert [row.key for row in store.snapshot("pods").items()] == ["ns/4", "ns/6", "ns/7"]
    assert (store.revision, store.history("pods").trimmed) == (7, 5)
    await write(store, "ns/8")
    await store.close()
    again = await opened(path, seconds=1e12)
    assert (again.revision, len(again.snapshot("pods"))) == (8, 4)
    await again.close()
    witness_path(path).unlink()
    with pytest.raises(Unusable, match="witness"):
        await opened(path)


def objects(store: WatchCache) -> list[tuple[str, int, bytes]]:
    return [(row.key, row.revision, row.data) for name in ("pods", "events") for row in store.snapshot(name).items()]


def convert_to_schema_2(path: Path) -> None:
    """Convert a database to schema 2, whose records have numbers but no lifetimes, with a mark for each resource."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.create_function("checksum", 6, lambda *row: checksum(Record(*row[:4], bool(row[4]), row[5])))
    number = """replace(CAST(data AS TEXT), 'Version":""', 'Version":"' || revision || '"')"""
    connection.execute(f"UPDATE log SET data = {number}")
    connection.execute("UPDATE log SET checksum = checksum(revision, resource, key, CAST(data AS BLOB), deleted, at)")
    written = Tally().plus([one for (one,) in connection.execute("SELECT checksum FROM log")])
    connection.executescript("ALTER TABLE log DROP COLUMN ttl; PRAGMA user_version = 2")
    state = schema.read_state(connection)
    assert state is not None
    schema.write_state(connection, msgspec.structs.replace(state, marks={"pods": 5, "events": 3}))
    connection.close()
    witness = Witness(path)
    acknowledged, _ = witness.read()
    assert acknowledged is not None
    witness.note(acknowledged._replace(written=written))
    witness.close()


@pytest.mark.parametrize("restored", [False, True])
async def test_store_of_previous_version_is_used_unchanged(tmp_path: Path, restored: bool) -> None:
    """Its objects already have resource versions, and its events live as long as before."""
    path = tmp_path / "old" / "store.db"
    store = await opened(path)
    await write(store, *(f"ns/{number}" for number in range(8)))
    await write(store, "ns/e", resource="events")
    before = objects(store)
    await store.close()
    convert_to_schema_2(path)
    if restored:
        take(path, tmp_path / "saved.db", lambda _: None)
        path = tmp_path / "restored.db"
        restore(tmp_path / "saved.db", path, 1000, lambda _: None)
    for _ in range(2):
        storage = EmbeddedStorage(SqliteBackend(path), StorageRules(decode_error_of, {"events": 60.0}))
        store = WatchCache(storage)
        await store.start()
        assert objects(store) == before
        assert (store.revision, store.history("pods").trimmed) == ((1010, 1010) if restored else (10, 5))
        assert [record.ttl for record in (await storage.list("events")).records] == [60.0]
        await store.close()
    store = await opened(path)
    await write(store, "ns/0", "ns/new")
    assert len(store.snapshot("pods")) == 9
    await store.close()
    again = await opened(path)
    assert again.revision == store.revision
    await again.close()


async def test_file_can_be_read_while_in_use(killed: Path) -> None:
    store = await opened(killed)
    await write(store, "ns/20")
    with sqlite3.connect(f"file:{killed}?mode=ro", uri=True) as reader:
        assert reader.execute("SELECT count(*) FROM log").fetchone() == (21,)
        await write(store, "ns/21")
        assert reader.execute("SELECT max(revision) FROM log").fetchone() == (23,)
    reader.close()
    await store.close()


def direct(path: Path, sql: str) -> None:
    """Change the database without the store."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(sql)
    connection.close()
