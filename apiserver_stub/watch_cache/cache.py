"""The watch cache: a copy of the storage that answers every read, with a bounded history, fed by its watch alone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from apiserver_stub.storage.expiry import SteadyClock
from apiserver_stub.storage.interface import Compare, Record, RevisionConflict, Storage, TooOld, Write, stamped
from apiserver_stub.storage.pipeline import turn, wake
from apiserver_stub.watch_cache.collection import Collection, Retention, Snapshot, Window
from apiserver_stub.watch_cache.compactor import Compactor
from apiserver_stub.watch_cache.replay import Replay
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row
from controller_manager.api.errors import ServiceUnavailable
from controller_manager.base.log import Logger, get_logger

Subscriber = Callable[[Sequence[Change]], None]

_NOTHING = ("", "revision")  # resource and key of a row that is there to be written, and of no object
_EMPTY = b'{"kind":"","apiVersion":"","metadata":{"resourceVersion":"","name":"","uid":""}}'
_NAMED = 20  # corrupt rows that are named in the log
_ATTEMPTS = 8  # to read a storage whose history others compact meanwhile


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The bounds on transactions under way: their number, and their bytes together; a single one may be larger."""

    transactions: int = 4096
    size: int = 64 << 20


class PendingCommit:
    """Writes on their way, and who waits for them: the writer, who gets the `row` of the last, and others who want to
    write the same rows. `done` is what the storage answers.
    """

    __slots__ = ("done", "others", "row", "settled", "size", "writes")

    def __init__(self, writes: Sequence[Write], done: "asyncio.Future[int]", row: "asyncio.Future[Row]") -> None:
        self.writes = writes
        self.done = done
        self.row = row
        self.size = 0
        for write in writes:
            self.size += len(write.data)
        self.others: list[asyncio.Future[None]] = []
        self.settled = False

    def made(self, row: Row) -> bool:
        """Return whether this is known to have made that row, its last."""
        last, done = self.writes[-1], self.done
        if not done.done() or done.exception() is not None or done.result() != row.revision:
            return False
        return (last.key, last.resource) == (row.key, row.resource)


