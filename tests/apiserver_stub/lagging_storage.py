"""A storage that delivers its events late or not at all to one user, as behind a slow network."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from apiserver_stub.storage.interface import Compare, Deliver, Listing, OnWatchEnd, Record, Storage, Write


class LaggingStorage:
    """Another user's view of a storage; its watch is late while it is `held`, and can be `cut`."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.held = False
        self._late: list[Callable[[], None]] = []
        self._cut: Callable[[str], None] = lambda _: None

    @property
    def problem(self) -> str:
        return self.inner.problem

    @property
    def failures(self) -> Mapping[str, int]:
        return self.inner.failures

    @property
    def checkpoint_counts(self) -> tuple[int, int]:
        return self.inner.checkpoint_counts

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        self.release()
        await self.inner.close()

    async def current_revision(self) -> int:
        return await self.inner.current_revision()

    async def oldest_revision(self) -> int:
        return await self.inner.oldest_revision()

    async def get(self, resource: str, key: str) -> Record | None:
        return await self.inner.get(resource, key)

    async def is_stale(self, resource: str, key: str) -> bool:
        return await self.inner.is_stale(resource, key)

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        return await self.inner.list(resource, at)

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        return self.inner.txn(writes, compares)

    async def watch(self, after: int, deliver: Deliver, ended: OnWatchEnd | None = None) -> Callable[[], None]:
        def take(records: Sequence[Record], revision: int) -> None:
            if self.held:
                self._late.append(lambda: deliver(records, revision))
            else:
                deliver(records, revision)

        stop = await self.inner.watch(after, take, ended)

        def cut(why: str) -> None:
            stop()
            if ended is not None:
                ended(why)

        self._cut = cut
        return stop

    def compact(self, revision: int) -> "asyncio.Future[None]":
        return self.inner.compact(revision)

    def cut(self, why: str = "the connection is gone") -> None:
        """End the watch and drop the late events."""
        self._late, self.held = [], False
        self._cut(why)

    def release(self) -> None:
        """Deliver all late events, and later ones at once."""
        late, self._late, self.held = self._late, [], False
        for deliver in late:
            deliver()
