"""The place where the embedded storage keeps its log, which never looks into the data."""

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
    failure is `Unknown`.
    """

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
