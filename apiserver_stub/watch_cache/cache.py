"""The watch cache: a copy of the storage with a bounded history. It is fed by the storage's watch only and serves every
read.
"""

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

_NOTHING = ("", "revision")  # resource and key of a row that is written to advance the revision; it is not an object
_EMPTY = b'{"kind":"","apiVersion":"","metadata":{"resourceVersion":"","name":"","uid":""}}'
_NAMED = 20  # corrupt rows listed in the log
_PACKED = 20  # rows packed before other tasks run; each takes about 10 µs
_STEP = 20_000  # rows after which free memory is returned to the system


class WatchCache:
    """Rows of bytes by resource and key, with a bounded history, as received from the storage's watch.

    `revision` is the newest visible one. Use it between `start` and `close`. Rows of the resources in `ttls` are
    removed that many seconds after their last write. Rows share pieces of bytes, except those written recently.
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
        """The storage that this cache copies."""
        self.retention = retention or Retention()
        """The limits of the history."""
        self._log = log or get_logger("store")
        self._commits = Commits(storage, self, limits or WriteLimits(), ttls or {})
        self._reflector = Reflector(storage, self._load, self._deliver, lambda: self.revision, self._log)
        self._floor = 0
        self._collections: dict[str, Collection] = {}
        self._subscribers: list[Subscriber] = []
        self._awaited: dict[asyncio.Future[None], int] = {}  # reads that wait for a revision
        self._upkeep = Compactor(storage, self._collections, self.retention, self.now)
        self._replay: Replay | None = None
        self._packer = RowPacker(storage.share) if isinstance(storage, SharesPieces) else RowPacker()
        self._adopted: Mapping[str, Snapshot] | None = None
        self._started = False

    async def start(self) -> None:
        """Read the storage with its history, and follow its watch. Raises `Unusable` with a message for the
        operator.
        """
        if self._adopted is None and isinstance(self.storage, ReadAtStart):
            self.storage.read_for(self._take_replayed)
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
            self._log_corrupt(replay.corrupt())

    def _take_replayed(self, records: Sequence[Record], floor: int) -> None:
        """Take the records that the storage reads when it is opened."""
        if self._replay is None:
            self._replay = Replay(self.retention, self._packer)
        self._replay.begin(floor)
        self._replay.add(records)

    async def _go_on_from(self, replay: Replay) -> None:
        """Follow the storage from the end of the records read at its start."""
        self._floor, self.revision = await self.storage.oldest_revision(), await self.storage.current_revision()
        replay.begin(self._floor)
        await self._reflector.start(after=self.revision)

    def adopt(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Make `start` begin with the `snapshots` of another cache instead of reading the storage. The storage must
        hold the same rows and no history.
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
        """Pack the rows that were not packed while they were read at the start, and return the memory to the system.
        Does nothing for a few rows.
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
        """Refuse new writes, finish pending ones, and close the storage."""
        await self._commits.close()
        self._upkeep.close()
        await self._reflector.close()
        await self.storage.close()

    @property
    def problem(self) -> str:
        """Return why writes fail or reads may be stale; empty if the cache is healthy."""
        return self.storage.problem or self._reflector.problem

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with each group of changes when it becomes visible. The subscriber must not raise."""
        self._subscribers.append(subscriber)

    def get(self, resource: str, key: str) -> Row | None:
        """Return the current row of `key`."""
        found = self._collections.get(resource)
        return None if found is None else found.get(key)

    def snapshot(self, resource: str) -> Snapshot:
        """Return all current rows of a resource."""
        return self._collection(resource).snapshot(self.revision)

    def snapshots(self) -> Mapping[str, Snapshot]:
        """Return immutable snapshots of all resources. No row is copied or read."""
        return {resource: found.snapshot(self.revision) for resource, found in self._collections.items()}

    def snapshot_at(self, resource: str, revision: int) -> Snapshot:
        """Return all rows of a resource at `revision`. Raises `TooOld` or `TooNew`."""
        return self._collection(resource).snapshot_at(revision, self.revision)

    def index(self, resource: str, path: str) -> FieldIndex | None:
        """Return the index of a resource's current rows by a field, or None; see `Collection`."""
        found = self._collections.get(resource)
        return None if found is None else found.index(path)

    def count(self, resource: str) -> int:
        """Return the number of rows of a resource."""
        found = self._collections.get(resource)
        return 0 if found is None else len(found)

    def history(self, resource: str) -> Window:
        """Return the recent changes of a resource."""
        return self._collection(resource).history

    def now(self) -> float:
        """Return the current time in seconds since the epoch; ages are relative to it."""
        return self._clock.now()

    def is_pending(self, resource: str, key: str) -> bool:
        """Return whether this server has a pending write of the row."""
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
        """Wait until all revisions that any server has acknowledged are visible."""
        await self.reached(await self.storage.current_revision())

    def turn(self, *rows: tuple[str, str]) -> Coroutine[Any, Any, None] | None:
        """Return what to await until these rows (resource and key) have no pending write; None if they have none. A
        caller that then writes without another await cannot lose a race against this server, only against other
        servers. Raises `ServiceUnavailable` once closed.
        """
        return self._commits.turn(rows)

    def commit(self, write: Write, *also: Also) -> Awaitable[Row]:
        """Commit a write and further writes of other rows, all or none, if the compares hold. Return the row of `write`
        once it is durable and visible here. Amended rows are computed at commit time.

        Raises `RevisionConflict` if a row is not at the expected revision; the conflicting write is visible then, so a
        retry makes progress. Raises `ServiceUnavailable` if the writes were not made, and `Timeout` if the outcome is
        unknown. The writes of a cancelled caller may still happen.

        If the storage's watch lags, the result is returned after three seconds although it is not visible yet, and a
        conflict whose cause is not visible is a `TooNew`.
        """
        return self._commits.commit(write, also)

    async def advance(self) -> None:
        """Advance the revision, if possible, without a change, as etcd does with each compaction."""
        row = self.get(*_NOTHING)
        with suppress(RevisionConflict, ServiceUnavailable):
            await self.commit(Write(*_NOTHING, row.revision if row else 0, _EMPTY))

    def _load(self, listing: Listing) -> None:
        """Load a listing: at the start, or after the history behind `revision` was lost. Raises `ServiceUnavailable` if
        the listing is older than the visible state.
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
        self._log.warning("history of the storage was lost, relisted", changes=len(changes))
        if changes:
            self._publish(sorted(changes, key=lambda change: change.revision), listing.revision)
        else:
            self._reach(listing.revision)

    def _deliver(self, records: Sequence[Record], revision: int) -> None:
        """Apply records from the storage's watch."""
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

    def _log_corrupt(self, rows: Sequence[CorruptRow]) -> None:
        if rows:
            named = [f"{row.resource} {row.key}: {row.decode_error}" for row in rows[:_NAMED]]
            self._log.error("the store has unreadable objects", objects=len(rows), first=named)

    def _collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(self.retention, self._floor)
        return found
