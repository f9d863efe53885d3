"""The log in one SQLite file: a single writer thread, one statement and one sync per group, and no index to
maintain.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

import msgspec

from apiserver_stub.storage import schema
from apiserver_stub.storage.audit import PORTION, Audit, judged, rebuild
from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.checkpoints import Checkpoints, Folded
from apiserver_stub.storage.integrity import JUMP, Acknowledged, Tally, checksum, in_doubt, losses
from apiserver_stub.storage.interface import Inspect, Record, Unknown, Unusable, uninspected
from apiserver_stub.storage.schema import StoreRecord
from apiserver_stub.storage.witness import Witness, boot_id, sync
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.random import random_source

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_GROUPS = 256  # prepared statements, one per group size
_SYNC = 1.0  # seconds after which the witness is synced to the disk
_REMOVE = f"DELETE FROM log {schema.THESE}"  # noqa: S608 - all written here
_SUMS = "count(*), total(checksum >> 31), total(checksum & 0x7fffffff), total(length(data))"
_REMOVED = f"SELECT {_SUMS} FROM log {schema.THESE}"  # noqa: S608
_UNDO = "DELETE FROM log WHERE revision > ?"
# Failures that leave nothing of a transaction in the log: its last part was never written.
_CLEAN = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_READONLY,
})  # fmt: skip


class SqliteBackend:
    """A log in the file `path`. One server at a time may use it; others may read meanwhile.

    All access to the file runs on one thread, in order. A group is written by one statement: each statement releases
    the GIL once, and a busy loop delays every return.
    """

    def __init__(self, path: Path, accept_data_loss: bool = False, log: Logger | None = None) -> None:
        self._path = path
        self._accept_data_loss = accept_data_loss
        self._log = log or get_logger("store")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._witness: Witness | None = None
        self._acknowledged = Acknowledged(b"")
        self._state = StoreRecord("")
        self._audit = Audit(path, accept_data_loss)
        self._doubt = False  # whether the log may hold records that were not acknowledged
        self._sync: asyncio.TimerHandle | None = None
        self._begun = self._closed = False
        self.checkpoints = Checkpoints(self._fold, self._log)
        """The checkpoints of the write-ahead log."""

    @property
    def problem(self) -> str:
        """Return why checkpoints fail; empty if they succeed."""
        return self.checkpoints.problem

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """Return the numbers of successful and failed checkpoints."""
        return self.checkpoints.succeeded, self.checkpoints.failed

    async def open(self) -> int:
        """Create or check the file, and lock it for this process."""
        return await self._run(self._explained, self._open)

    async def replay(self, inspect: Inspect = uninspected) -> AsyncIterator[Sequence[Record]]:
        """Yield the log in portions; nothing is changed yet."""
        await self._run(self._audit.begin, inspect)
        while records := await self._run(self._explained, partial(self._audit.read, PORTION)):
            yield records

    async def begin(self) -> int:
        """Check what was read, and start writing."""
        await self._run(self._explained, self._begin)
        return self._state.floor

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Write `records` in one transaction, synced to the disk."""
        sums = [checksum(record) for record in records]
        rows = ((*record[:6], one, record.ttl) for record, one in zip(records, sums, strict=True))
        values = tuple(chain.from_iterable(rows))
        written = partial(self._written, records, sums, done)
        self._run(self._insert, values, len(records)).add_done_callback(written)

    def fetch(self, revisions: Sequence[int]) -> "asyncio.Future[Sequence[Record]]":
        """Return records by their revisions."""
        return self._run(self._select, revisions)

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        """Remove records in one transaction."""
        self._run(self._remove, compacted, revisions).add_done_callback(partial(self._removed, done))

    async def close(self) -> None:
        """Checkpoint the write-ahead log and close the file, once."""
        if not self._closed:
            self._closed = True
            self.checkpoints.close()
            if self._sync is not None:
                self._sync.cancel()
            await self._run(self._close)
            self._thread.shutdown(wait=False)

    def _run(self, work: Callable[[Unpack[Ts]], T], *args: *Ts) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _written(
        self, records: Sequence[Record], sums: Sequence[int], done: Done, work: "asyncio.Future[None]"
    ) -> None:
        """Update the witness before the writers of a group are answered."""
        failure = work.exception()
        if failure is None:
            failure = self._acknowledge(records[-1].revision, sums)
        done(failure)
        if failure is not None or self._closed:
            return
        if self._sync is None:
            self._sync = asyncio.get_running_loop().call_later(_SYNC, self._sync_soon)
        self.checkpoints.grown(sum(len(record.data) for record in records))

    def _removed(self, done: Done, work: "asyncio.Future[int]") -> None:
        failure = work.exception()
        done(failure)
        if failure is None and not self._closed:
            self.checkpoints.grown(work.result())

    def _acknowledge(self, revision: int, sums: Sequence[int]) -> BaseException | None:
        acknowledged = self._acknowledged._replace(revision=revision, written=self._acknowledged.written.plus(sums))
        try:
            self._beside.note(acknowledged)
        except OSError as error:
            self._doubt = True
            return Unknown(f"failed to write the witness of the store: {error.strerror}")
        self._acknowledged = acknowledged
        return None

    def _fold(self) -> "asyncio.Future[Folded]":
        """Checkpoint the write-ahead log. If another log has begun, the witness records it."""
        work = self._run(self._checkpoint)
        work.add_done_callback(self._folded)
        return work

    def _folded(self, work: "asyncio.Future[Folded]") -> None:
        if work.exception() is None and work.result().epoch and not self._closed:
            self._acknowledged = self._acknowledged._replace(epoch=work.result().epoch)
            self._beside.note(self._acknowledged)
            self._sync_soon()

    def _sync_soon(self) -> None:
        if self._sync is not None:
            self._sync.cancel()
            self._sync = None
        if not self._closed:
            self._run(self._beside.sync).add_done_callback(self._synced)

    def _synced(self, work: "asyncio.Future[None]") -> None:
        if failure := work.exception():
            self._log.error("failed to sync the witness of the store", error=failure)

    @property
    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Unusable(f"the store {self._path} is not open")
        return self._connection

    @property
    def _beside(self) -> Witness:
        assert self._witness is not None
        return self._witness

    # Everything below runs on the writer thread.

    def _explained(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. Errors become `Unusable` with a message for the operator."""
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Unusable(f"the store {self._path} is in use by another process") from error
            raise Unusable(f"the store {self._path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            way = "restore a snapshot, or use --accept-data-loss and, if that does not help, move it away"
            raise Unusable(f"the store {self._path} is damaged or not a store: {error}; {way}") from error
        except OSError as error:
            raise Unusable(f"the store {self._path} cannot be created: {error.strerror}") from error

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.is_dir():
            raise IsADirectoryError(None, "Is a directory")
        if (part := schema.unfinished(self._path)).exists():
            raise Unusable(f"the import into {self._path} is not finished; import again, or delete {part}")
        self._witness = Witness(self._path)
        seen = self._audit.seen
        seen.acknowledged, seen.unreadable = self._witness.read()
        seen.boot = boot_id()
        self._audit.open()
        if self._audit.outdated:
            self._bring_up()
            self._audit.open()
        self._state = self._audit.state or StoreRecord("")
        return self._state.revision

    def _bring_up(self) -> None:
        self._log.info("adding checksums to the records of an earlier version", path=str(self._path))
        connection = self._connect()
        try:
            schema.bring_up(connection, _new_name())
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()

    def _begin(self) -> None:
        self._audit.close()
        seen, found = self._audit.seen, losses(self._audit.seen)
        if found and not self._accept_data_loss:
            raise Unusable(
                f"the store {self._path} has lost acknowledged writes: {'; '.join(found)}; restore a snapshot with "
                "'apiserver-stub restore', or continue without them with --accept-data-loss"
            )
        if found:
            self._log.error("continuing without acknowledged writes", path=str(self._path), lost=found)
            if seen.exists:
                self._state = rebuild(self._path, self._state)
        acknowledged = seen.acknowledged or Acknowledged(b"")
        newest = max(seen.revision, acknowledged.revision)
        jumps = bool(found) or in_doubt(seen)
        if jumps:
            self._log.warning("skipping revisions, since some may be lost", newest=newest, jump=JUMP)
        self._take(newest + JUMP if jumps else self._state.floor)
        self._begun = True

    def _take(self, floor: int) -> None:
        """Start writing; history begins after `floor`."""
        seen = self._audit.seen
        self._connection = self._create()
        store = self._state.store or _new_name()
        written = self._audit.written.joined(self._state.removed)
        self._acknowledged = Acknowledged(
            bytes.fromhex(store), self._state.epoch, seen.revision, written, boot=seen.boot
        )
        if floor == self._state.floor:
            # A missing witness is written first. After a loss, the existing one stays valid until the epoch begins.
            self._write_witness()
        self._state = msgspec.structs.replace(self._state, store=store, floor=floor, written=None)
        newest = max(floor, seen.revision)
        self._begin_epoch(max(self._state.epoch, seen.acknowledged.epoch if seen.acknowledged else 0) + 1)
        self._acknowledged = self._acknowledged._replace(epoch=self._state.epoch, revision=newest)
        self._write_witness()
        if epoch := self._checkpoint().epoch:
            self._acknowledged = self._acknowledged._replace(epoch=epoch)
            self._write_witness()

    def _write_witness(self) -> None:
        self._beside.note(self._acknowledged)
        self._beside.sync()
        sync(self._path.parent)

    def _create(self) -> sqlite3.Connection:
        """Return the database; create it if it does not exist."""
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = self._connect()
        if not schema.is_store(connection, self._path):
            self._state = schema.create(connection, _new_name())
        schema.add_lifetimes(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=1, isolation_level=None, cached_statements=_GROUPS)
        connection.text_factory = bytes
        run = connection.execute
        run(f"PRAGMA page_size = {schema.PAGE_SIZE}")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA wal_autocheckpoint = 0")  # SQLite would not report failed automatic checkpoints
        run("PRAGMA journal_size_limit = 33554432")
        return connection

    def _insert(self, values: tuple[object, ...], count: int) -> None:
        if self._doubt:
            self._undo()
        try:
            self._opened.execute(_insertion(count), values)
        except sqlite3.Error as error:
            if error.sqlite_errorcode not in _CLEAN:
                self._take_back(error)
            raise

    def _take_back(self, failure: sqlite3.Error) -> None:
        """Make sure that a failed group is not in the log. Raises `Unknown` if this fails too."""
        self._doubt = True
        try:
            self._undo()
        except sqlite3.Error as error:
            self._log.error("failed to roll back a write", error=error)
            raise Unknown(str(failure)) from failure

    def _undo(self) -> None:
        """Remove what was not acknowledged. A failed transaction may still be complete in the write-ahead log, where a
        restart would find it, until another one overwrites it.
        """
        with self._transaction() as connection:
            connection.execute(_UNDO, (self._acknowledged.revision,))
            self._write_state(epoch=self._state.epoch + 1)
        self._doubt = False

    def _select(self, revisions: Sequence[int]) -> Sequence[Record]:
        some = msgspec.json.encode(revisions).decode()
        rows = self._opened.execute(schema.records_query(self._opened, schema.THESE), (some,)).fetchall()
        return [judged(row)[0] for row in rows]

    def _remove(self, compacted: int, revisions: Sequence[int]) -> int:
        """Remove records; return how many bytes they had."""
        self._beside.sync()  # the tally of the removed records must be durable first
        some = msgspec.json.encode(revisions).decode()
        with self._transaction() as connection:
            count, high, low, size = connection.execute(_REMOVED, (some,)).fetchone()
            connection.execute(_REMOVE, (some,))
            gone = Tally(count, (int(high) << 31) + int(low))
            self._write_state(floor=compacted, marks={}, removed=self._state.removed.joined(gone))
        return int(size)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection, before = self._opened, self._state
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self._state = before
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _write_state(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        schema.write_state(self._opened, self._state)

    def _begin_epoch(self, epoch: int) -> None:
        """Record in the database, inside the new write-ahead log, that it is a new one."""
        with self._transaction():
            self._write_state(epoch=epoch)

    def _checkpoint(self) -> Folded:
        """Checkpoint the write-ahead log. If it is complete, the next write starts a new log."""
        _, pages, folded = self._opened.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if folded < pages:
            return Folded(pages, folded, 0)
        self._begin_epoch(self._state.epoch + 1)
        return Folded(pages, folded, self._state.epoch)

    def _close(self) -> None:
        self._audit.close()
        if self._connection is not None:
            if self._begun:
                self._end(self._connection)
            self._connection.close()
            self._connection = None
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def _end(self, connection: sqlite3.Connection) -> None:
        try:
            if self._doubt:
                self._undo()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._beside.note(self._acknowledged._replace(closed=True))
            self._beside.sync()
        except (sqlite3.Error, OSError) as error:
            self._log.error("failed to close the store", error=error)


def _new_name() -> str:
    return random_source().uid().replace("-", "")


@lru_cache(maxsize=_GROUPS)
def _insertion(count: int) -> str:
    return f"INSERT INTO log VALUES {','.join(['(?,?,?,?,?,?,?,?)'] * count)}"  # noqa: S608 - only question marks
