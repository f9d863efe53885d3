"""Pending writes of one server: they take turns per row and wait until their result is visible here."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from apiserver_stub.storage.interface import Compare, RevisionConflict, Storage, TooNew, Write, stamped
from apiserver_stub.storage.pipeline import turn, wake
from apiserver_stub.watch_cache.joint_commits import Also, Amend, JointCommit, JointCommits, Submitted
from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.common.api.errors import ServiceUnavailable

_PATIENCE = 3.0  # seconds a writer waits until its committed revision is visible here


class WriteLimits(msgspec.Struct, frozen=True):
    """The limits for concurrent transactions: their number and total bytes. A single transaction may be larger."""

    transactions: int = 4096
    size: int = 64 << 20


class Copy(Protocol):
    """The rows visible here, and their revision."""

    revision: int

    def get(self, resource: str, key: str) -> Row | None:
        """Return the current row of `key`."""


class PendingCommit:
    """Pending writes of `rows`, and their waiters: the writer and writers of the same rows.

    The writer gets the `row` of the last write. `done` is the storage's answer, `received` the rows received since.
    """

    __slots__ = ("done", "others", "received", "row", "rows", "settled", "size", "writes")

    def __init__(
        self,
        writes: Sequence[Write],
        rows: Sequence[tuple[str, str]],
        done: "asyncio.Future[int]",
        row: "asyncio.Future[Row]",
    ) -> None:
        self.writes = writes
        self.rows = rows
        self.done = done
        self.row = row
        self.size = 0
        for write in writes:
            self.size += len(write.data)
        self.others: list[asyncio.Future[None]] = []
        self.settled = False
        self.received: dict[tuple[str, str], Row] = {}

    def made(self, row: Row) -> bool:
        """Return whether this commit is known to have made that row, its last one."""
        last, done = self.writes[-1], self.done
        if not done.done() or done.exception() is not None or done.result() != row.revision:
            return False
        return (last.key, last.resource) == (row.key, row.resource)


class Commits:
    """Submits transactions within limits. Writers wait until the `copy` shows the result, which it reports to `answer`
    and `reached`.
    """

    def __init__(self, storage: Storage, copy: Copy, limits: WriteLimits, ttls: Mapping[str, float]) -> None:
        self.limits = limits
        self._storage = storage
        self._copy = copy
        self._ttls = {resource: seconds for resource, seconds in ttls.items() if seconds > 0}
        self._pending: dict[tuple[str, str], PendingCommit] = {}
        self._count = self._size = 0  # of pending transactions
        self._ready: list[asyncio.Future[None]] = []  # writers that wait for capacity
        # Committed transactions that the copy does not show yet: the revision to wait for, and the timeout.
        self._late: dict[PendingCommit, tuple[int, asyncio.TimerHandle]] = {}
        self._closed = False
        self._joint = JointCommits(self)

    async def close(self) -> None:
        """Refuse new writes and wait for pending ones."""
        self._closed = True
        wake(self._ready)
        while self._count:
            await turn(self._ready)

    def is_pending(self, resource: str, key: str) -> bool:
        """Return whether the row has a pending write."""
        return (resource, key) in self._pending

    def turn(self, rows: Sequence[tuple[str, str]]) -> Coroutine[Any, Any, None] | None:
        """See `WatchCache.turn`."""
        return None if self.queue_for(rows) is None else self._wait_for_turn(rows)

    async def _wait_for_turn(self, rows: Sequence[tuple[str, str]]) -> None:
        while (queue := self.queue_for(rows)) is not None:
            await turn(queue)

    async def commit(self, write: Write, also: Sequence[Also]) -> Row:
        """See `WatchCache.commit`."""
        writes: list[Write] = []
        compares: list[Compare] = []
        amends: list[Amend] = []
        for one in also:
            if isinstance(one, Write):
                writes.append(one)
            elif isinstance(one, Compare):
                compares.append(one)
            else:
                amends.append(one)
        writes.append(write)
        rows = [(one.resource, one.key) for one in writes]
        if amends:
            return await self._joint.commit(JointCommit(writes, compares, amends, rows))
        while (queue := self.queue_for(rows)) is not None:
            await turn(queue)
        return await self.submit(writes, compares, rows).row

    def answer(self, changes: Sequence[Change]) -> None:
        """Wake the writers of these changes if the storage has confirmed them, before the changes are published."""
        for change in changes:
            row = change.row
            pending = self._pending.get((row.resource, row.key))
            if pending is not None:
                pending.received[row.resource, row.key] = row
                if pending.made(row):
                    self._settle(pending, row)

    def reached(self, revision: int) -> None:
        """Wake the writers that wait for this revision or an earlier one."""
        if self._late:
            for pending in [one for one, (needed, _) in self._late.items() if needed <= revision]:
                self._settle(pending)

    def current(self, resource: str, key: str) -> Row | None:
        """See `Submitter`."""
        return self._copy.get(resource, key)

    def made(self, submitted: Submitted, write: Write) -> Row:
        """See `Submitter`."""
        received = submitted.received.get((write.resource, write.key))
        return received or self._row(write, submitted.done.result())

    def queue_for(self, rows: Sequence[tuple[str, str]]) -> "list[asyncio.Future[None]] | None":
        """Return the queue to wait in before any of the rows can be written; None if they can be written now."""
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        if self._count >= self.limits.transactions or self._size >= self.limits.size:
            return self._ready
        for row in rows:
            if row in self._pending:
                return self._pending[row].others
        return None

    def submit(
        self, writes: Sequence[Write], compares: Sequence[Compare], rows: Sequence[tuple[str, str]]
    ) -> PendingCommit:
        """Submit the writes of these rows; the row of the last write is the result."""
        if self._ttls:
            writes = [self._with_ttl(write) if write.resource in self._ttls else write for write in writes]
        done = self._storage.txn(writes, compares)
        pending = PendingCommit(writes, rows, done, done.get_loop().create_future())
        for row in rows:
            self._pending[row] = pending
        self._count += 1
        self._size += pending.size
        done.add_done_callback(partial(self._answered, pending))
        return pending

    def _with_ttl(self, write: Write) -> Write:
        return write if write.deleted else msgspec.structs.replace(write, ttl=self._ttls[write.resource])

    def _answered(self, pending: PendingCommit, done: "asyncio.Future[int]") -> None:
        """Handle the answer of the storage. The writer is woken when the committed revision is visible here, or after a
        timeout.
        """
        if pending.settled:
            return
        failure = done.exception()
        needed = failure.revision if isinstance(failure, RevisionConflict) else 0 if failure else done.result()
        if self._copy.revision >= needed:
            self._settle(pending)
        else:
            timer = asyncio.get_running_loop().call_later(_PATIENCE, self._settle, pending)
            self._late[pending] = needed, timer

    def _settle(self, pending: PendingCommit, row: Row | None = None) -> None:
        """Wake the writer, once, whichever comes first: the storage's answer or its watch."""
        if pending.settled:
            return
        pending.settled = True
        if self._late and (late := self._late.pop(pending, None)) is not None:
            late[1].cancel()
        for place in pending.rows:
            del self._pending[place]
        self._count -= 1
        self._size -= pending.size
        if not pending.row.done():
            if failure := pending.done.exception():
                pending.row.set_exception(self._refusal(failure))
            else:
                pending.row.set_result(row or self._row(pending.writes[-1], pending.done.result()))
        if pending.others:
            wake(pending.others)
        if self._ready:
            wake(self._ready)

    def _refusal(self, failure: BaseException) -> BaseException:
        """Return the error for the writer. A conflict whose cause is not visible yet becomes `TooNew`, since a retry
        would fail again.
        """
        if isinstance(failure, RevisionConflict) and failure.revision > self._copy.revision:
            return TooNew(failure.revision, self._copy.revision)
        return failure

    def _row(self, write: Write, revision: int) -> Row:
        """Return the row of a write. It is built from the write if the copy is late or already shows a newer row."""
        row = self._copy.get(write.resource, write.key)
        if row is not None and row.revision == revision:
            return row
        return Row(write.resource, write.key, revision, stamped(write.data, revision))
