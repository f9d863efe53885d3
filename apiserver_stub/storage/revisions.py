"""At which revision each row is, which records of the log were superseded when, and how those are removed."""

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
    """The rows of a log by resource and key, and in the order of revisions what each write has made useless; pure.

    `compacted` is the revision up to which superseded records are forgotten.
    """

    __slots__ = ("_current", "_since", "_superseded", "compacted")

    def __init__(self, compacted: int = 0) -> None:
        self.compacted = compacted
        self._current: dict[str, dict[str, int]] = {}
        # Record `_superseded[i]` is useless once nobody wants to know what was before revision `_since[i]`.
        self._since = array("q")
        self._superseded = array("q")

    def current(self, resource: str, key: str) -> int:
        """Return the revision of a row; 0 if there is none."""
        return self._current.get(resource, _NONE).get(key, 0)

    def add(self, record: Record) -> None:
        """Take in a durable record; records come in the order of their revisions."""
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
        """Return the revisions of the rows as they were at `revision`, not before `compacted`; among them may be others
        than those of `resource` (None: all are wanted).
        """
        found = [number for number in self._rows(resource) if number <= revision]
        start = bisect_right(self._since, revision)
        found += [number for number in self._superseded[start:] if number <= revision]
        return sorted(found)

    def after(self, revision: int) -> list[int]:
        """Return the revisions of all records behind `revision`, which is not before `compacted`."""
        start = bisect_right(self._since, revision)
        found = {number for number in self._superseded[start:] if number > revision}
        found.update(number for number in self._rows(None) if number > revision)
        return sorted(found)

    def compact(self, revision: int) -> None:
        """Forget what was superseded up to `revision`; the records that are useless now are there to `take`."""
        self.compacted = max(self.compacted, revision)

    def garbage(self) -> Iterator[int]:
        """Yield the revisions of records that are useless and not taken yet."""
        return islice(self._superseded, bisect_right(self._since, self.compacted))

    def take(self, limit: int) -> list[int]:
        """Return the revisions of some records that are useless, each once; none if that was all."""
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
    """Removes useless records until none is left, a batch at a time. A batch that could not be removed is tried again
    when more is to go; and after a restart, since the log itself shows what is left to remove.
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
        """Remove what is useless, and note up to where the log is compacted then; returns when nothing is left. Raises
        what the backend does.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        self._waiting.append(done)
        if not self._running:
            self._next()
        return done

    async def close(self) -> None:
        """Stop; waits for a batch under way."""
        self._closed = True
        if self._running:
            await self.collect()

    def _next(self) -> None:
        self._batch = [] if self._closed else self._batch or self._rows.take(_BATCH)
        self._running = bool(self._batch)
        if self._running:
            self._backend.compact(self._rows.compacted, self._batch, self._removed)
        else:
            self._tell(None)

    def _removed(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._running = False
            self._log.warning("the log could not be compacted; it will be tried again", error=failure)
            self._tell(failure)
            return
        self._batch = []
        asyncio.get_running_loop().call_soon(self._next)

    def _tell(self, failure: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.done():
                continue
            if failure is None:
                one.set_result(None)
            else:
                one.set_exception(failure)


def _seen(done: "asyncio.Future[None]") -> None:
    """Nobody need wait for it: failures are logged."""
    if not done.cancelled():
        done.exception()
