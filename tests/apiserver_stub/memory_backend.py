"""A log of the embedded storage in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.interface import Inspect, Record, uninspected


class MemoryBackend:
    """Durable at once, without threads or files; a second storage on it reads what the first one wrote."""

    problem = ""
    checkpoint_counts = (0, 0)

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._compacted = 0

    def copy(self) -> "MemoryBackend":
        """Return a copy with the same records, as a crash would leave them."""
        other = MemoryBackend()
        other.adopt(self)
        return other

    def adopt(self, other: "MemoryBackend") -> None:
        """Add the records of another log; no storage may be open on this one yet."""
        self._records.update(other._records)
        self._compacted = other._compacted

    async def open(self) -> int:
        """Return the compacted revision; there is nothing to prepare."""
        return self._compacted

    async def replay(self, inspect: Inspect = uninspected) -> AsyncIterator[Sequence[Record]]:
        """Yield everything in one portion."""
        yield [record._replace(decode_error=inspect(record.data)) for record in self._records.values()]

    async def begin(self) -> int:
        """Return 0: nothing can be lost."""
        return 0

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Keep `records`."""
        self._records.update((record.revision, record) for record in records)
        done(None)

    def fetch(self, revisions: Sequence[int]) -> "asyncio.Future[Sequence[Record]]":
        """Return the existing records of `revisions`."""
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
        """Do nothing."""