class WatchCache:
    """Rows of bytes by resource and key with a bounded history, as the storage's watch has told them.

    `revision` is the newest visible one. Use it between `start` and `close`. Rows of the resources in `ttls` are
    removed so many seconds after their last write.
    """

    def __init__(
        self,
        storage: Storage,
        retention: Retention | None = None,
        limits: WriteLimits | None = None,
        log: Logger | None = None,
        ttls: Mapping[str, float] | None = None,
    ) -> None:
        self.revision = 1
        self.storage = storage
        """The storage that this is a copy of."""
        self.retention = retention or Retention()
        """The bounds of the history that is kept."""
        self._limits = limits or WriteLimits()
        self._log = log or get_logger("store")
        self._ttls = {resource: seconds for resource, seconds in (ttls or {}).items() if seconds > 0}
        self._floor = 0
        self._collections: dict[str, Collection] = {}
        self._pending: dict[tuple[str, str], PendingCommit] = {}
        self._count = self._size = 0  # of the transactions under way
        self._ready: list[asyncio.Future[None]] = []  # of those who wait for room
        self._closed = False
        self._subscribers: list[Subscriber] = []
        self._awaited: list[tuple[int, Callable[[], None]]] = []  # what is to happen when a revision is visible
        self._upkeep = Compactor(storage, self._collections, self.retention, self.now)
        self._replay: Replay | None = None
        self._stop_watch: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Read the storage, history included, and follow it. Raises `Unusable` with a sentence if that cannot be."""
        await self.storage.open()
        self._clock = SteadyClock()
        try:
            replay = await self._read()
        except BaseException:
            await self.storage.close()
            raise
        self._replay = None
        self._collections.update(replay.collections())
        self._upkeep.start(replay.changes())
        self._tell_corrupt(replay.corrupt())

    async def close(self) -> None:
        """Refuse new writes, finish those submitted, and let go of the storage."""
        self._closed = True
        wake(self._ready)
        while self._count:
            await turn(self._ready)
        self._upkeep.close()
        self._stop_watch()
        await self.storage.close()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with each group of changes as soon as it is visible; it must not raise."""
        self._subscribers.append(subscriber)

    def get(self, resource: str, key: str) -> Row | None:
        """Return the current row of `key`."""
        return self._collection(resource).get(key)

    def snapshot(self, resource: str) -> Snapshot:
        """Return all current rows of a resource."""
        return self._collection(resource).snapshot(self.revision)

    def snapshot_at(self, resource: str, revision: int) -> Snapshot:
        """Return all rows of a resource as they were at `revision`; raises `TooOld` or `TooNew`."""
        return self._collection(resource).snapshot_at(revision, self.revision)

    def count(self, resource: str) -> int:
        """Return how many rows of a resource there are."""
        found = self._collections.get(resource)
        return 0 if found is None else len(found)

    def history(self, resource: str) -> Window:
        """Return the recent changes of a resource."""
        return self._collection(resource).history

    def now(self) -> float:
        """Return the time, in seconds since the epoch, by which age is judged."""
        return self._clock.now()

    def is_pending(self, resource: str, key: str) -> bool:
        """Return whether a write of the row by this server is submitted and not yet settled."""
        return (resource, key) in self._pending

    async def reached(self, revision: int) -> None:
        """Wait until `revision` is visible."""
        if self.revision >= revision:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = revision, partial(_finish, waiter)
        self._awaited.append(entry)
        try:
            await waiter
        finally:
            with suppress(ValueError):
                self._awaited.remove(entry)

    async def wait_for_latest(self) -> None:
        """Wait until everything is visible that any server has acknowledged before."""
        await self.reached(await self.storage.current_revision())

    async def turn(self, resource: str, key: str, *others: tuple[str, str]) -> None:
        """Wait until a write of the row can be submitted at once: whoever then decides on one without awaiting
        anything does not lose against another writer of this server, nor against one of the `others` (resource and
        key) it depends on. Those of other servers are still to be reckoned with. Raises `ServiceUnavailable` once
        closed.
        """
        rows = ((resource, key), *others)
        while True:
            if self._closed:
                raise ServiceUnavailable("the store is closed")
            if self._count >= self._limits.transactions or self._size >= self._limits.size:
                await turn(self._ready)
                continue
            for row in rows:
                if (earlier := self._pending.get(row)) is not None:
                    await turn(earlier.others)
                    break
            else:
                return

    async def commit(self, write: Write, *also: Write | Compare) -> Row:
        """Make a write, and others of other rows with it, all or none and only if what is compared holds; return its
        row once they are durable and visible here.

        Raises `RevisionConflict` if one is not at the expected revision, but only when what made it so is visible, so
        that trying again makes progress; `ServiceUnavailable` if the writes could not be made, `Timeout` if nobody
        knows whether they were. A cancelled caller's writes may still happen.
        """
        writes = [one for one in also if isinstance(one, Write)]
        await self.turn(write.resource, write.key, *[(one.resource, one.key) for one in writes])
        writes.append(write)
        return await self._submit(writes, [one for one in also if isinstance(one, Compare)]).row

    async def advance(self) -> None:
        """Reach another revision, if that can be, although nothing changes, as etcd does with each compaction."""
        row = self.get(*_NOTHING)
        with suppress(RevisionConflict, ServiceUnavailable):
            await self.commit(Write(*_NOTHING, row.revision if row else 0, _EMPTY))

    async def _read(self) -> Replay:
        for _ in range(_ATTEMPTS):
            with suppress(TooOld):  # another server has it compacted meanwhile
                listing = await self.storage.list(at=await self.storage.oldest_revision())
                self._replay = replay = Replay(listing, self.retention)
                self._stop_watch = await self.storage.watch(listing.revision, self._deliver)
                self._floor = listing.revision
                return replay
        raise ServiceUnavailable("the history of the store is too short to read it")

    def _submit(self, writes: Sequence[Write], compares: Sequence[Compare]) -> PendingCommit:
        """Hand in the writes; that of the last row is whose row is answered."""
        if self._ttls:
            writes = [self._with_ttl(write) if write.resource in self._ttls else write for write in writes]
        done = self.storage.txn(writes, compares)
        pending = PendingCommit(writes, done, asyncio.get_running_loop().create_future())
        for write in writes:
            self._pending[write.resource, write.key] = pending
        self._count += 1
        self._size += pending.size
        done.add_done_callback(partial(self._answered, pending))
        return pending

    def _with_ttl(self, write: Write) -> Write:
        return write if write.deleted else msgspec.structs.replace(write, ttl=self._ttls[write.resource])

    def _answered(self, pending: PendingCommit, done: "asyncio.Future[int]") -> None:
        """The storage has answered; the writer goes on when what it was told of is visible here."""
        if pending.settled:
            return
        failure = done.exception()
        needed = failure.revision if isinstance(failure, RevisionConflict) else 0 if failure else done.result()
        if self.revision >= needed:
            self._settle(pending)
        else:
            self._awaited.append((needed, partial(self._settle, pending)))

    def _settle(self, pending: PendingCommit, row: Row | None = None) -> None:
        """Let the writer go on, once: whether the storage's answer or its watch was faster."""
        if pending.settled:
            return
        pending.settled = True
        for write in pending.writes:
            del self._pending[write.resource, write.key]
        self._count -= 1
        self._size -= pending.size
        if not pending.row.done():
            if failure := pending.done.exception():
                pending.row.set_exception(failure)
            else:
                pending.row.set_result(row or self._row(pending.writes[-1], pending.done.result()))
        if pending.others:
            wake(pending.others)
        if self._ready:
            wake(self._ready)

    def _row(self, write: Write, revision: int) -> Row:
        row = self.get(write.resource, write.key)
        if row is not None and row.revision == revision:
            return row
        return Row(write.resource, write.key, revision, stamped(write.data, revision))

    def _deliver(self, records: Sequence[Record], revision: int) -> None:
        """Take in what the storage's watch tells."""
        if self._replay is not None:
            self._replay.add(records)
            self.revision = max(self.revision, revision)
        elif records:
            self._publish([self._collection(record.resource).apply(record) for record in records], revision)
        else:
            self._reach(revision)

    def _publish(self, changes: Sequence[Change], revision: int) -> None:
        self.revision = revision
        self._upkeep.after(changes)
        try:
            for subscriber in self._subscribers:
                subscriber(changes)
        finally:
            self._answer(changes)
            self._reach(revision)

    def _answer(self, changes: Sequence[Change]) -> None:
        """Let writers go on whose writes these are, as far as the storage has said so: then they need not wait until
        they hear of it.
        """
        for change in changes:
            row = change.row
            pending = self._pending.get((row.resource, row.key))
            if pending is not None and pending.made(row):
                self._settle(pending, row)

    def _reach(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        if self._awaited:
            due = [then for needed, then in self._awaited if needed <= self.revision]
            self._awaited = [entry for entry in self._awaited if entry[0] > self.revision]
            for then in due:
                then()

    def _tell_corrupt(self, rows: Sequence[CorruptRow]) -> None:
        if rows:
            named = [f"{row.resource} {row.key}: {row.decode_error}" for row in rows[:_NAMED]]
            self._log.error("the store holds objects that cannot be read", objects=len(rows), first=named)

    def _collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(self.retention, self._floor)
        return found


def _finish(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
