"""Combines commits that amend the same row. Commits that arrive while a transaction is pending form the next one, so a
row that every writer changes does not cost a transaction each.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from apiserver_stub.storage.interface import Compare, RevisionConflict, Write
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import ApiError, ServiceUnavailable

Place = tuple[str, str]
"""The resource and key of a row."""

# Limits of one transaction: commits, writes and compares (etcd accepts 128), and bytes (etcd accepts 1.5 MiB).
_MOST_COMMITS, _MOST_PARTS, _MOST_BYTES = 32, 100, 1 << 20
_MOST_ATTEMPTS = 100


class Amend(NamedTuple):
    """A change of a row that other commits change too. It is computed from the row at commit time, if the row still
    exists.

    `change` returns the new bytes, as those of a `Write`, or raises the error of the whole commit. All rows that one
    commit amends have the same resource and namespace.
    """

    resource: str
    key: str
    change: Callable[[bytes], bytes]


Also = Write | Compare | Amend
"""What may be committed together with a write."""


class JointCommit:
    """A commit that amends rows: `writes` of `rows`; the last write gives the result. `row` receives it."""

    __slots__ = ("amends", "attempts", "compares", "row", "rows", "size", "writes")

    def __init__(
        self, writes: Sequence[Write], compares: Sequence[Compare], amends: Sequence[Amend], rows: Sequence[Place]
    ) -> None:
        self.writes = writes
        self.compares = compares
        self.amends = amends
        self.rows = rows
        self.size = sum(len(write.data) for write in writes)
        self.attempts = 0
        self.row: asyncio.Future[Row] = asyncio.get_running_loop().create_future()

    def depends_on(self, place: Place) -> bool:
        """Return whether this commit requires a certain revision of the row."""
        return place in self.rows or any((one.resource, one.key) == place for one in self.compares)


class Submitted(Protocol):
    """A pending transaction: the row of its last write, the storage's answer, and the rows received since."""

    row: "asyncio.Future[Row]"
    done: "asyncio.Future[int]"
    received: dict[Place, Row]


class Submitter(Protocol):
    """Submits transactions."""

    def queue_for(self, rows: Sequence[Place]) -> "list[asyncio.Future[None]] | None":
        """Return the queue to wait in before any of the rows can be written; None if they can be written now."""

    def submit(self, writes: Sequence[Write], compares: Sequence[Compare], rows: Sequence[Place]) -> Submitted:
        """Submit a transaction."""

    def current(self, resource: str, key: str) -> Row | None:
        """Return the visible row."""

    def made(self, submitted: Submitted, write: Write) -> Row:
        """Return the row that a write of a transaction has made."""


class _Together:
    """Commits that are combined in one transaction, and the new states of the rows they amend."""

    def __init__(self, current: Callable[[str, str], Row | None]) -> None:
        self.commits: list[JointCommit] = []
        self._current = current
        self._amended: dict[Place, Write] = {}
        self._taken: set[Place] = set()
        self._parts = self._size = 0

    def has_room(self, commit: JointCommit) -> bool:
        """Return whether there is room for a commit."""
        parts = len(commit.writes) + len(commit.compares) + len(commit.amends)
        is_small = self._parts + parts <= _MOST_PARTS and self._size + commit.size <= _MOST_BYTES
        is_free = len(self.commits) < _MOST_COMMITS and self._taken.isdisjoint(commit.rows)
        return not self.commits or (is_small and is_free)

    def join(self, commit: JointCommit) -> bool:
        """Add a commit, or fail it if it is refused. Return False if the refusal may be caused by earlier commits of
        this transaction, which may still fail.
        """
        try:
            amended = self._amend(commit.amends)
        except ApiError as refusal:
            if not self.commits:
                commit.row.set_exception(refusal)
            return not self.commits
        self._amended |= amended
        self._taken.update(commit.rows)
        self._parts += len(commit.writes) + len(commit.compares) + len(commit.amends)
        self._size += commit.size
        self.commits.append(commit)
        return True

    def transaction(self) -> tuple[list[Write], list[Compare], list[Place]]:
        """Return the writes (amended rows first), and the compares and rows, each once."""
        writes = [*self._amended.values(), *(write for one in self.commits for write in one.writes)]
        compares = {(one.resource, one.key, one.expected): one for each in self.commits for one in each.compares}
        return writes, list(compares.values()), [(write.resource, write.key) for write in writes]

    def _amend(self, amends: Sequence[Amend]) -> Mapping[Place, Write]:
        found: dict[Place, Write] = {}
        for one in amends:
            place = one.resource, one.key
            before = self._amended.get(place)
            if before is not None:
                found[place] = Write(*place, before.expected, one.change(before.data))
            elif (row := self._current(*place)) is not None:
                found[place] = Write(*place, row.revision, one.change(row.data))
        return found


