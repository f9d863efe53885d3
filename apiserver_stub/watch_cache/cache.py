"""The watch cache: a copy of the storage that answers every read, with a bounded history, fed by its watch alone."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from apiserver_stub.storage.expiry import SteadyClock
from apiserver_stub.storage.interface import (
    Listing,
    ReadAtStart,
    Record,
    RevisionConflict,
    SharesPieces,
    Storage,
    Write,
)
from apiserver_stub.storage.ordered import OrderedMap
from apiserver_stub.watch_cache.collection import Collection, Retention, Snapshot, Window
from apiserver_stub.watch_cache.commits import Commits, WriteLimits
from apiserver_stub.watch_cache.compactor import Compactor
from apiserver_stub.watch_cache.field_index import FieldIndex
from apiserver_stub.watch_cache.joint_commits import Also
from apiserver_stub.watch_cache.reflector import Reflector, Replay
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row
from apiserver_stub.watch_cache.shared_bytes import RowPacker
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.common.base.runtime import return_freed_memory

Subscriber = Callable[[Sequence[Change]], None]

_NOTHING = ("", "revision")  # resource and key of a row that is there to be written, and of no object
_EMPTY = b'{"kind":"","apiVersion":"","metadata":{"resourceVersion":"","name":"","uid":""}}'
_NAMED = 20  # corrupt rows that are named in the log
_PACKED = 20  # rows that are packed before others may run; each takes some ten microseconds
_STEP = 20_000  # rows after which memory is given back


class WatchCache:
    """Rows of bytes by resource and key with a bounded history, as the storage's watch has told them.

    `revision` is the newest visible one. Use it between `start` and `close`. Rows of the resources in `ttls` are
    removed so many seconds after their last write. Rows are held in pieces that they share, but for those written
    lately.
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
        self._log = log or get_logger("store")
        self._commits = Commits(storage, self, limits or WriteLimits(), ttls or {})
        self._reflector = Reflector(storage, self._load, self._deliver, lambda: self.revision, self._log)
        self._floor = 0
        self._collections: dict[str, Collection] = {}
        self._subscribers: list[Subscriber] = []
        self._awaited: dict[asyncio.Future[None], int] = {}  # the revisions that reads wait for
        self._upkeep = Compactor(storage, self._collections, self.retention, self.now)
        self._replay: Replay | None = None
        self._packer = RowPacker(storage.share) if isinstance(storage, SharesPieces) else RowPacker()
        self._adopted: Mapping[str, Snapshot] | None = None
        self._started = False

    async def start(self) -> None:
        """Read the storage, history included, and follow it. Raises `Unusable` with a sentence if that cannot be."""
        if self._adopted is None and isinstance(self.storage, ReadAtStart):
            self.storage.read_for(self._tell_at_start)
        await self.storage.open()
        self._clock = SteadyClock()
        try:
            if self._adopted is not None:
                await self._resume(self._adopted)
            elif self._replay is not None:
                await self._go_on_from(self._replay)
            else:
                await self._reflector.start()
        except BaseException:
            await self.storage.close()
            raise
        replay, self._replay, self._started = self._replay, None, True
        if replay is not None:
            self._collections.update(replay.collections())
            self._upkeep.start(replay.changes())
            self._tell_corrupt(replay.corrupt())

    def _tell_at_start(self, records: Sequence[Record], floor: int) -> None:
        """Take in what the storage reads when it is opened."""
        if self._replay is None:
            self._replay = Replay(self.retention, self._packer)
        self._replay.begin(floor)
        self._replay.add(records)

    async def _go_on_from(self, replay: Replay) -> None:
        """Follow the storage from where it was told at its start."""
        self._floor, self.revision = await self.storage.oldest_revision(), await self.storage.current_revision()
        replay.begin(self._floor)
        await self._reflector.start(after=self.revision)

    def adopt(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Have `start` begin with the `snapshots` of another cache instead of reading the storage, which holds the same
        rows and no history.
        """
        self._adopted = snapshots

    async def _resume(self, snapshots: Mapping[str, Snapshot]) -> None:
        self.revision = self._floor = await self.storage.current_revision()
        self._collections.update(
            (resource, Collection(self.retention, self._floor, OrderedMap.copy(snapshot.view)))
            for resource, snapshot in snapshots.items()
        )
        self._started = True
        await self._reflector.start(after=self.revision)

    async def pack(self) -> None:
        """Pack the rows that were not packed as they were read at the start, and give back the memory that it took; of
        a few rows there is none.
        """
        packer = self._packer
        while packer.excess:
            for _ in range(_STEP // _PACKED):
                await give_way()
                packer.pack(_PACKED)
            await asyncio.to_thread(return_freed_memory)
        if packer.has_many:
            await asyncio.to_thread(return_freed_memory)

    async def close(self) -> None:
        """Refuse new writes, finish those submitted, and let go of the storage."""
        await self._commits.close()
        self._upkeep.close()
        await self._reflector.close()
        await self.storage.close()

    @property
    def trouble(self) -> str:
        """Return why writes fail, or what is read here may be old; empty if all is well."""
        return self.storage.trouble or self._reflector.trouble

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with each group of changes as soon as it is visible; it must not raise."""
        self._subscribers.append(subscriber)

    def get(self, resource: str, key: str) -> Row | None:
        """Return the current row of `key`."""
        found = self._collections.get(resource)
        return None if found is None else found.get(key)

    def snapshot(self, resource: str) -> Snapshot:
        """Return all current rows of a resource."""
        return self._collection(resource).snapshot(self.revision)

    def snapshots(self) -> Mapping[str, Snapshot]:
        """Return all current rows by resource, for ever; no row is looked at."""
        return {resource: found.snapshot(self.revision) for resource, found in self._collections.items()}

    def snapshot_at(self, resource: str, revision: int) -> Snapshot:
        """Return all rows of a resource as they were at `revision`; raises `TooOld` or `TooNew`."""
        return self._collection(resource).snapshot_at(revision, self.revision)

    def index(self, resource: str, path: str) -> FieldIndex | None:
        """Return the index of the current rows of a resource by a field, if there is to be one; see `Collection`."""
        found = self._collections.get(resource)
        return None if found is None else found.index(path)

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
        return self._commits.is_pending(resource, key)

    async def reached(self, revision: int) -> None:
        """Wait until `revision` is visible."""
        if self.revision >= revision:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[waiter] = revision
        try:
            await waiter
        finally:
            self._awaited.pop(waiter, None)

    async def wait_for_latest(self) -> None:
        """Wait until everything is visible that any server has acknowledged before."""
        await self.reached(await self.storage.current_revision())

    def turn(self, *rows: tuple[str, str]) -> Coroutine[Any, Any, None] | None:
        """Return what to wait for until a write of these rows (resource and key) can be submitted at once; None if it
        can be: whoever then decides on one without awaiting anything does not lose against another writer of this
        server. Those of other servers are still to be reckoned with. Raises `ServiceUnavailable` once closed.
        """
        return self._commits.turn(rows)

    def commit(self, write: Write, *also: Also) -> Awaitable[Row]:
        """Make a write, and others of other rows with it, all or none and only if what is compared holds; return its
        row once they are durable and visible here. Rows that are amended are as they are then.

        Raises `RevisionConflict` if a row is not at the expected revision, but only when what made it so is visible, so
        that trying again makes progress; `ServiceUnavailable` if the writes could not be made, `Timeout` if nobody
        knows whether they were. A cancelled caller's writes may still happen.

        Where the storage's watch lags, what was written is answered after three seconds although it is not visible yet,
        and a conflict whose cause is not is a `TooNew`.
        """
        return self._commits.commit(write, also)

    async def advance(self) -> None:
        """Reach another revision, if that can be, although nothing changes, as etcd does with each compaction."""
        row = self.get(*_NOTHING)
        with suppress(RevisionConflict, ServiceUnavailable):
            await self.commit(Write(*_NOTHING, row.revision if row else 0, _EMPTY))

    def _load(self, listing: Listing) -> None:
        """Take in what a listing shows: to begin with, or because what happened behind `revision` cannot be told any
        more. Raises `ServiceUnavailable` for a listing that is older than what is visible.
        """
        if not self._started:
            self._floor, self._replay = listing.revision, Replay(self.retention, self._packer)
            self._replay.begin(listing.revision)
            self._replay.load(listing.records)
            return
        if listing.revision < self.revision:
            why = "it lags, or has lost writes"
            raise ServiceUnavailable(f"the storage is at revision {listing.revision}, behind {self.revision}: {why}")
        self._floor = listing.revision
        rows: dict[str, dict[str, Record]] = {resource: {} for resource in self._collections}
        for record in listing.records:
            rows.setdefault(record.resource, {})[record.key] = record
        changes: list[Change] = []
        for resource, records in rows.items():
            changes += self._collection(resource).replace(records, self.revision, listing.revision, self.now())
        self._log.warning("the history of the storage is lost; it was read anew", changes=len(changes))
        if changes:
            self._publish(sorted(changes, key=lambda change: change.revision), listing.revision)
        else:
            self._reach(listing.revision)

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
        self._packer.add([change.row for change in changes])
        self._packer.pack(2 * len(changes))
        try:
            for subscriber in self._subscribers:
                subscriber(changes)
        finally:
            self._commits.answer(changes)
            self._reach(revision)

    def _reach(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        self._commits.reached(self.revision)
        if self._awaited:
            for waiter in [one for one, needed in self._awaited.items() if needed <= self.revision]:
                if not waiter.done():
                    waiter.set_result(None)

    def _tell_corrupt(self, rows: Sequence[CorruptRow]) -> None:
        if rows:
            named = [f"{row.resource} {row.key}: {row.decode_error}" for row in rows[:_NAMED]]
            self._log.error("the store holds objects that cannot be read", objects=len(rows), first=named)

    def _collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(self.retention, self._floor)
        return found
