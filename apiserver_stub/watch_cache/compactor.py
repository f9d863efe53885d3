"""Limits the history of the watch cache and its storage: history that is too old or too large is dropped."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from apiserver_stub.storage.interface import Storage
from apiserver_stub.watch_cache.collection import Collection, Retention, oldest_first
from apiserver_stub.watch_cache.row import Change
from controller_manager.common.base.clock import call_housekeeping_at

_STEP = 256  # changes checked together if there are many
_PARTS = 64  # the storage's history is compacted in at least this many steps


class _Mark(msgspec.Struct, gc=False):
    """A group of changes: the time, revision and cumulative bytes at its end, and the time and bytes at its start."""

    at: float
    revision: int
    size: int
    first_at: float
    first_size: int


class CompactionPlan:
    """Decides up to which revision the storage may compact, by the age and size of its history. Pure."""

    __slots__ = ("_marks", "_retention", "_size", "_step_seconds", "_step_size", "revision")

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._step_seconds = retention.seconds / _PARTS
        self._step_size = retention.total / _PARTS
        self._marks: deque[_Mark] = deque()
        self._size = 0
        self.revision = 0
        """The revision up to which compaction is due."""

    @property
    def empty(self) -> bool:
        """Return whether no compaction will become due."""
        return not self._marks

    def note(self, changes: Sequence[Change]) -> None:
        """Add changes, in order of revision."""
        before, newest = self._size, changes[-1]
        for change in changes:
            self._size += change.row.size
        mark = self._marks[-1] if self._marks else None
        if (
            mark is not None
            and newest.at - mark.first_at < self._step_seconds
            and self._size - mark.first_size < self._step_size
        ):
            mark.at, mark.revision, mark.size = newest.at, newest.revision, self._size
        else:
            self._marks.append(_Mark(newest.at, newest.revision, self._size, newest.at, before))

    def due(self, now: float) -> int:
        """Return the revision up to which history can be dropped at the time `now`. It never decreases."""
        keep, marks = self._retention, self._marks
        while marks and (marks[0].at <= now - keep.seconds or self._size - marks[0].size > keep.total):
            self.revision = marks.popleft().revision
        return self.revision


class Compactor:
    """Trims the histories after every group of changes and periodically, and compacts the storage.

    Each history is trimmed separately, so a busy resource does not shorten the history of others. The storage has a
    single history. A failed compaction is retried in the next round.
    """

    def __init__(
        self,
        storage: Storage,
        collections: Mapping[str, Collection],
        retention: Retention,
        clock: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._collections = collections
        self._pause = retention.seconds / 10
        self._limit = retention.total
        self._sizes: dict[str, int] = {}  # bytes of each history
        self._total = 0
        self._clock = clock
        self._plan = CompactionPlan(retention)
        self._compacted = self._asked = 0  # revisions: confirmed and requested
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self, changes: Sequence[Change]) -> None:
        """Start with the existing history."""
        for at in range(0, len(changes), _STEP):
            self._plan.note(changes[at : at + _STEP])
        self._round()

    def after(self, changes: Sequence[Change]) -> None:
        """Trim the histories that have just grown."""
        self._plan.note(changes)
        last = changes[-1]
        resources = {change.row.resource for change in changes} if len(changes) > 1 else (last.row.resource,)
        for resource in resources:
            self._trim(resource, last.at)
        self._shed()
        if self._plan.due(last.at) > self._asked:
            self._compact()
        self._rest()

    def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _round(self) -> None:
        self._timer = None
        now = self._clock()
        for resource, collection in self._collections.items():
            if resource in self._sizes or collection.history.size:
                self._trim(resource, now)
        self._shed()
        if self._plan.due(now) > self._compacted:
            self._compact()
        self._rest()

    def _trim(self, resource: str, now: float) -> None:
        collection = self._collections[resource]
        collection.trim(now)
        self._measure(resource, collection)

    def _measure(self, resource: str, collection: Collection) -> None:
        size = collection.history.size
        self._total += size - self._sizes.pop(resource, 0)
        if size:
            self._sizes[resource] = size

    def _shed(self) -> None:
        """Keep all histories together within their limit. It drops a bit more, so that this does not run for every
        change.
        """
        if self._total <= self._limit:
            return
        names = {id(collection.history): resource for resource, collection in self._collections.items()}
        histories = [collection.history for collection in self._collections.values()]
        for history, count in oldest_first(histories, self._total - self._limit * 7 // 8):
            resource = names[id(history)]
            self._collections[resource].forget(count)
            self._measure(resource, self._collections[resource])

    def _rest(self) -> None:
        """Schedule the next round if there will be work; an idle cache has no timer."""
        if self._timer is not None or self._closed:
            return
        pending = not self._plan.empty or self._plan.revision > self._compacted
        if pending or any(c.history.end > c.history.first for c in self._collections.values()):
            loop = asyncio.get_running_loop()
            self._timer = call_housekeeping_at(loop, loop.time() + self._pause, self._round)

    def _compact(self) -> None:
        revision = self._asked = self._plan.revision
        self._storage.compact(revision).add_done_callback(lambda done: self._ended(revision, done))

    def _ended(self, revision: int, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._compacted = max(self._compacted, revision)