class JointCommits:
    """Combines commits that amend rows, by namespace."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter
        self._waiting: dict[str, deque[JointCommit]] = {}  # behind a pending transaction

    async def commit(self, commit: JointCommit) -> Row:
        """See `WatchCache.commit`."""
        first = commit.amends[0]
        lane = f"{first.resource}/{first.key.rpartition('/')[0]}"
        if lane in self._waiting:
            self._waiting[lane].append(commit)
        else:
            self._waiting[lane] = deque((commit,))
            self._begin(lane)
        return await commit.row

    def _begin(self, lane: str) -> None:
        """Submit waiting commits as far as possible. A commit that must wait for a row blocks those behind it."""
        waiting, together = self._waiting[lane], _Together(self._submitter.current)
        queue: list[asyncio.Future[None]] | None = None
        try:
            queue = self._gather(waiting, together)
        except BaseException as error:
            del self._waiting[lane]
            _refuse((*together.commits, *waiting), error)
            if isinstance(error, ServiceUnavailable):  # the cache is closed
                return
            raise
        if together.commits:
            submitted = self._submitter.submit(*together.transaction())
            submitted.row.add_done_callback(partial(self._made, lane, together.commits, submitted))
        elif queue is not None:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue.append(turn)
            turn.add_done_callback(lambda _: self._begin(lane))
        else:
            del self._waiting[lane]

    def _gather(self, waiting: deque[JointCommit], together: _Together) -> "list[asyncio.Future[None]] | None":
        """Add waiting commits as long as possible. Return the queue that the next one must wait in, if this is why it
        was not added.
        """
        while waiting and together.has_room(waiting[0]):
            if waiting[0].row.done():  # its writer was cancelled
                waiting.popleft()
                continue
            amended = [(one.resource, one.key) for one in waiting[0].amends]
            queue = self._submitter.queue_for((*waiting[0].rows, *amended))
            if queue is not None:
                return queue
            if not together.join(waiting[0]):
                return None
            waiting.popleft()
        return None

    def _made(
        self, lane: str, commits: Sequence[JointCommit], submitted: Submitted, row: "asyncio.Future[Row]"
    ) -> None:
        """Return the result to the writers and continue. A conflict goes to the commits that require the row; the
        others are retried.
        """
        failure = row.exception()
        if isinstance(failure, RevisionConflict):
            self._sort_out(lane, commits, failure)
        elif failure is not None:
            _refuse(commits, failure)
        else:
            for one in commits:
                if not one.row.done():
                    one.row.set_result(self._submitter.made(submitted, one.writes[-1]))
        self._begin(lane)

    def _sort_out(self, lane: str, commits: Sequence[JointCommit], failure: RevisionConflict) -> None:
        place = failure.resource, failure.key
        again: list[JointCommit] = []
        for one in commits:
            one.attempts += 1
            if one.depends_on(place) or one.attempts >= _MOST_ATTEMPTS:
                _refuse((one,), failure)
            else:
                again.append(one)
        self._waiting[lane].extendleft(reversed(again))


def _refuse(commits: Sequence[JointCommit] | deque[JointCommit], failure: BaseException) -> None:
    for one in commits:
        if not one.row.done():
            one.row.set_exception(failure)
