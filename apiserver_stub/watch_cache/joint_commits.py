"""Commits that change the same rows on the side are made together: what waits while a transaction is under way makes up
the next, so that a row which every writer changes costs no turn for each.
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
"""Resource and key of a row."""

# Of one transaction: commits, writes and comparisons, which etcd takes 128 of, and bytes, of which it takes 1.5 MiB.
_MOST_COMMITS, _MOST_PARTS, _MOST_BYTES = 32, 100, 1 << 20
_MOST_ATTEMPTS = 100


class Amend(NamedTuple):
    """A change of a row that others change as well: made of what the row is then, if it is still there.

    `change` returns the new bytes, as those of a `Write`, or raises what refuses the whole commit. Rows that one commit
    amends are of one resource and namespace.
    """

    resource: str
    key: str
    change: Callable[[bytes], bytes]


Also = Write | Compare | Amend
"""What may be committed with a write."""


class JointCommit:
    """A commit that amends rows: `writes` of `rows`, the answered one last. `row` gets its outcome."""

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
        """Return whether a row, at a certain revision, is a condition of this."""
        return place in self.rows or any((one.resource, one.key) == place for one in self.compares)


class Submitted(Protocol):
    """A transaction under way: the row of its last write, the storage's answer, and the rows that were seen since."""

    row: "asyncio.Future[Row]"
    done: "asyncio.Future[int]"
    told: dict[Place, Row]


class Submitter(Protocol):
    """Who submits transactions."""

    def queue_for(self, rows: Sequence[Place]) -> "list[asyncio.Future[None]] | None":
        """Return where to wait before any of the rows is written; None if that can be at once."""

    def submit(self, writes: Sequence[Write], compares: Sequence[Compare], rows: Sequence[Place]) -> Submitted:
        """Hand in a transaction."""

    def current(self, resource: str, key: str) -> Row | None:
        """Return a row as it is visible here."""

    def made(self, submitted: Submitted, write: Write) -> Row:
        """Return the row that a write of a transaction has made."""


class _Together:
    """Commits that are made in one transaction, and what becomes of the rows they amend."""

    def __init__(self, current: Callable[[str, str], Row | None]) -> None:
        self.commits: list[JointCommit] = []
        self._current = current
        self._amended: dict[Place, Write] = {}
        self._taken: set[Place] = set()
        self._parts = self._size = 0

    def has_room(self, commit: JointCommit) -> bool:
        """Return whether a commit can join."""
        parts = len(commit.writes) + len(commit.compares) + len(commit.amends)
        is_small = self._parts + parts <= _MOST_PARTS and self._size + commit.size <= _MOST_BYTES
        is_free = len(self.commits) < _MOST_COMMITS and self._taken.isdisjoint(commit.rows)
        return not self.commits or (is_small and is_free)

    def join(self, commit: JointCommit) -> bool:
        """Take a commit in, or tell it what refuses it; False if that may be due to those before it, which may fail."""
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
        """Return writes, the rows that are amended first, and what is compared, each once."""
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
    """The commits that amend rows, by namespace."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter
        self._waiting: dict[str, deque[JointCommit]] = {}  # behind a transaction that is under way

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
        """Submit what waits, as far as it can be; one that has to wait for others keeps those behind it waiting."""
        waiting, together = self._waiting[lane], _Together(self._submitter.current)
        queue: list[asyncio.Future[None]] | None = None
        try:
            queue = self._gather(waiting, together)
        except BaseException as error:
            del self._waiting[lane]
            _refuse((*together.commits, *waiting), error)
            if isinstance(error, ServiceUnavailable):  # the store is closed
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
        """Have those who wait join, as long as they can; return where the next one has to wait, if that is why not."""
        while waiting and together.has_room(waiting[0]):
            if waiting[0].row.done():  # its writer has gone away
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
        """Tell the writers, and go on. Of a conflict those are told whose condition the row is; others try again."""
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
