"""The log in one SQLite file: a single writer thread, one statement and one sync per group, no index to maintain."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

import msgspec

from apiserver_stub.store.backend import Done
from apiserver_stub.store.refusals import Unusable
from apiserver_stub.store.row import Record

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_APPLICATION = 0x6B737462  # marks our files (PRAGMA application_id)
_SCHEMA = 1
_PORTION = 1000
_GROUPS = 256  # statements kept prepared: one per size of a group
_CREATE = f"""
CREATE TABLE log (
    revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    deleted INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE compacted (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_SCHEMA};
"""
_MARK = "INSERT INTO compacted VALUES (?, ?) ON CONFLICT DO UPDATE SET revision = excluded.revision"
_REMOVE = "DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))"
_REPLAY = "SELECT revision, resource, key, CAST(data AS BLOB), deleted, at FROM log ORDER BY revision"


class SqliteBackend:
    """A log in the file `path`, which one process at a time may use.

    Everything that touches the file runs on one thread, in the order it was asked for. A group is written by one
    statement: each statement gives up the interpreter once, and a busy loop makes every return to it wait.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def open(self) -> Mapping[str, int]:
        """Create or check the file and take it for this process."""
        return await self._run(self._explained, self._open)

    async def replay(self) -> AsyncIterator[Sequence[Record]]:
        """The log, read in portions."""
        cursor = await self._run(self._explained, partial(self._opened.execute, _REPLAY))
        while rows := await self._run(self._explained, partial(cursor.fetchmany, _PORTION)):
            yield [Record(rev, name, key, data, bool(gone), at) for rev, name, key, data, gone, at in rows]

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Write `records` in one transaction, synced to the disk."""
        self._run(self._insert, records).add_done_callback(partial(_tell, done))

    def compact(self, marks: Mapping[str, int], revisions: Sequence[int], done: Done) -> None:
        """Remove records in one transaction."""
        self._run(self._remove, marks, revisions).add_done_callback(partial(_tell, done))

    async def close(self) -> None:
        """Fold the write-ahead log into the file and close it, once."""
        if not self._closed:
            self._closed = True
            await self._run(self._close)
            self._thread.shutdown(wait=False)

    def _run(self, work: Callable[[Unpack[Ts]], T], *args: *Ts) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    @property
    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Unusable(f"the store {self._path} is not open")
        return self._connection

    # From here on everything runs on the writer thread.

    def _explained(self, work: Callable[[], T]) -> T:
        """What `work` returns, or one sentence about what is wrong with the file."""
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Unusable(f"the store {self._path} is in use by another process") from error
            raise Unusable(f"the store {self._path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Unusable(f"the store {self._path} is damaged or no store at all: {error}") from error
        except OSError as error:
            raise Unusable(f"the store {self._path} cannot be created: {error.strerror}") from error

    def _open(self) -> Mapping[str, int]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, cached_statements=_GROUPS)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return dict(connection.execute("SELECT resource, revision FROM compacted"))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        run = connection.execute
        run("PRAGMA page_size = 8192")
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("BEGIN EXCLUSIVE").execute("COMMIT")  # takes the lock for good
        self._check(connection)
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA wal_autocheckpoint = 1000")
        run("PRAGMA journal_size_limit = 33554432")
        if not run("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            connection.executescript(f"BEGIN; {_CREATE} COMMIT;")

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that something else, or a later version of this program, has written."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        if empty and not application:
            return
        if application != _APPLICATION:
            raise Unusable(f"{self._path} is a database of another program")
        if schema != _SCHEMA:
            raise Unusable(f"the store {self._path} has schema {schema}, this program knows only schema {_SCHEMA}")

    def _insert(self, records: Sequence[Record]) -> None:
        self._opened.execute(_insertion(len(records)), tuple(chain.from_iterable(records)))

    def _remove(self, marks: Mapping[str, int], revisions: Sequence[int]) -> None:
        connection = self._opened
        connection.execute("BEGIN")
        try:
            connection.executemany(_MARK, marks.items())
            connection.execute(_REMOVE, (msgspec.json.encode(revisions).decode(),))
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _tell(done: Done, work: "asyncio.Future[None]") -> None:
    done(work.exception())


@lru_cache(maxsize=_GROUPS)
def _insertion(count: int) -> str:
    return f"INSERT INTO log VALUES {','.join(['(?,?,?,?,?,?)'] * count)}"  # noqa: S608 - only question marks
