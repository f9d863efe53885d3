"""The revision of each row, the superseded records of the log, and their removal."""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from apiserver_stub.storage.backend import Backend
from apiserver_stub.storage.interface import Record
from controller_manager.common.base.log import Logger

_NONE: dict[str, int] = {}
_BATCH = 1000  # records removed in one transaction


class RevisionIndex:
    """The rows of a log by resource and key, and the superseded records in order of revision. Pure.

    `compacted` is the revision up to which superseded records are dropped.
    """

    __slots__ = ("_current", "_since", "_superseded", "compacted")

    def __init__(self, compacted: int = 0) -> None:
        self.compacted = compacted
        self._current: dict[str, dict[str, int]] = {}
        # Record `_superseded[i]` is needed only for reads before revision `_since[i]`.
        self._since = array("q")
        self._superseded = array("q")

    def current(self, resource: str, key: str) -> int:
        """Return the revision of a row; 0 if it does not exist."""
        return self._current.get(resource, _NONE).get(key, 0)

    def add(self, record: Record) -> None:
        """Add a durable record. Records come in order of revision."""
        revision = record.revision
        rows = self._current.get(record.resource)
        if rows is None:
            rows = self._current[record.resource] = {}
        before = rows.get(record.key)
        if before is not None:
            self._supersede(revision, before)
        if record.deleted:
            rows.pop(record.key, None)
            self._supersede(revision, revision)
        else:
            rows[record.key] = revision

    def at(self, revision: int, resource: str | None = None) -> list[int]:
        """Return the revisions of the rows as of `revision`, which is not before `compacted`. The result may include
        rows of other resources than `resource` (None: all).
        """
        found = [number for number in self._rows(resource) if number <= revision]
        start = bisect_right(self._since, revision)
        found += [number for number in self._superseded[start:] if number <= revision]
        return sorted(found)

    def after(self, revision: int) -> list[int]:
        """Return the revisions of all records after `revision`, which is not before `compacted`."""
        start = bisect_right(self._since, revision)
        found = {number for number in self._superseded[start:] if number > revision}
        found.update(number for number in self._rows(None) if number > revision)
        return sorted(found)

    def compact(self, revision: int) -> None:
        """Mark what was superseded up to `revision` as garbage for `take`."""
        self.compacted = max(self.compacted, revision)

    def garbage(self) -> Iterator[int]:
        """Yield the revisions of garbage records that are not taken yet."""
        return islice(self._superseded, bisect_right(self._since, self.compacted))

    def take(self, limit: int) -> list[int]:
        """Return the revisions of some garbage records, each once; empty if there are none left."""
        count = min(limit, bisect_right(self._since, self.compacted))
        gone = self._superseded[:count].tolist()
        del self._since[:count], self._superseded[:count]
        return gone

    def _supersede(self, since: int, revision: int) -> None:
        self._since.append(since)
        self._superseded.append(revision)

    def _rows(self, resource: str | None) -> Iterator[int]:
        if resource is not None:
            yield from self._current.get(resource, _NONE).values()
            return
        for rows in self._current.values():
            yield from rows.values()


class GarbageCollection:
    """Removes garbage records in batches. A failed batch is retried with the next compaction or after a restart, since
    garbage can be found in the log itself.
    """

    def __init__(self, backend: Backend, rows: RevisionIndex, log: Logger) -> None:
        self._backend = backend
        self._rows = rows
        self._log = log
        self._batch: list[int] = []
        self._running = False
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    def collect(self) -> "asyncio.Future[None]":
        """Remove all garbage and record the compacted revision. Raises the errors of the backend."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        self._waiting.append(done)
        if not self._running:
            self._next()
        return done

    async def close(self) -> None:
        """Stop after the current batch."""
        self._closed = True
        if self._running:
            await self.collect()

    def _next(self) -> None:
        self._batch = [] if self._closed else self._batch or self._rows.take(_BATCH)
        self._running = bool(self._batch)
        if self._running:
            self._backend.compact(self._rows.compacted, self._batch, self._removed)
        else:
            self._settle(None)

    def _removed(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._running = False
            self._log.warning("failed to compact the log; retrying later", error=failure)
            self._settle(failure)
            return
        self._batch = []
        asyncio.get_running_loop().call_soon(self._next)

    def _settle(self, failure: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.done():
                continue
            if failure is None:
                one.set_result(None)
            else:
                one.set_exception(failure)


def _seen(done: "asyncio.Future[None]") -> None:
    """Mark the result as retrieved: failures are logged."""
    if not done.cancelled():
        done.exception()
