"""The tables of a store's database: the log, and what the store says of itself; made, checked, read and brought up."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

import msgspec

from apiserver_stub.storage.integrity import Tally, checksum
from apiserver_stub.storage.interface import Record, Unusable

APPLICATION = 0x6B737462  # marks our files (PRAGMA application_id)
SCHEMA = 3
UNSEALED = 1  # the schema whose records had no checksums
_IMMORTAL = 2  # the schema whose records had no lifetimes
PAGE_SIZE = 8192
THESE = "WHERE revision IN (SELECT value FROM json_each(?))"  # the condition of records by their revisions
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
    """The record that a store has of itself. `store` names it for good, `epoch` counts its write-ahead logs, `floor`
    tells up to which revision the log was compacted; earlier versions said it of each resource, in `marks`. `removed`
    are the records that compaction has removed. A snapshot says which records it has, `written`.
    """

    store: str
    epoch: int = 0
    floor: int = 0
    marks: Mapping[str, int] = {}
    removed: Tally = Tally()
    written: Tally | None = None

    @property
    def revision(self) -> int:
        """Up to where the log was compacted, the newest revision it speaks of."""
        return max(self.floor, *self.marks.values()) if self.marks else self.floor


_DECODER = msgspec.json.Decoder(StoreRecord)


def unfinished(path: Path) -> Path:
    """Return where the rows of an import into a store are as long as it is not finished."""
    return path.with_name(f"{path.name}.import")


def reader(path: Path) -> sqlite3.Connection:
    """Return a connection that reads, and leaves everything as it is, a write-ahead log it finds too."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=0, isolation_level=None)
    connection.text_factory = _text
    return connection


def is_store(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the database is a store's, False if it is empty. Raises `Unusable` if something else, or a later
    version of this program, has written it.
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
    """Return the schema of a database."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def create(connection: sqlite3.Connection, store: str) -> StoreRecord:
    """Make the tables of a new store of that name; what it says of itself."""
    state = StoreRecord(store)
    _run(connection, f"BEGIN; {_LOG} {_STATE} {_MARK}")
    write_state(connection, state)
    connection.execute("COMMIT")
    return state


def bring_up(connection: sqlite3.Connection, store: str) -> None:
    """Give the records of an earlier version checksums, all or none."""
    connection.create_function("checksum", 6, _checksum, deterministic=True)
    _run(connection, f"BEGIN; {_SEAL} {_STATE}")
    marks = dict(connection.execute("SELECT resource, revision FROM compacted"))
    write_state(connection, StoreRecord(store, marks=marks))
    _run(connection, f"DROP TABLE compacted; {_MARK} COMMIT;")


def records_query(connection: sqlite3.Connection, condition: str = "") -> str:
    """Return how to ask for records in the order of their revisions, each with its checksum at the end. The connection
    is to return texts as bytes: damage may make anything of them, and a text of what was none.
    """
    ttl = "ttl" if version(connection) >= SCHEMA else "0.0"
    columns = f"revision, resource, key, data, deleted, at, {ttl}, checksum"
    return f"SELECT {columns} FROM log {condition} ORDER BY revision"  # noqa: S608 - all written here


def add_lifetimes(connection: sqlite3.Connection) -> None:
    """Let the records of a store have lifetimes, if it is of a version in which they had none."""
    if version(connection) == _IMMORTAL:
        _run(connection, f"BEGIN; {_ADD_LIFETIMES} {_MARK} COMMIT;")


def read_state(connection: sqlite3.Connection) -> StoreRecord | None:
    """Return what the store says of itself, None if that is damaged."""
    row = connection.execute("SELECT CAST(data AS BLOB), checksum FROM state WHERE one = 1").fetchone()
    if row is None or crc32(row[0] or b"") != row[1]:
        return None
    return _DECODER.decode(row[0])


def write_state(connection: sqlite3.Connection, state: StoreRecord) -> None:
    """Let the store say something else of itself, in the transaction under way if there is one."""
    data = msgspec.json.encode(state)
    connection.execute(_WRITE, (data, crc32(data)))


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Statements one by one, within the transaction under way."""
    for statement in filter(None, map(str.strip, script.split(";"))):
        connection.execute(statement)


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _checksum(revision: int, resource: str, key: str, data: bytes, deleted: int, at: float) -> int:
    return checksum(Record(revision, resource, key, data, bool(deleted), at))
