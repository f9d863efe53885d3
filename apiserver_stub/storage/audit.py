"""Read a store's log and record the facts of its integrity. A damaged store can be rebuilt from its valid records."""

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from apiserver_stub.storage import schema
from apiserver_stub.storage.checker import Checker, Columns, Portion, checker_of, portion_of
from apiserver_stub.storage.integrity import Damage, StartupFacts, Tally, damage
from apiserver_stub.storage.interface import Inspect, Record, uninspected
from apiserver_stub.storage.schema import StoreRecord
from controller_manager.common.base.random import random_source

_FLAW = "the bytes are not those that were written"
PORTION = 1000
"""Records read at a time."""
ADD = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?)"


def judged(row: Columns) -> tuple[Record, Damage]:
    """Return the record of a row's columns, marked if it is damaged."""
    record, found = _record(row), damage(*row)
    return (record if found is Damage.NONE else record._replace(decode_error=_FLAW)), found


def _record(row: Columns) -> Record:
    revision, resource, key, data, deleted, at, ttl, _ = row
    name = key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
    value = data if isinstance(data, bytes) else str(data).encode()
    return Record(revision, _resource(resource), name, value, bool(deleted), at, ttl)


@lru_cache(maxsize=4096)
def _resource(stored: Any) -> str:
    """Return the name of a resource; all its records share one string."""
    return stored.decode("utf-8", "surrogateescape") if isinstance(stored, bytes) else str(stored)


class Audit:
    """One pass over the database `path`, on one thread: `open`, optionally `begin`, then `read` until it returns
    nothing, then `close`.

    `seen` has the facts found, `state` the store's own record, `written` the tally of valid records, `damaged` the
    revisions of invalid ones. With `salvage`, an unreadable part ends the pass and is not an error.
    """

    def __init__(self, path: Path, salvage: bool = False) -> None:
        self._path = path
        self._salvage = salvage
        self._connection: sqlite3.Connection | None = None
        self._records: sqlite3.Cursor | None = None
        self._inspect: Inspect = uninspected
        self._checker: Checker | None = None
        self.seen = StartupFacts()
        self.state: StoreRecord | None = None
        self.outdated = False
        """Whether the database has a version without checksums."""
        self.written = Tally()
        self.damaged: list[int] = []
        self.sums: list[int] = []
        """The stored checksums of the records read last."""

    def open(self) -> None:
        """Check the files. Raises `Unusable` if this is not a store, `sqlite3.Error` if it cannot be read."""
        self.close()
        seen = self.seen
        log = self._path.with_name(f"{self._path.name}-wal")
        seen.orphan = log.exists() and log.stat().st_size > 0
        if not self._path.exists() or not self._path.stat().st_size:
            return
        self._connection = schema.reader(self._path)
        if not schema.is_store(self._connection, self._path):
            self.close()
            return
        self.outdated = schema.version(self._connection) == schema.UNSEALED
        if self.outdated:
            self.close()
            return
        seen.exists = True
        self._connection.execute("BEGIN")  # a consistent snapshot, even if a server keeps writing
        self.state = schema.read_state(self._connection)
        seen.stateless = self.state is None
        if self.state is not None:
            seen.store, seen.epoch = bytes.fromhex(self.state.store), self.state.epoch
            seen.removed, seen.revision = self.state.removed, self.state.revision
        self._connection.text_factory = bytes
        self._records = self._connection.execute(schema.records_query(self._connection))

    def begin(self, inspect: Inspect) -> None:
        """Set the function that inspects objects. For a large database another process helps."""
        self._inspect = inspect
        if self._records is not None:
            self._checker = checker_of(self._path, inspect)

    def read(self, count: int) -> list[Record]:
        """Return about `count` more valid records in order of revision; none at the end."""
        found: list[Record] = []
        self.sums = []
        while self._records is not None and not found:
            rows = self._fetch(self._records, count)
            if not rows:
                break
            found = self._trusted(rows) if self._is_vouched_for(rows) else self._judged(rows)
        if found:
            self._note(found)
        return found

    def portions(self, count: int, inspect: Inspect) -> Iterator[tuple[Portion, bool]]:
        """Yield the portions that `read` would return, each with whether all its records are valid and pass
        `inspect`.
        """
        while self._records is not None and (rows := self._fetch(self._records, count)):
            yield portion_of(rows), all(damage(*row) is Damage.NONE and not inspect(row[3]) for row in rows)

    def _note(self, records: list[Record]) -> None:
        """Add valid records, in order of revision."""
        seen, sums = self.seen, self.sums
        newest = records[-1].revision
        seen.revision = max(seen.revision, newest)
        self.written = self.written.plus(sums)
        if seen.acknowledged is not None and seen.acknowledged.revision < newest:
            sums = sums[: bisect_right(records, seen.acknowledged.revision, key=attrgetter("revision"))]
        seen.present = seen.present.plus(sums)

    def _fetch(self, records: sqlite3.Cursor, count: int) -> list[Columns]:
        if not self._salvage:
            return records.fetchmany(count)
        rows: list[Columns] = []
        try:
            for row in records:
                rows.append(row)
                if len(rows) == count:
                    break
        except sqlite3.DatabaseError as error:
            self.seen.damaged.append(f"what follows in the file ({error})")
            self._records = None
        return rows

    def fetch(self, revisions: Sequence[int]) -> list[Record]:
        """Return the records of these revisions, in order, from the same snapshot."""
        if self._connection is None:
            return []
        query = schema.records_query(self._connection, schema.THESE)
        rows = self._connection.execute(query, (msgspec.json.encode(revisions).decode(),))
        return [judged(row)[0] for row in rows]

    def close(self) -> None:
        """Close the database."""
        if self._checker is not None:
            self._checker.close()
            self._checker = None
        if self._connection is not None:
            self._connection.close()
            self._connection = self._records = None

    def _is_vouched_for(self, rows: list[Columns]) -> bool:
        return self._checker is not None and self._checker.vouches(portion_of(rows))

    def _trusted(self, rows: list[Columns]) -> list[Record]:
        self.sums = [row[-1] for row in rows]
        return [_record(row) for row in rows]

    def _judged(self, rows: list[Columns]) -> list[Record]:
        records: list[Record] = []
        for row in rows:
            record, found = judged(row)
            if found is Damage.RECORD:
                self.damaged.append(record.revision)
                self.seen.damaged.append(f"revision {record.revision} ({record.resource!r} {record.key!r})")
                continue
            self.sums.append(row[-1])
            why = record.decode_error or self._inspect(record.data)
            records.append(record._replace(decode_error=why) if why else record)
        return records


def rebuild(path: Path, state: StoreRecord) -> StoreRecord:
    """Replace `path` by a valid database made from its valid records. The old one and its write-ahead log are renamed
    to `path`-damaged. The new store record is derived from `state`.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    store = state.store or random_source().uid().replace("-", "")
    state = msgspec.structs.replace(state, store=store, epoch=max(state.epoch, 1))
    audit = Audit(path, salvage=True)
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        made.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
        schema.create(made, store)
        made.execute("BEGIN")
        schema.write_state(made, state)
        audit.open()
        while records := audit.read(PORTION):
            sums = zip(records, audit.sums, strict=True)
            made.executemany(ADD, [(*record[:6], sealed, record.ttl) for record, sealed in sums])
        made.execute("COMMIT")
    audit.close()
    part.chmod(0o600)
    for end in ("", "-wal"):
        old = path.with_name(path.name + end)
        if old.exists():
            old.rename(path.with_name(f"{path.name}-damaged{end}"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    part.rename(path)
    return state
