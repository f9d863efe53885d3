"""A storage in this process: an append-only log, and in memory only the revision of each row."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from apiserver_stub.storage.backend import Backend
from apiserver_stub.storage.expiry import Expiry, SteadyClock, TTLIndex, Written
from apiserver_stub.storage.interface import (
    Compare,
    Deliver,
    Inspect,
    Listing,
    OnStart,
    OnWatchEnd,
    Record,
    RevisionConflict,
    TooNew,
    TooOld,
    Unknown,
    Write,
    as_of,
    stamped,
)
from apiserver_stub.storage.pipeline import GroupLimits, PendingTransaction, Pipeline
from apiserver_stub.storage.revisions import GarbageCollection, RevisionIndex
from apiserver_stub.storage.users import UsedByMany
from controller_manager.common.api.errors import ServiceUnavailable, Timeout
from controller_manager.common.base.log import Logger, get_logger

_PORTION = 1000  # records read at a time

# Waits until the reader can take more.
Room = Callable[[], Awaitable[None]]


class StorageRules(msgspec.Struct, frozen=True):
    """Rules for data that the storage does not interpret. `inspect` returns why an object in the log cannot be read
    (empty: it can). `ttls` are the lifetimes in seconds (0: unlimited) of rows written before writes had a `ttl`.
    """

    inspect: Inspect = lambda _: ""
    ttls: Mapping[str, float] = {}


class EmbeddedStorage(UsedByMany):
    """A `Storage` over the log of a `Backend`. Changes are delivered to watches before the writer is answered. After
    its last user closed it, it cannot be opened again; create another storage on the same log.

    `reached` is called with each revision before anything else can see it, also with the revision of the log at the
    start.
    """

    def __init__(
        self,
        backend: Backend,
        rules: StorageRules | None = None,
        limits: GroupLimits | None = None,
        log: Logger | None = None,
        reached: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self._reached = reached
        self.backend = backend
        """The backend that holds the log."""
        self._rules = rules or StorageRules()
        self._log = log or get_logger("store")
        self.failures: dict[str, int] = {"refused": 0, "unknown": 0}
        """Failed transactions, by outcome: refused or unknown."""
        self._failure = ""  # of the last group; cleared by the next successful one
        self._pipeline = Pipeline(self._admit, self._write, limits or GroupLimits())
        self._rows = RevisionIndex()
        self._revision = self._allotted = 1
        self._watchers: dict[Deliver, OnWatchEnd | None] = {}
        # The records read from the log, in order, for the first list and watch. Empty after new records, or if a reader
        # got them at the start.
        self._replayed: dict[int, Record] = {}
        self._on_start: OnStart = self._keep
        self._garbage = GarbageCollection(backend, self._rows, self._log)
        self._ages = TTLIndex()
        self._expiring = 0  # pending removals
        self._expiry = Expiry(self._ages, self._expire, self.now)

    @property
    def problem(self) -> str:
        """Return why the last group could not be written, or another problem of the log; empty if healthy."""
        return self._failure or self.backend.problem

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """Return the numbers of successful and failed checkpoints."""
        return self.backend.checkpoint_counts

    def now(self) -> float:
        """Return the current time in seconds since the epoch; ages are relative to it."""
        return self._clock.now()

    def read_for(self, on_start: OnStart) -> None:
        """Pass the log to `on_start` while it is read."""
        self._on_start = on_start

    async def _begin(self) -> None:
        """Read the log."""
        self._clock = SteadyClock()
        try:
            await self._replay()
        except BaseException:
            await self.backend.close()
            raise
        self._expiry.wake()

    async def _end(self) -> None:
        """Refuse new writes, finish pending ones, and close the log."""
        self._expiry.close()
        await self._pipeline.drain()
        watchers, self._watchers = self._watchers, {}
        for ended in filter(None, watchers.values()):
            ended("the storage is closed")
        await self._garbage.close()
        await self.backend.close()

    async def current_revision(self) -> int:
        """Return the newest durable revision."""
        return self._revision

    async def oldest_revision(self) -> int:
        """Return the revision up to which the log is compacted."""
        return self._rows.compacted

    async def get(self, resource: str, key: str) -> Record | None:
        """Return the current row of `key`."""
        revision = self._rows.current(resource, key)
        found = await self._fetch([revision]) if revision else []
        return found[0] if found else None

    async def is_stale(self, resource: str, key: str) -> bool:
        """Return False: bytes are stored unchanged."""
        return False

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        """Return all rows of a resource, or of all resources, at a revision."""
        at = self._revision if at is None else at
        if at > self._revision:
            raise TooNew(at, self._revision)
        self._check_history(at)
        found: list[Record] = []
        async for records in self._read(self._rows.at(at, resource)):
            found += [record for record in records if resource in (None, record.resource)]
        self._check_history(at)
        return Listing(sorted(found, key=_name), at)

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Make all writes or none, if the `compares` hold."""
        return self._pipeline.submit(writes, compares)

    async def watch(
        self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None, room: Room | None = None
    ) -> Callable[[], None]:
        """Deliver everything after a revision, then new changes, until the storage is closed. `room` is awaited between
        portions of old records.
        """
        while after < self._revision:
            through = self._revision
            self._check_history(after)
            async for records in self._read_after(after):
                self._check_history(after)
                after = records[-1].revision
                deliver(records, after)
                if room is not None:
                    await room()
            self._check_history(after)
            after = through
        self._replayed.clear()
        deliver((), after)
        self._watchers[deliver] = ended

        def stop() -> None:
            self._watchers.pop(deliver, None)

        return stop

    def compact(self, revision: int) -> "asyncio.Future[None]":
        """Remove records superseded up to a revision from the log."""
        self._replayed.clear()
        self._rows.compact(min(revision, self._revision))
        return self._garbage.collect()

    async def _replay(self) -> None:
        compacted = await self.backend.open()
        written, rows = Written(self.now()), self._rows
        newest = 1
        async for records in self.backend.replay(self._rules.inspect):
            found = [self._stamped(record) for record in written.of(records)]
            for record in found:
                rows.add(record)
                self._ages.note(record._replace(deleted=True) if record.decode_error else record)
                newest = record.revision
            self._on_start(found, compacted)
        compacted = max(compacted, await self.backend.begin())
        self._revision = self._allotted = max(newest, compacted)
        self._reached(self._revision)
        rows.compact(compacted)
        for revision in rows.garbage():
            self._replayed.pop(revision, None)
        self._garbage.collect()

    def _keep(self, records: Sequence[Record], _: int) -> None:
        self._replayed.update((record.revision, record) for record in records)

    def _as_read(self, record: Record) -> Record:
        """Return a record of the log as it is delivered."""
        found = self._stamped(record)
        return found if found.decode_error else found._replace(decode_error=self._rules.inspect(found.data))

    def _stamped(self, record: Record) -> Record:
        revision, resource, key, data, deleted, at, ttl, decode_error = record
        ttl = ttl or self._rules.ttls.get(resource, 0.0)
        return Record(revision, resource, key, stamped(data, revision), deleted, at, ttl, decode_error)

    async def _read_after(self, revision: int) -> AsyncIterator[Sequence[Record]]:
        if not self._replayed:
            async for records in self._read(self._rows.after(revision)):
                yield records
            return
        found = [record for record in self._replayed.values() if record.revision > revision]
        for at in range(0, len(found), _PORTION):
            yield found[at : at + _PORTION]

    async def _read(self, revisions: Sequence[int]) -> AsyncIterator[Sequence[Record]]:
        for at in range(0, len(revisions), _PORTION):
            if records := await self._fetch(revisions[at : at + _PORTION]):
                yield records

    async def _fetch(self, revisions: Sequence[int]) -> Sequence[Record]:
        if self._replayed:
            return [self._replayed[revision] for revision in revisions]
        return [self._as_read(record) for record in await self.backend.fetch(revisions)]

    def _check_history(self, revision: int) -> None:
        if revision < self._rows.compacted:
            raise TooOld(revision, self._rows.compacted)

    def _admit(self, transaction: PendingTransaction) -> bool:
        """Check the compares and assign the next revisions to a transaction."""
        conflict = self._conflict(transaction)
        if conflict is None:
            transaction.records = [self._record(write) for write in transaction.writes]
        elif not transaction.done.done():
            transaction.done.set_exception(conflict)
        return conflict is None

    def _conflict(self, transaction: PendingTransaction) -> RevisionConflict | None:
        for write in transaction.writes:
            current = self._rows.current(write.resource, write.key)
            if current != write.expected or (write.deleted and not current):
                return RevisionConflict(write.resource, write.key, current, self._revision)
        for row in transaction.compares:
            current = self._rows.current(row.resource, row.key)
            if current != row.expected:
                return RevisionConflict(row.resource, row.key, current, self._revision)
        return None

    def _record(self, write: Write) -> Record:
        self._allotted = revision = self._allotted + 1
        data = stamped(write.data, revision)
        return Record(revision, write.resource, write.key, data, write.deleted, self.now(), write.ttl)

    def _write(self, group: Sequence[PendingTransaction]) -> None:
        records = [record for transaction in group for record in transaction.records]
        writes = (write for transaction in group for write in transaction.writes)
        kept = [_unstamped(record, write.data) for record, write in zip(records, writes, strict=True)]
        self.backend.append(kept, partial(self._settle, group, records))

    def _settle(
        self, group: Sequence[PendingTransaction], records: Sequence[Record], failure: BaseException | None
    ) -> None:
        try:
            if failure is None:
                self._publish(group, records)
            else:
                self._refuse(group, failure)
        finally:
            self._pipeline.written()

    def _publish(self, group: Sequence[PendingTransaction], records: Sequence[Record]) -> None:
        self._failure = ""
        self._replayed.clear()
        for record in records:
            self._rows.add(record)
            self._ages.note(record)
        self._revision = records[-1].revision
        self._reached(self._revision)
        self._expiry.wake()
        for transaction in group:
            if not transaction.done.done():
                transaction.done.set_result(transaction.records[-1].revision)
        for deliver in tuple(self._watchers):  # before the writers get their results
            deliver(records, self._revision)

    def _refuse(self, group: Sequence[PendingTransaction], failure: BaseException) -> None:
        self._failure = str(failure)
        known = not isinstance(failure, Unknown)
        self.failures["refused" if known else "unknown"] += len(group)
        self._log.error("failed to write a group", writes=len(group), known=known, error=failure)
        for transaction in group:
            if not transaction.done.done():
                transaction.done.set_exception(
                    ServiceUnavailable(f"the store cannot write: {failure}")
                    if known
                    else Timeout(f"unknown whether the write was applied: {failure}")
                )

    def _expire(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Remove those rows that are unchanged, after pending writes have finished."""
        if self._expiring:
            return
        revisions = [revision for _, _, revision in rows]
        self._expiring = 1
        self.backend.fetch(revisions).add_done_callback(self._remove_expired)

    def _remove_expired(self, found: "asyncio.Future[Sequence[Record]]") -> None:
        records = found.result() if found.exception() is None else ()  # retried later
        self._expiring = len(records)
        for record in records:
            write = Write(record.resource, record.key, record.revision, as_of(record.data, ""), deleted=True)
            self.txn([write]).add_done_callback(self._expired)

    def _expired(self, done: "asyncio.Future[int]") -> None:
        done.exception()  # lost a race, or retried later
        self._expiring -= 1


def _unstamped(record: Record, data: bytes) -> Record:
    revision, resource, key, _, deleted, at, ttl, _ = record
    return Record(revision, resource, key, data, deleted, at, ttl)


def _name(record: Record) -> tuple[str, str]:
    return record.resource, record.key
