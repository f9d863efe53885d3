"""The writes of one server on their way into the storage: who takes turns, who waits until they are visible here."""

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

_PATIENCE = 3.0  # seconds that a writer waits until the revision the storage tells it is visible here


class WriteLimits(msgspec.Struct, frozen=True):
    """The bounds on transactions under way: their number, and their bytes together; a single one may be larger."""

    transactions: int = 4096
    size: int = 64 << 20


class Copy(Protocol):
    """The rows that are visible here, and up to which revision."""

    revision: int

    def get(self, resource: str, key: str) -> Row | None:
        """Return the current row of `key`."""


class PendingCommit:
    """Writes on their way, of these `rows`, and who waits for them: the writer, who gets the `row` of the last, and
    others who want to write the same rows. `done` is what the storage answers, `told` the rows that were seen since.
    """

    __slots__ = ("done", "others", "row", "rows", "settled", "size", "told", "writes")

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
        self.told: dict[tuple[str, str], Row] = {}

    def made(self, row: Row) -> bool:
        """Return whether this is known to have made that row, its last."""
        last, done = self.writes[-1], self.done
        if not done.done() or done.exception() is not None or done.result() != row.revision:
            return False
        return (last.key, last.resource) == (row.key, row.resource)


class Commits:
    """Submits transactions, within bounds, and has their writers wait until the `copy` shows what came of them, which
    is told to `answer` and `reached`.
    """

    def __init__(self, storage: Storage, copy: Copy, limits: WriteLimits, ttls: Mapping[str, float]) -> None:
        self.limits = limits
        self._storage = storage
        self._copy = copy
        self._ttls = {resource: seconds for resource, seconds in ttls.items() if seconds > 0}
        self._pending: dict[tuple[str, str], PendingCommit] = {}
        self._count = self._size = 0  # of the transactions under way
        self._ready: list[asyncio.Future[None]] = []  # of those who wait for room
        # What the storage has answered and the copy does not show yet: the revision to wait for, and until when.
        self._late: dict[PendingCommit, tuple[int, asyncio.TimerHandle]] = {}
        self._closed = False
        self._joint = JointCommits(self)

    async def close(self) -> None:
        """Refuse new writes, and wait for those submitted."""
        self._closed = True
        wake(self._ready)
        while self._count:
            await turn(self._ready)

    def is_pending(self, resource: str, key: str) -> bool:
        """Return whether a write of the row is submitted and not yet settled."""
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
        """Let writers go on whose writes these are, as far as the storage has said so: then they need not wait until
        they hear of it.
        """
        for change in changes:
            row = change.row
            pending = self._pending.get((row.resource, row.key))
            if pending is not None:
                pending.told[row.resource, row.key] = row
                if pending.made(row):
                    self._settle(pending, row)

    def reached(self, revision: int) -> None:
        """Let writers go on who waited for this revision, or an earlier one."""
        if self._late:
            for pending in [one for one, (needed, _) in self._late.items() if needed <= revision]:
                self._settle(pending)

    def current(self, resource: str, key: str) -> Row | None:
        """See `Submitter`."""
        return self._copy.get(resource, key)

    def made(self, submitted: Submitted, write: Write) -> Row:
        """See `Submitter`."""
        told = submitted.told.get((write.resource, write.key))
        return told or self._row(write, submitted.done.result())

    def queue_for(self, rows: Sequence[tuple[str, str]]) -> "list[asyncio.Future[None]] | None":
        """Return where to wait before any of the rows is written; None if that can be at once."""
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
        """Hand in the writes, which are of these rows; that of the last is whose row is answered."""
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
        """The storage has answered; the writer goes on when what it was told of is visible here, or soon anyway."""
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
        """Let the writer go on, once: whether the storage's answer or its watch was faster."""
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
        """Return what a writer is told: not of a conflict whose cause it could not see when it tries again."""
        if isinstance(failure, RevisionConflict) and failure.revision > self._copy.revision:
            return TooNew(failure.revision, self._copy.revision)
        return failure

    def _row(self, write: Write, revision: int) -> Row:
        """Return the row that a write has made, from what was written where the copy is late or further on."""
        row = self._copy.get(write.resource, write.key)
        if row is not None and row.revision == revision:
            return row
        return Row(write.resource, write.key, revision, stamped(write.data, revision))
