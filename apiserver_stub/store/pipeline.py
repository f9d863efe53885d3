"""Group commit: what is submitted while one group is being written makes up the next."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apiserver_stub.store.backend import Backend
from apiserver_stub.store.row import Record, Row
from controller_manager.api.errors import ServiceUnavailable


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a group, and of what may wait for one; a single record may be larger than any of them."""

    group: int = 128
    group_size: int = 4 << 20
    waiting: int = 4096
    waiting_size: int = 64 << 20


class PendingWrite:
    """Records on their way, all or none, and who waits for them: the writer, who is told the row of the first, and
    others who want to write the same keys.
    """

    __slots__ = ("others", "records", "row")

    def __init__(self, records: Sequence[Record], row: "asyncio.Future[Row]") -> None:
        self.records = records
        self.row = row
        self.others: list[asyncio.Future[None]] = []

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(len(record.data) for record in self.records)


# Called after each group, with the failure if it failed; it answers the waiting writers.
Settle = Callable[[Sequence[PendingWrite], BaseException | None], None]


class Pipeline:
    """A queue of writes in front of a backend; one group is under way at a time, groups keep the order of revisions."""

    def __init__(self, backend: Backend, settle: Settle, limits: Limits) -> None:
        self._backend = backend
        self._settle = settle
        self._limits = limits
        self._queue: deque[PendingWrite] = deque()
        self._size = 0
        self._group: list[PendingWrite] = []
        self._scheduled = False
        self._turned_away: list[asyncio.Future[None]] = []
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether a writer has to wait for `room` before it may submit. Raises `ServiceUnavailable` once closed."""
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        return len(self._queue) >= self._limits.waiting or self._size >= self._limits.waiting_size

    async def room(self) -> None:
        """Wait until some of the queue has moved on."""
        await turn(self._turned_away)

    def submit(self, write: PendingWrite) -> None:
        """Queue a write; its revision is greater than any submitted before."""
        self._queue.append(write)
        self._size += write.size
        if not self._group:
            self._schedule()

    async def drain(self) -> None:
        """Accept no more, and wait until everything submitted is settled."""
        self._closed = True
        wake(self._turned_away)
        while self._queue or self._group:
            await turn(self._turned_away)

    def _schedule(self) -> None:
        """Begin a group after everything that is ready to run has had the chance to join it."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        if self._group or not self._queue:
            return
        size, queue, limits = 0, self._queue, self._limits
        while queue and len(self._group) < limits.group and size < limits.group_size:
            write = queue.popleft()
            size += write.size
            self._group.append(write)
        self._size -= size
        wake(self._turned_away)
        self._backend.append([record for write in self._group for record in write.records], self._written)

    def _written(self, failure: BaseException | None) -> None:
        group, self._group = self._group, []
        if self._queue:
            self._schedule()
        try:
            self._settle(group, failure)
        finally:
            wake(self._turned_away)


async def turn(waiters: "list[asyncio.Future[None]]") -> None:
    """Wait for the next `wake(waiters)`."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    await waiter


def wake(waiters: "list[asyncio.Future[None]]") -> None:
    """Let everyone who waits go on."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
