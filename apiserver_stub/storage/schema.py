"""The tables of a store's database: the log, and the store's own record. Create, check, read and upgrade them."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

import msgspec

from apiserver_stub.storage.integrity import Tally, checksum
from apiserver_stub.storage.interface import Record, Unusable

APPLICATION = 0x6B737462  # identifies our files (PRAGMA application_id)
SCHEMA = 3
UNSEALED = 1  # the schema without checksums
_IMMORTAL = 2  # the schema without lifetimes
PAGE_SIZE = 8192
THESE = "WHERE revision IN (SELECT value FROM json_each(?))"  # selects records by revision
_LOG = """
CREATE TABLE log (
    revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    deleted INTEGER NOT NULL, at REAL NOT NULL, checksum INTEGER NOT NULL, ttl REAL NOT NULL DEFAULT 0
);
"""
_ADD_LIFETIMES = "ALTER TABLE log ADD COLUMN ttl REAL NOT NULL DEFAULT 0;"
_STATE = "CREATE TABLE state (one INTEGER PRIMARY KEY, data BLOB NOT NULL, checksum INTEGER NOT NULL);"
_MARK = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};"
_WRITE = "INSERT INTO state VALUES (1, ?1, ?2) ON CONFLICT DO UPDATE SET data = ?1, checksum = ?2"
_SEAL = """
CREATE TABLE sealed (
    revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    deleted INTEGER NOT NULL, at REAL NOT NULL, checksum INTEGER NOT NULL, ttl REAL NOT NULL DEFAULT 0
);
INSERT INTO sealed SELECT *, checksum(revision, resource, key, CAST(data AS BLOB), deleted, at), 0 FROM log;
DROP TABLE log;
ALTER TABLE sealed RENAME TO log;
"""


class StoreRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The store's own record. `store` is its permanent name, `epoch` counts its write-ahead logs, `floor` is the
    compacted revision; older versions recorded it per resource in `marks`. `removed` is the tally of compacted records.
    A snapshot has the tally of its records in `written`.
    """

    store: str
    epoch: int = 0
    floor: int = 0
    marks: Mapping[str, int] = {}
    removed: Tally = Tally()
    written: Tally | None = None

    @property
    def revision(self) -> int:
        """The compacted revision, the newest revision in this record."""
        return max(self.floor, *self.marks.values()) if self.marks else self.floor


_DECODER = msgspec.json.Decoder(StoreRecord)


def unfinished(path: Path) -> Path:
    """Return the path of an unfinished import into a store."""
    return path.with_name(f"{path.name}.import")


def reader(path: Path) -> sqlite3.Connection:
    """Return a read-only connection that leaves all files unchanged, also a write-ahead log."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=0, isolation_level=None)
    connection.text_factory = _text
    return connection


def is_store(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the database is a store; False if it is empty. Raises `Unusable` if another program or a newer
    version wrote it.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    if empty and not application:
        return False
    if application != APPLICATION:
        raise Unusable(f"{path} is a database of another program")
    schema = version(connection)
    if schema not in (UNSEALED, _IMMORTAL, SCHEMA):
        raise Unusable(f"the store {path} has schema {schema}, this program knows only schema {SCHEMA}")
    return True


def version(connection: sqlite3.Connection) -> int:
    """Return the schema version of a database."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def create(connection: sqlite3.Connection, store: str) -> StoreRecord:
    """Create the tables of a new store with that name; return its record."""
    state = StoreRecord(store)
    _run(connection, f"BEGIN; {_LOG} {_STATE} {_MARK}")
    write_state(connection, state)
    connection.execute("COMMIT")
    return state


def bring_up(connection: sqlite3.Connection, store: str) -> None:
    """Add checksums to the records of an older version, in one transaction."""
    connection.create_function("checksum", 6, _checksum, deterministic=True)
    _run(connection, f"BEGIN; {_SEAL} {_STATE}")
    marks = dict(connection.execute("SELECT resource, revision FROM compacted"))
    write_state(connection, StoreRecord(store, marks=marks))
    _run(connection, f"DROP TABLE compacted; {_MARK} COMMIT;")


def records_query(connection: sqlite3.Connection, condition: str = "") -> str:
    """Return the query for records in order of revision, with the checksum last. The connection must return text as
    bytes, since damaged data may be invalid text.
    """
    ttl = "ttl" if version(connection) >= SCHEMA else "0.0"
    columns = f"revision, resource, key, data, deleted, at, {ttl}, checksum"
    return f"SELECT {columns} FROM log {condition} ORDER BY revision"  # noqa: S608 - all written here


def add_lifetimes(connection: sqlite3.Connection) -> None:
    """Add lifetimes to the log of an older store, if it has none."""
    if version(connection) == _IMMORTAL:
        _run(connection, f"BEGIN; {_ADD_LIFETIMES} {_MARK} COMMIT;")


def read_state(connection: sqlite3.Connection) -> StoreRecord | None:
    """Return the store's own record; None if it is damaged."""
    row = connection.execute("SELECT CAST(data AS BLOB), checksum FROM state WHERE one = 1").fetchone()
    if row is None or crc32(row[0] or b"") != row[1]:
        return None
    return _DECODER.decode(row[0])


def write_state(connection: sqlite3.Connection, state: StoreRecord) -> None:
    """Write the store's own record, in the current transaction if there is one."""
    data = msgspec.json.encode(state)
    connection.execute(_WRITE, (data, crc32(data)))


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run statements one by one within the current transaction."""
    for statement in filter(None, map(str.strip, script.split(";"))):
        connection.execute(statement)


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _checksum(revision: int, resource: str, key: str, data: bytes, deleted: int, at: float) -> int:
    return checksum(Record(revision, resource, key, data, bool(deleted), at))
