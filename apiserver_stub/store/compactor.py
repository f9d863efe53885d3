"""Keeping the store bounded: history that grows too old is forgotten, and the log's useless records are removed."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from apiserver_stub.store.backend import Backend
from apiserver_stub.store.history import Retention, oldest_first
from apiserver_stub.store.index import Collection
from apiserver_stub.store.pipeline import turn, wake
from controller_manager.base.log import Logger

_BATCH = 1000  # records removed in one transaction; groups of writes go in between


class Compactor:
    """Trims the history with every group of changes and from time to time, and compacts the log in small batches.

    A compaction that fails is tried again at the next round, and one cut short by the end of the process goes on
    after the next start: the log itself shows what is left to remove.
    """

    def __init__(
        self,
        backend: Backend,
        collections: Mapping[str, Collection],
        retention: Retention,
        clock: Callable[[], float],
        log: Logger,
    ) -> None:
        self._backend = backend
        self._collections = collections
        self._pause = retention.seconds / 10
        self._limit = retention.total
        self._sizes: dict[str, int] = {}  # bytes of each history
        self._total = 0
        self._clock = clock
        self._log = log
        self._garbage: dict[int, None] = {}  # revisions, in the order they became useless
        self._batch: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    def start(self, garbage: Iterable[int]) -> None:
        """Begin with what the log's replay found to be useless."""
        self._garbage.update(dict.fromkeys(garbage))
        self._round()

    def after(self, resources: Iterable[str], now: float) -> None:
        """Trim the histories that have just grown."""
        for resource in resources:
            self._trim(resource, now)
        self._shed()
        self._rest()

    async def close(self) -> None:
        """Stop; waits for a batch under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._batch:
            await turn(self._waiting)

    def _round(self) -> None:
        self._timer = None
        now = self._clock()
        for resource in self._collections:
            self._trim(resource, now)
        self._shed()
        self._compact()
        self._rest()

    def _trim(self, resource: str, now: float) -> None:
        collection = self._collections[resource]
        self._garbage.update(dict.fromkeys(collection.trim(now)))
        size = collection.history.size
        self._total += size - self._sizes.get(resource, 0)
        self._sizes[resource] = size

    def _shed(self) -> None:
        """Keep all histories together within their limit; some more goes, so that it is not looked at every time."""
        if self._total <= self._limit:
            return
        names = {id(collection.history): resource for resource, collection in self._collections.items()}
        histories = [collection.history for collection in self._collections.values()]
        for history, count in oldest_first(histories, self._total - self._limit * 7 // 8):
            resource = names[id(history)]
            self._garbage.update(dict.fromkeys(self._collections[resource].forget(count)))
            self._total += history.size - self._sizes[resource]
            self._sizes[resource] = history.size

    def _rest(self) -> None:
        """Come again later if there will be something to do; a store that rests has no timer."""
        if self._timer is not None or self._closed:
            return
        if self._garbage or any(c.history.end > c.history.first for c in self._collections.values()):
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._round)

    def _compact(self) -> None:
        if self._batch or not self._garbage or self._closed:
            return
        self._batch = [revision for revision, _ in zip(self._garbage, range(_BATCH), strict=False)]
        marks = {resource: c.history.trimmed for resource, c in self._collections.items() if c.history.trimmed}
        self._backend.compact(marks, self._batch, self._compacted)

    def _compacted(self, failure: BaseException | None) -> None:
        batch, self._batch = self._batch, []
        wake(self._waiting)
        if failure is not None:
            self._log.warning("the log could not be compacted; it will be tried again", error=failure)
            return
        for revision in batch:
            del self._garbage[revision]
        if self._garbage:
            asyncio.get_running_loop().call_soon(self._compact)
