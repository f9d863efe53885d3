"""A storage in memory with free snapshots, for clusters within one process."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, Self

import msgspec

from apiserver_stub.storage.expiry import Expiry, SteadyClock
from apiserver_stub.storage.interface import (
    Compare,
    Deliver,
    Listing,
    OnWatchEnd,
    Record,
    RevisionConflict,
    StoredObject,
    TooNew,
    TooOld,
    Write,
    as_of,
    stamped,
)
from apiserver_stub.storage.ordered import OrderedMap, View
from apiserver_stub.storage.pipeline import GroupLimits, PendingTransaction, Pipeline
from apiserver_stub.storage.users import UsedByMany


class KeptRecord(StoredObject, gc=False, eq=False):
    """A record whose object's pieces are shared with its readers."""

    deleted: bool
    at: float
    ttl: float
    decode_error: str

    @property
    def record(self) -> Record:
        """Return the record as it is delivered."""
        about = self.deleted, self.at, self.ttl, self.decode_error
        return Record(self.revision, self.resource, self.key, self.data, *about)


class MemorySnapshot(msgspec.Struct, frozen=True):
    """An immutable snapshot of all rows at `revision`, and of rows with a lifetime by expiration; without history."""

    revision: int
    rows: Mapping[str, View[KeptRecord]]
    deadlines: View[KeptRecord]


class _Written(NamedTuple):
    """A record, and the row that it replaced."""

    kept: KeptRecord
    before: KeptRecord | None


class MemoryRows:
    """The rows, and the writes since the last compaction. Pure. `revision` is the newest one."""

    def __init__(self) -> None:
        self.revision = self.compacted = 1
        self._rows: dict[str, OrderedMap[KeptRecord]] = {}
        self._history: list[_Written] = []
        self._deadlines: OrderedMap[KeptRecord] = OrderedMap()  # by expiration

    @classmethod
    def of(cls, snapshot: MemorySnapshot, revision: int = 0) -> Self:
        """Return rows that start from a snapshot, at its revision or a later one; history begins there. Unchanged data
        is shared.
        """
        made = cls()
        made.revision = made.compacted = max(revision, snapshot.revision)
        made._rows = {resource: OrderedMap.copy(rows) for resource, rows in snapshot.rows.items()}
        made._deadlines = OrderedMap.copy(snapshot.deadlines)
        return made

    def snapshot(self) -> MemorySnapshot:
        """Return a snapshot of the current rows without copying them."""
        rows = {resource: rows.snapshot() for resource, rows in self._rows.items()}
        return MemorySnapshot(self.revision, MappingProxyType(rows), self._deadlines.snapshot())

    def copy(self) -> Self:
        """Return an independent copy of rows and history: the state that a crash at this moment would leave."""
        made = type(self)()
        made.adopt(self)
        return made

    def adopt(self, other: "MemoryRows") -> None:
        """Take over the rows and history of `other`. No storage may be open on these rows yet."""
        same = self.of(other.snapshot())
        self.revision, self._rows, self._deadlines = same.revision, same._rows, same._deadlines
        self.compacted, self._history = other.compacted, other._history.copy()

    def get(self, resource: str, key: str) -> KeptRecord | None:
        """Return the current row of a key."""
        rows = self._rows.get(resource)
        return None if rows is None else rows.get(key)

    def share(self, obj: StoredObject) -> None:
        """Store an object, which may be superseded already, in the same pieces."""
        kept = self.get(obj.resource, obj.key)
        if kept is None or kept.revision != obj.revision:
            at = self._position(obj.revision) - 1
            kept = self._history[at].kept if at >= 0 else None
        if kept is not None and kept.revision == obj.revision:
            kept.hold(obj.pieces)

    def add(self, record: Record) -> None:
        """Add a record. Records come in order of revision."""
        rows = self._rows.get(record.resource)
        if rows is None:
            rows = self._rows[record.resource] = OrderedMap()
        before = rows.get(record.key)
        if before is not None and before.ttl:
            self._deadlines.remove(_deadline(before))
        revision, resource, key, data, deleted, at, ttl, decode_error = record
        kept = KeptRecord(resource, key, revision, data, deleted, at, ttl, decode_error)
        if deleted:
            rows.remove(key)
        else:
            rows.put(key, kept)
            if ttl:
                self._deadlines.put(_deadline(kept), kept)
        self._history.append(_Written(kept, before))
        self.revision = revision

    def at(self, revision: int, resource: str | None) -> list[Record]:
        """Return the rows of a resource (None: of all) at a revision, in order. Raises `TooOld` or `TooNew`."""
        if revision > self.revision:
            raise TooNew(revision, self.revision)
        self._check(revision)
        found = {one: rows for one, rows in self._rows.items() if resource in (None, one)}
        if revision < self.revision:
            found = {one: OrderedMap.copy(rows.snapshot()) for one, rows in found.items()}
            for kept, before in reversed(self._history[self._position(revision) :]):
                if kept.resource not in found:
                    continue
                if before is None:
                    found[kept.resource].remove(kept.key)
                else:
                    found[kept.resource].put(kept.key, before)
        return [kept.record for one in sorted(found) for kept in found[one].items()]

    def after(self, revision: int) -> list[Record]:
        """Return the records after a revision. Raises `TooOld`."""
        self._check(revision)
        return [written.kept.record for written in self._history[self._position(revision) :]]

    def compact(self, revision: int) -> None:
        """Drop what was superseded up to a revision."""
        self.compacted = max(self.compacted, min(revision, self.revision))
        del self._history[: self._position(self.compacted)]

    def due(self, now: float, limit: int) -> Iterator[tuple[str, str, int]]:
        """Yield the resource, key and revision of at most `limit` expired rows."""
        for kept in islice(self._deadlines.items(), limit):
            if kept.at + kept.ttl > now:
                break
            yield kept.resource, kept.key, kept.revision

    def next(self) -> float | None:
        """Return the time at which the next row expires; None if there is none."""
        return next((kept.at + kept.ttl for kept in self._deadlines.items()), None)

    def _position(self, revision: int) -> int:
        return bisect_right(self._history, revision, key=_revision)

    def _check(self, revision: int) -> None:
        if revision < self.compacted:
            raise TooOld(revision, self.compacted)


