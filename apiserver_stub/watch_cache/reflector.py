"""Reflector of a storage: list and watch, resume a broken watch, and list again if the history is lost."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress

from apiserver_stub.storage.interface import Deliver, Listing, Record, Storage, TooOld
from apiserver_stub.storage.ordered import OrderedMap
from apiserver_stub.watch_cache.collection import Collection, Retention
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row, row_of
from apiserver_stub.watch_cache.shared_bytes import RowPacker
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, keep_running

_ATTEMPTS = 8  # attempts to read a storage whose history is compacted meanwhile
_PAUSE = 0.1  # seconds until a broken watch is resumed; doubled with each failure, up to
_LONGEST_PAUSE = 10.0


class WatchEnded(Exception):
    """The storage's watch has ended, for the given reason."""


class Reflector:
    """Calls `load` with a listing, then `deliver` with the records of the storage's watch.

    A broken watch is resumed after `revision()`, the last delivered one. If the storage no longer has that history, the
    current state is listed and loaded. Both are retried with backoff; `problem` has the reason meanwhile. `load` may
    reject a listing by raising an error.
    """

    def __init__(
        self,
        storage: Storage,
        load: Callable[[Listing], None],
        deliver: Deliver,
        revision: Callable[[], int],
        log: Logger,
    ) -> None:
        self._storage = storage
        self._load = load
        self._deliver = deliver
        self._revision = revision
        self._log = log
        self._ended: asyncio.Future[None]  # of the latest watch
        self._stop: Callable[[], None] = lambda: None
        self._tasks: Tasks | None = None
        self.problem = ""
        """Why the watch is not running; empty if it is."""

    async def start(self, after: int = 0) -> None:
        """Load the oldest available state, unless the state at revision `after` is known, and follow the watch from
        there. Raises the storage's errors, and `ServiceUnavailable` if the history is compacted faster than it can be
        read.
        """
        if after:
            await self._watch(after)
        else:
            await self._read()
        self._tasks = await Tasks().__aenter__()
        following = keep_running(
            self._follow,
            self._log,
            name="watch of the storage",
            pause=_PAUSE,
            longest_pause=_LONGEST_PAUSE,
            on_failure=self._note,
        )
        self._tasks.start(following, name="watch of the storage")

    async def _read(self) -> None:
        for _ in range(_ATTEMPTS):
            with suppress(TooOld):  # another server compacts it meanwhile
                listing = await self._storage.list(at=await self._storage.oldest_revision())
                self._load(listing)
                await self._watch(listing.revision)
                return
        raise ServiceUnavailable("the history of the store is compacted faster than it can be read")

    async def close(self) -> None:
        """Stop following."""
        if self._tasks is not None:
            await self._tasks.__aexit__(None, None, None)
        self._stop()

    async def _follow(self) -> None:
        """Watch until the watch ends; raise the reason."""
        if self._ended.done():
            try:
                await self._watch(self._revision())
            except TooOld:
                listing = await self._storage.list()
                self._load(listing)
                await self._watch(listing.revision)
            self._log.info("resumed the watch of the storage", revision=self._revision())
            self.problem = ""
        await self._ended

    async def _watch(self, after: int) -> None:
        self._stop()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(why: str) -> None:
            if not ended.done():
                ended.set_exception(WatchEnded(why))

        self._stop = await self._storage.watch(after, self._deliver, end)
        self._ended = ended  # set only now: if the watch did not begin, the previous one stays ended

    def _note(self, failure: BaseException) -> None:
        self.problem = f"failed to watch the storage: {failure}"


class _Shelf:
    """The known rows and changes of one resource."""

    __slots__ = ("changes", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.changes: list[Change] = []


class Replay:
    """Builds collections from records in order of revision, optionally starting with a listing.

    An unreadable object has no watch event, so the history begins after it.
    """

    def __init__(self, retention: Retention, packer: RowPacker) -> None:
        """The `packer` gets each row immediately, so that few rows are held whole."""
        self._retention = retention
        self._packer = packer
        self._mark = 0
        self._corrupt: dict[tuple[str, str], None] = {}
        self._shelves: dict[str, _Shelf] = {}

    def begin(self, revision: int) -> None:
        """Start the history after a revision; earlier records are dropped."""
        if revision > self._mark:
            self._mark = revision
            for shelf in self._shelves.values():
                del shelf.changes[: bisect_right(shelf.changes, revision, key=_revision)]

    def load(self, records: Iterable[Record]) -> None:
        """Add the rows that exist when the history begins."""
        rows = []
        for record in records:
            row = self._shelf(record).rows[record.key] = self._row(record)
            rows.append(row)
        self._packer.add(rows)
        self._packer.pack(len(rows))

    def add(self, records: Iterable[Record]) -> None:
        """Add the next records. Records of rows from before the history are not changes."""
        mark, rows = self._mark, []
        for record in records:
            shelf = self._shelf(record)
            row, before = self._row(record), shelf.rows.get(record.key)
            rows.append(row)
            if record.deleted:
                shelf.rows.pop(record.key, None)
            else:
                shelf.rows[record.key] = row
            if record.revision > mark:
                shelf.changes.append(Change(row, before, record.deleted, record.at))
        self._packer.add(rows)
        self._packer.pack(len(rows))

    def collections(self) -> dict[str, Collection]:
        """Return the state after the last record, by resource."""
        return {resource: self._collection(shelf) for resource, shelf in self._shelves.items()}

    def changes(self) -> list[Change]:
        """Return the changes of all resources in order of revision."""
        found = [change for shelf in self._shelves.values() for change in shelf.changes]
        return sorted(found, key=lambda change: change.revision)

    def corrupt(self) -> list[CorruptRow]:
        """Return the unreadable rows."""
        found = [self._shelves[resource].rows.get(key) for resource, key in self._corrupt]
        return [row for row in found if isinstance(row, CorruptRow)]

    def _shelf(self, record: Record) -> _Shelf:
        found = self._shelves.get(record.resource)
        if found is None:
            found = self._shelves[record.resource] = _Shelf()
        return found

    def _row(self, record: Record) -> Row:
        if record.decode_error:
            self._corrupt[record.resource, record.key] = None
        return row_of(record)

    def _collection(self, shelf: _Shelf) -> Collection:
        start = _behind_corruption(shelf.changes) if self._corrupt else 0
        mark = shelf.changes[start - 1].revision if start else self._mark
        made = Collection(self._retention, mark, OrderedMap(sorted(shelf.rows.items())))
        for change in shelf.changes[start:]:
            made.history.append(change)
        return made


def _revision(change: Change) -> int:
    return change.revision


def _behind_corruption(changes: list[Change]) -> int:
    """Return the number of changes up to the last one with a corrupt row; watchers can get those after it."""
    start = 0
    for at, change in enumerate(changes, 1):
        if isinstance(change.row, CorruptRow) or isinstance(change.before, CorruptRow):
            start = at
    return start
