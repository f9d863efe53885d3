"""The embedded storage as the source of an export (while a server runs) and as the target of an import."""

import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from math import ceil
from pathlib import Path

from apiserver_stub.storage import schema
from apiserver_stub.storage.audit import ADD, Audit
from apiserver_stub.storage.exports.file import ExportedRow, Header, Sound
from apiserver_stub.storage.integrity import Acknowledged, checksum
from apiserver_stub.storage.interface import Record, TooOld, Unusable
from apiserver_stub.storage.revisions import RevisionIndex
from apiserver_stub.storage.schema import StoreRecord
from apiserver_stub.storage.snapshot import absent, explained, read_acknowledged, require_all
from apiserver_stub.storage.witness import Witness, boot_id, sync, witness_path
from controller_manager.common.base.clock import wall_seconds

_PORTION = 1000
_NAMED = 10  # damaged objects listed in a message


class SqliteSource:
    """The rows of the store `path` or of a snapshot. The whole log is verified before the first row is returned."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._audit = Audit(path)
        self._index = RevisionIndex()
        self._revision = 0

    async def open(self, at: int | None = None) -> int:
        """Read and verify the log."""
        return self._read(at)

    async def rows(self, behind: Sound | None = None) -> AsyncIterator[Sequence[ExportedRow]]:
        """Yield the rows in the order of their last write."""
        current, now = self._current(), wall_seconds()
        if behind is not None:
            self._expect(behind, current)
        for at in range(behind.records if behind is not None else 0, len(current), _PORTION):
            with explained(self._path):
                records = self._audit.fetch(current[at : at + _PORTION])
            yield [_row(record, now) for record in records]

    async def close(self) -> None:
        """Close the store."""
        self._audit.close()

    def _expect(self, there: Sound, current: Sequence[int]) -> None:
        with explained(self._path):
            records = self._audit.fetch(current[there.records - 1 : there.records])
        if [(one.resource, one.key, one.data) for one in records] != [there.last[:3]]:
            raise Unusable(f"{self._path} does not hold what was exported before")

    def _read(self, at: int | None) -> int:
        acknowledged = read_acknowledged(self._path) if witness_path(self._path).exists() else None
        damaged: dict[int, str] = {}
        audit = self._audit
        audit.seen.acknowledged = acknowledged
        with explained(self._path):
            audit.open()
            if audit.outdated:
                raise Unusable(f"the store {self._path} is of an earlier version; start the server once to bring it up")
            if at is not None and audit.state is not None and audit.state.revision > at:
                raise TooOld(at, audit.state.revision)
            while records := audit.read(_PORTION):
                for record in records:
                    if at is not None and record.revision > at:
                        break
                    self._index.add(record)
                    if record.decode_error:
                        damaged[record.revision] = f"{record.resource} {record.key}"
                self._index.compact(records[-1].revision)
                while self._index.take(_PORTION):
                    pass
        require_all(audit, self._path)
        if audit.state is None or (acknowledged is None and audit.state.written is None):
            raise Unusable(f"the witness of {self._path} is missing, so its content cannot be verified")
        self._revision = audit.seen.revision if at is None else at
        if self._revision > audit.seen.revision:
            raise Unusable(f"{self._path} does not hold what was exported before")
        if names := [damaged[revision] for revision in self._current() if revision in damaged]:
            raise Unusable(f"{self._path} holds {len(names)} damaged objects: {', '.join(names[:_NAMED])}")
        return self._revision

    def _current(self) -> list[int]:
        return self._index.at(self._revision)


class SqliteTarget:
    """A new store at `path`. Rows are written to a file beside it, which is renamed at the end. Revisions continue
    `jump` after that of the export.
    """

    def __init__(self, path: Path, jump: int) -> None:
        self._path = path
        self._part = schema.unfinished(path)
        self._jump = jump
        self._witness: Witness | None = None
        self._connection: sqlite3.Connection | None = None
        self._base = self._there = 0

    async def open(self, header: Header) -> int:
        """Create the file, or read the progress of an interrupted import."""
        return self._open(header)

    async def add(self, rows: Sequence[ExportedRow]) -> None:
        """Write rows, all or none."""
        assert self._connection is not None
        now, behind = wall_seconds(), self._base + self._there + 1
        records = [
            Record(revision, row.resource, row.key, row.data, False, now, float(row.ttl))
            for revision, row in enumerate(rows, behind)
        ]
        with explained(self._part):
            self._connection.execute("BEGIN")
            self._connection.executemany(ADD, [(*record[:6], checksum(record), record.ttl) for record in records])
            self._connection.execute("COMMIT")
        self._there += len(rows)

    async def finish(self) -> int:
        """Verify the written file and rename it to the store."""
        return self._finish()

    async def close(self) -> None:
        """Release the folder; the written rows stay."""
        if self._connection is not None:
            self._connection.close()
        if self._witness is not None:
            self._witness.close()

    def _open(self, header: Header) -> int:
        for file in (self._path, self._path.with_name(f"{self._path.name}-wal")):
            absent(file, "already exists; import into a folder without a store")
        if not self._part.exists():
            absent(witness_path(self._path), "already exists; import into a folder without a store")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._part, os.O_CREAT | os.O_RDWR, 0o600))
        self._witness = Witness(self._path)  # reserves the folder
        with explained(self._part):
            self._connection = connection = sqlite3.connect(self._part, isolation_level=None)
            connection.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
            if not schema.is_store(connection, self._part):
                schema.create(connection, header.id)
            state = schema.read_state(connection)
            self._there, first = connection.execute("SELECT count(*), min(revision) FROM log").fetchone()
        if state is None or state.store != header.id:
            raise Unusable(f"{self._part} is an unfinished import of another export; delete it to start again")
        self._base = header.revision + self._jump if first is None else first - 1
        return self._there

    def _finish(self) -> int:
        assert self._connection is not None
        assert self._witness is not None
        revision = self._base + self._there
        audit = Audit(self._part)
        with explained(self._part):
            audit.open()
            while audit.read(_PORTION):
                pass
            audit.close()
            if audit.state is None or audit.damaged or audit.written.records != self._there:
                raise Unusable(f"{self._part} does not contain what was written to it; delete it to start again")
            state = StoreRecord(audit.state.store, epoch=1, floor=revision)
            schema.write_state(self._connection, state)
            self._connection.close()
        store = bytes.fromhex(state.store)
        self._witness.note(Acknowledged(store, 1, revision, audit.written, closed=True, boot=boot_id()))
        self._witness.sync()
        self._part.rename(self._path)
        sync(self._path.parent)
        return revision


def _row(record: Record, now: float) -> ExportedRow:
    left = ceil(record.at + record.ttl - now) if record.ttl else 0
    ttl = max(1, min(left, ceil(record.ttl))) if record.ttl else 0
    return ExportedRow(record.resource, record.key, record.data, ttl)
