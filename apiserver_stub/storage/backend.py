"""The protocol of the log behind the embedded storage. A backend does not interpret the data."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from apiserver_stub.storage.interface import Inspect, Record, uninspected

# Called on the loop when the operation is done, with its exception if it failed.
Done = Callable[[BaseException | None], None]


class Backend(Protocol):
    """A durable, ordered log of records.

    Call `open`, then `replay` to its end, then `begin`, then the others. At most one `append` and one `compact` are
    pending at a time. `append` is atomic. If it fails, the records will never appear, unless the failure is `Unknown`.
    """

    @property
    def problem(self) -> str:
        """Return a problem of the log that does not prevent writes; empty if there is none."""

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        """Return the numbers of successful and failed checkpoints."""

    async def open(self) -> int:
        """Open the log and return the revision up to which it is compacted. Raises `Unusable`."""

    def replay(self, inspect: Inspect = uninspected) -> AsyncIterator[Sequence[Record]]:
        """Yield every record in order of revision, in portions, with the result of `inspect`. Raises `Unusable`."""

    async def begin(self) -> int:
        """Check that every acknowledged record is there, and start accepting records. Return the earliest revision
        after which the history may begin. Raises `Unusable`.
        """

    def append(self, records: Sequence[Record], done: Done) -> None:
        """Make `records` durable, then call `done`; its failure is `Unknown` if the outcome is not known."""

    def fetch(self, revisions: Sequence[int]) -> "asyncio.Future[Sequence[Record]]":
        """Return the records of these revisions, in order, without removed ones."""

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        """Record the compacted revision and remove the records of `revisions` atomically, then call `done`."""

    async def close(self) -> None:
        """Finish pending operations and close the log."""
