"""A storage that tells one of its users what happened when it is told to, as one behind a network does."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from apiserver_stub.storage.interface import Compare, Deliver, Listing, Record, Storage, Write


class LaggingStorage:
    """Another user's view of a storage, whose watch is late while it is `held`."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.held = False
        self._late: list[Callable[[], None]] = []

    @property
    def trouble(self) -> str:
        return self.inner.trouble

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

    async def list(self, resource: str | None = None, at: int | None = None) -> Listing:
        return await self.inner.list(resource, at)

    def txn(self, writes: Sequence[Write], compares: Sequence[Compare] = ()) -> "asyncio.Future[int]":
        return self.inner.txn(writes, compares)

    async def watch(self, after: int, deliver: Deliver) -> Callable[[], None]:
        def take(records: Sequence[Record], revision: int) -> None:
            if self.held:
                self._late.append(lambda: deliver(records, revision))
            else:
                deliver(records, revision)

        return await self.inner.watch(after, take)

    def compact(self, revision: int) -> "asyncio.Future[None]":
        return self.inner.compact(revision)

    def release(self) -> None:
        """Tell everything that is late, and no more is."""
        late, self._late, self.held = self._late, [], False
        for tell in late:
            tell()
