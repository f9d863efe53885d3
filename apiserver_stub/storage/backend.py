"""The place where the embedded storage keeps its log, which never looks into the data; and the one in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from apiserver_stub.storage.interface import Inspect, Record, uninspected

# Called on the loop when the work is done, with the failure if it failed.
Done = Callable[[BaseException | None], None]


class Backend(Protocol):
    """A durable, ordered log of records.

    Use it in this order: `open`, `replay` to its end, `begin`, then the others. At most one `append` and one `compact`
    are under way at a time. `append` is all or nothing; if it fails, the records will never be there, unless the
    failure is `Unknown`. `keeps_stamped` is set by one that keeps the very bytes that readers share: it is given them
    with their revision, and others without.
    """

    keeps_stamped: bool

    @property
    def trouble(self) -> str:
        """Return what is wrong with the log, although it can be written; empty if nothing."""

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """Return how many checkpoints succeeded, and how many failed."""

    async def open(self) -> int:
        """Make ready; returns the revision up to which the log was compacted. Raises `Unusable`."""

    def replay(self, inspect: Inspect = uninspected) -> AsyncIterator[Sequence[Record]]:
        """Yield every record in the order of revisions, in portions, with what `inspect` says of its object. Raises
        `Unusable`.
        """

    async def begin(self) -> int:
        """Judge whether everything is there that was acknowledged, and accept records from here on; returns the
        revision behind which history begins at the earliest. Raises `Unusable`.
        """

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Make `records` durable, then call `done`, with `Unknown` if nobody can tell whether they are."""

    def fetch(self, revisions: Sequence[int]) -> "asyncio.Future[Sequence[Record]]":
        """Return the records of some revisions, in their order, without those that were removed."""

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        """Note up to which revision the log is compacted and remove the records of `revisions`, both or neither, then
        call `done`.
        """

    async def close(self) -> None:
        """Finish what is under way and let go of the log."""


class MemoryBackend:
    """Durable at once, without threads or files; a second storage opened on it later finds what the first one wrote."""

    keeps_stamped = True
    trouble = ""
    checkpoint_counts = (0, 0)

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._compacted = 0

    def copy(self) -> "MemoryBackend":
        """Return another log with the same records: what a crash at this moment leaves."""
        other = MemoryBackend()
        other.adopt(self)
        return other

    def adopt(self, other: "MemoryBackend") -> None:
        """Hold what another log holds too; nothing may be open on this one yet."""
        self._records.update(other._records)
        self._compacted = other._compacted

    async def open(self) -> int:
        """Nothing to prepare."""
        return self._compacted

    async def replay(self, inspect: Inspect = uninspected) -> AsyncIterator[Sequence[Record]]:
        """Yield everything in one portion."""
        yield [record._replace(decode_error=inspect(record.data)) for record in self._records.values()]

    async def begin(self) -> int:
        """Nothing can be lost."""
        return 0

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Keep `records`."""
        self._records.update((record.revision, record) for record in records)
        done(None)

    def fetch(self, revisions: Sequence[int]) -> "asyncio.Future[Sequence[Record]]":
        """Return those that are there."""
        found: asyncio.Future[Sequence[Record]] = asyncio.get_running_loop().create_future()
        found.set_result([self._records[revision] for revision in revisions if revision in self._records])
        return found

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        """Forget the records of `revisions`."""
        self._compacted = compacted
        for revision in revisions:
            self._records.pop(revision, None)
        done(None)

    async def close(self) -> None:
        """Nothing to let go of."""
