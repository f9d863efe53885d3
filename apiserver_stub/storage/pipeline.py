"""Group commit: transactions submitted while a group is written form the next group."""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Sequence

import msgspec

from apiserver_stub.storage.interface import Compare, Record, Write
from controller_manager.common.api.errors import ServiceUnavailable


class GroupLimits(msgspec.Struct, frozen=True):
    """Limits of a group in records and bytes; a single transaction may be larger."""

    records: int = 128
    size: int = 4 << 20


class PendingTransaction:
    """A pending transaction: writes that are made all or none if the `compares` hold. `done` gets their newest
    revision. `records` are set once it is in a group.
    """

    __slots__ = ("compares", "done", "records", "writes")

    def __init__(self, writes: Sequence[Write], compares: Sequence[Compare], done: "asyncio.Future[int]") -> None:
        self.writes = writes
        self.compares = compares
        self.done = done
        self.records: Sequence[Record] = ()

    def depends_on(self, rows: Container[tuple[str, str]]) -> bool:
        """Return whether one of the rows is written or compared."""
        for write in self.writes:
            if (write.resource, write.key) in rows:
                return True
        return any((row.resource, row.key) in rows for row in self.compares)


# Assigns records to a transaction; returns False if it was refused.
Admit = Callable[[PendingTransaction], bool]
# Writes a group, and calls `Pipeline.written` when it is done.
WriteGroup = Callable[[Sequence[PendingTransaction]], None]


class Pipeline:
    """A queue of transactions. One group is written at a time. A transaction is admitted when its group starts: all
    earlier ones are settled then or part of the same group.
    """

    def __init__(self, admit: Admit, write: WriteGroup, limits: GroupLimits) -> None:
        self._admit = admit
        self._write = write
        self._limits = limits
        self._queue: deque[PendingTransaction] = deque()
        self._group: Sequence[PendingTransaction] = ()
        self._scheduled = False
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False

    def submit(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        """Queue a transaction. Its revision will be greater than those of earlier ones."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._closed:
            done.set_exception(ServiceUnavailable("the store is closed"))
            return done
        self._queue.append(PendingTransaction(writes, compares, done))
        if not self._group:
            self._schedule()
        return done

    def written(self) -> None:
        """The current group is settled."""
        self._group = ()
        if self._queue:
            self._schedule()
        else:
            wake(self._idle)

    async def drain(self) -> None:
        """Accept no more transactions, and wait for the pending ones."""
        self._closed = True
        while self._queue or self._group:
            await turn(self._idle)

    def _schedule(self) -> None:
        """Start a group after all ready tasks had the chance to join it."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        group = self._group = self._next_group()
        if group:
            self._write(group)
        else:
            wake(self._idle)

    def _next_group(self) -> list[PendingTransaction]:
        """Return as much of the queue as fits in a group. No transaction depends on another one in the group."""
        group: list[PendingTransaction] = []
        rows: set[tuple[str, str]] = set()
        size = 0
        while self._queue and len(rows) < self._limits.records and size < self._limits.size:
            if rows and self._queue[0].depends_on(rows):
                break
            transaction = self._queue.popleft()
            if self._admit(transaction):
                group.append(transaction)
                for write in transaction.writes:
                    rows.add((write.resource, write.key))
                    size += len(write.data)
        return group


async def turn(waiters: "list[asyncio.Future[None]]") -> None:
    """Wait for the next `wake(waiters)`."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    await waiter


def wake(waiters: "list[asyncio.Future[None]]") -> None:
    """Wake all waiters."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