class MemoryStorage(UsedByMany):
    """A `Storage` of `rows`. Changes are delivered before the writer is answered, as in the embedded storage."""

    problem = ""
    checkpoint_counts = (0, 0)
    failures: Mapping[str, int] = MappingProxyType({"refused": 0, "unknown": 0})

    def __init__(self, rows: MemoryRows | None = None) -> None:
        super().__init__()
        self.rows = rows or MemoryRows()
        """The rows; another storage may use them after this one is closed."""
        self._pipeline = Pipeline(self._admit, self._write, GroupLimits())
        self._watchers: dict[Deliver, OnWatchEnd | None] = {}
        self._expiry = Expiry(self.rows, self._expire, self._now)

    async def current_revision(self) -> int:
        """Return the newest revision."""
        return self.rows.revision

    async def oldest_revision(self) -> int:
        """Return the revision up to which history is compacted."""
        return self.rows.compacted

    async def get(self, resource: str, key: str) -> Record | None:
        """Return the current row of `key`."""
        found = self.rows.get(resource, key)
        return None if found is None else found.record

    async def is_stale(self, resource: str, key: str) -> bool:
        """Return False: bytes are stored unchanged."""
        return False

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """Return all rows of a resource, or of all resources, at a revision."""
        at = self.rows.revision if at is None else at
        return Listing(self.rows.at(at, resource), at)

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Make all writes or none, if the `compares` hold."""
        return self._pipeline.submit(writes, compares)

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        """Deliver everything after a revision, then new changes, until the storage is closed."""
        deliver(self.rows.after(after), max(after, self.rows.revision))
        self._watchers[deliver] = ended

        def stop() -> None:
            self._watchers.pop(deliver, None)

        return stop

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """Drop history up to a revision."""
        self.rows.compact(revision)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def share(self, obj: StoredObject) -> None:
        """Store an object in the same pieces as its reader."""
        self.rows.share(obj)

    async def _begin(self) -> None:
        self._clock = SteadyClock()
        self._allotted = self.rows.revision
        self._expiry.wake()

    async def _end(self) -> None:
        self._expiry.close()
        await self._pipeline.drain()
        watchers, self._watchers = self._watchers, {}
        for ended in filter(None, watchers.values()):
            ended("the storage is closed")

    def _now(self) -> float:
        return self._clock.now()

    def _admit(self, transaction: PendingTransaction) -> bool:
        """Check the compares and assign the next revisions to a transaction."""
        expectations: tuple[Write | Compare, ...] = (*transaction.writes, *transaction.compares)
        for row in expectations:
            found = self.rows.get(row.resource, row.key)
            current = 0 if found is None else found.revision
            if current != row.expected or (not current and isinstance(row, Write) and row.deleted):
                if not transaction.done.done():
                    transaction.done.set_exception(RevisionConflict(row.resource, row.key, current, self.rows.revision))
                return False
        transaction.records = [self._record(write) for write in transaction.writes]
        return True

    def _record(self, write: Write) -> Record:
        self._allotted = revision = self._allotted + 1
        data = stamped(write.data, revision)
        return Record(revision, write.resource, write.key, data, write.deleted, self._now(), write.ttl)

    def _write(self, group: Sequence[PendingTransaction]) -> None:
        records = [record for transaction in group for record in transaction.records]
        for record in records:
            self.rows.add(record)
        self._expiry.wake()
        for transaction in group:
            if not transaction.done.done():
                transaction.done.set_result(transaction.records[-1].revision)
        for deliver in tuple(self._watchers):  # before the writers get their results
            deliver(records, self.rows.revision)
        self._pipeline.written()

    def _expire(self, overdue: Iterable[tuple[str, str, int]]) -> None:
        for resource, key, revision in overdue:
            found = self.rows.get(resource, key)
            if found is not None and found.revision == revision:
                write = Write(resource, key, revision, as_of(found.data, ""), deleted=True)
                self.txn([write]).add_done_callback(_seen)


def _revision(written: _Written) -> int:
    return written.kept.revision


def _deadline(kept: KeptRecord) -> str:
    """Return the sort key of a row by expiration."""
    return f"{kept.at + kept.ttl:020.6f} {kept.resource} {kept.key}"


def _seen(done: "asyncio.Future[int]") -> None:
    """Mark the result as retrieved: the removal lost a race or is retried."""
    if not done.cancelled():
        done.exception()
