"""The durable, revisioned store: writes become visible, in the order of their revisions, only once they are durable."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from apiserver_stub.store.backend import Backend
from apiserver_stub.store.clock import SteadyClock, Written
from apiserver_stub.store.compactor import Compactor
from apiserver_stub.store.errors import RevisionConflict, Unknown, Unusable
from apiserver_stub.store.expiry import Expiry, TTLIndex
from apiserver_stub.store.history import Retention, Window
from apiserver_stub.store.index import Collection, Snapshot
from apiserver_stub.store.pipeline import Limits, PendingWrite, Pipeline, turn, wake
from apiserver_stub.store.replay import Inspect, Replay
from apiserver_stub.store.row import Change, CorruptRow, Record, Row, as_of
from apiserver_stub.store.write import Write, stamped
from controller_manager.api.errors import ServiceUnavailable, Timeout
from controller_manager.base.log import Logger, get_logger

Subscriber = Callable[[Sequence[Change]], None]

_NOTHING = ("", "revision")  # resource and key of a row that is there to be written, and of no object
_EMPTY = b'{"kind":"","apiVersion":"","metadata":{"resourceVersion":"","name":"","uid":""}}'
_NAMED = 20  # corrupt rows that are named in the log


@dataclass(frozen=True, slots=True)
class StoreRules:
    """What the store is told about rows it does not look into: how to find out at the start that one cannot be read,
    and of which resources each row is deleted so many seconds after its last write (0: never).
    """

    inspect: Inspect = lambda _: ""
    lifetimes: Mapping[str, float] = field(default_factory=dict)


class Store:
    """Rows of bytes by resource and key, with optimistic concurrency and a bounded history.

    `revision` is the newest durable one, and so the newest visible one; an empty store is at 1. Use it between
    `start` and `close`.
    """

    def __init__(
        self,
        backend: Backend,
        retention: Retention | None = None,
        limits: Limits | None = None,
        log: Logger | None = None,
        rules: StoreRules | None = None,
    ) -> None:
        self.revision = 1
        self._backend = backend
        self.retention = retention or Retention()
        """How much history there is."""
        self._log = log or get_logger("store")
        self._pipeline = Pipeline(backend, self._settle, limits or Limits())
        self._failure = ""  # of the last group; empty once one could be written
        self._floor = 0
        self.failures = {"refused": 0, "unknown": 0}
        """How many writes failed, by what is known of them."""
        self._allotted = self.revision
        self._collections: dict[str, Collection] = {}
        self._pending: dict[tuple[str, str], PendingWrite] = {}
        self._subscribers: list[Subscriber] = []
        self._awaited: dict[asyncio.Future[None], int] = {}  # revisions that readers wait for
        self._upkeep = Compactor(backend, self._collections, self.retention, self.now, self._log)
        self._rules = rules or StoreRules()
        self._ages = TTLIndex(self._rules.lifetimes)
        self._expiry = Expiry(self._ages, self._expire, self.now)

    async def start(self) -> None:
        """Read the log. Raises `Unusable` with a sentence if that cannot be."""
        self._clock = SteadyClock()
        try:
            replay = await self._replay()
            self._floor = await self._backend.begin()
        except Unusable:
            await self._backend.close()
            raise
        self._collections.update(replay.collections(self._floor))
        self.revision = self._allotted = max(self.revision, replay.revision, self._floor)
        self._upkeep.start(replay.garbage)
        self._expiry.wake()
        self._tell_corrupt(replay.corrupt())

    async def close(self) -> None:
        """Refuse new writes, finish those submitted, and let go of the log."""
        self._expiry.close()
        await self._pipeline.drain()
        await self._upkeep.close()
        await self._backend.close()

    @property
    def trouble(self) -> str:
        """Why the last group could not be written, or what else is wrong with the log; empty if all is well."""
        return self._failure or self._backend.trouble

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """How many checkpoints succeeded, and how many failed."""
        return self._backend.checkpoint_counts

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with each group of changes as soon as it is visible; it must not raise."""
        self._subscribers.append(subscriber)

    def get(self, resource: str, key: str) -> Row | None:
        """The current row of `key`."""
        return self._collection(resource).get(key)

    def snapshot(self, resource: str) -> Snapshot:
        """All current rows of a resource."""
        return self._collection(resource).snapshot(self.revision)

    def snapshot_at(self, resource: str, revision: int) -> Snapshot:
        """All rows of a resource as they were at `revision`; raises `TooOld` or `TooNew`."""
        return self._collection(resource).snapshot_at(revision, self.revision)

    def count(self, resource: str) -> int:
        """How many rows of a resource there are."""
        found = self._collections.get(resource)
        return 0 if found is None else len(found)

    def history(self, resource: str) -> Window:
        """The recent changes of a resource."""
        return self._collection(resource).history

    def now(self) -> float:
        """The time, in seconds since the epoch, by which age is judged."""
        return self._clock.now()

    def is_pending(self, resource: str, key: str) -> bool:
        """Whether a write of the row is submitted and not yet settled."""
        return (resource, key) in self._pending

    async def reached(self, revision: int) -> None:
        """Wait until `revision` is visible."""
        if self.revision >= revision:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[waiter] = revision
        try:
            await waiter
        finally:
            del self._awaited[waiter]

    async def turn(self, resource: str, key: str, *others: tuple[str, str]) -> None:
        """Wait until a write of the row can be submitted at once: whoever then decides on one without awaiting
        anything decides on what it will find. No write of the `others` (resource and key) it depends on is pending
        then either.
        """
        rows = ((resource, key), *others)
        while True:
            if self._pipeline.full:
                await self._pipeline.room()
            elif earlier := next((write for row in rows if (write := self._pending.get(row))), None):
                await turn(earlier.others)
            else:
                return

    async def commit(self, write: Write, *also: Write) -> Row:
        """Make a write, and others of other rows with it, all or none; return its row once they are durable and
        visible.

        Raises `RevisionConflict` with the current row if one is not at the expected revision, but only after every
        earlier write of the rows is settled, so that trying again makes progress; `ServiceUnavailable` if the log
        cannot be written, `Timeout` if it failed in such a way that nobody knows whether the writes were made. A
        cancelled caller's writes may still happen.
        """
        await self.turn(write.resource, write.key, *((one.resource, one.key) for one in also))
        for one in (write, *also):
            current = self.get(one.resource, one.key)
            if (current.revision if current else 0) != one.expected or (one.deleted and current is None):
                raise RevisionConflict(current)
        return await self._submit(write, *also).row

    async def advance(self) -> None:
        """Reach another revision, if that can be, although nothing changes, as etcd does with each compaction."""
        row = self.get(*_NOTHING)
        with suppress(RevisionConflict, ServiceUnavailable):
            await self.commit(Write(*_NOTHING, row.revision if row else 0, _EMPTY))

    def _submit(self, *writes: Write) -> PendingWrite:
        pending = PendingWrite([self._record(write) for write in writes], asyncio.get_running_loop().create_future())
        for write in writes:
            self._pending[write.resource, write.key] = pending
        self._pipeline.submit(pending)
        return pending

    def _record(self, write: Write) -> Record:
        self._allotted = revision = self._allotted + 1
        data = stamped(write.data, revision)
        return Record(revision, write.resource, write.key, data, write.deleted, self.now())

    def _expire(self, resource: str, key: str, revision: int) -> None:
        row = self.get(resource, key)
        if self._pipeline.full or self.is_pending(resource, key) or row is None or row.revision != revision:
            return
        write = self._submit(Write(resource, key, revision, as_of(row.data, ""), deleted=True))
        write.row.cancel()  # nobody waits for it

    def _tell_corrupt(self, rows: Sequence[CorruptRow]) -> None:
        if rows:
            named = [f"{row.resource} {row.key}: {row.decode_error}" for row in rows[:_NAMED]]
            self._log.error("the store holds objects that cannot be read", objects=len(rows), first=named)

    async def _replay(self) -> Replay:
        replay = Replay(await self._backend.open(), self.retention, self._rules.inspect, self._ages)
        written = Written(self.now())
        async for records in self._backend.replay():
            replay.add(written.of(records))
        return replay

    def _settle(self, writes: Sequence[PendingWrite], failure: BaseException | None) -> None:
        for record in chain.from_iterable(write.records for write in writes):
            del self._pending[record.resource, record.key]
        try:
            if failure is None:
                self._publish(writes)
            else:
                self._refuse(writes, failure)
        finally:
            for write in writes:
                wake(write.others)

    def _publish(self, writes: Sequence[PendingWrite]) -> None:
        records = [record for write in writes for record in write.records]
        changes = [self._collection(record.resource).apply(record) for record in records]
        for record in records:
            self._ages.note(record)
        self.revision = changes[-1].revision
        self._failure = ""
        wake([waiter for waiter, revision in self._awaited.items() if revision <= self.revision])
        self._upkeep.after({change.row.resource for change in changes}, changes[-1].at)
        self._expiry.wake()
        try:
            for subscriber in self._subscribers:
                subscriber(changes)
        finally:
            at = 0
            for write in writes:
                if not write.row.done():
                    write.row.set_result(changes[at].row)
                at += len(write.records)

    def _refuse(self, writes: Sequence[PendingWrite], failure: BaseException) -> None:
        self._failure = str(failure)
        known = not isinstance(failure, Unknown)
        self.failures["refused" if known else "unknown"] += len(writes)
        self._log.error("a group of writes failed", writes=len(writes), known=known, error=failure)
        for write in writes:
            if not write.row.done():
                write.row.set_exception(
                    ServiceUnavailable(f"the store cannot write: {failure}")
                    if known
                    else Timeout(f"it is unknown whether the write was made: {failure}")
                )

    def _collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(self.retention, self._floor)
        return found
