"""A log that lives and dies with this object: for tests, and for clusters that need not survive."""

from collections.abc import AsyncIterator, Mapping, Sequence

from apiserver_stub.store.backend import Done
from apiserver_stub.store.row import Record


class MemoryBackend:
    """Durable at once, without threads or files; a second store opened on it later finds what the first one wrote."""

    trouble = ""
    checkpoint_counts = (0, 0)

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._marks: dict[str, int] = {}

    def copy(self) -> "MemoryBackend":
        """Another log with the same records: what a crash at this moment leaves."""
        other = MemoryBackend()
        other.adopt(self)
        return other

    def adopt(self, other: "MemoryBackend") -> None:
        """Hold what another log holds too; nothing may be open on this one yet."""
        self._records.update(other._records)
        self._marks.update(other._marks)

    async def open(self) -> Mapping[str, int]:
        """Nothing to prepare."""
        return self._marks.copy()

    async def replay(self) -> AsyncIterator[Sequence[Record]]:
        """Everything in one portion."""
        yield list(self._records.values())

    async def begin(self) -> int:
        """Nothing can be lost."""
        return 0

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Keep `records`."""
        self._records.update((record.revision, record) for record in records)
        done(None)

    def compact(self, marks: Mapping[str, int], revisions: Sequence[int], done: Done) -> None:
        """Forget the records of `revisions`."""
        self._marks.update(marks)
        for revision in revisions:
            self._records.pop(revision, None)
        done(None)

    async def close(self) -> None:
        """Nothing to let go of."""
