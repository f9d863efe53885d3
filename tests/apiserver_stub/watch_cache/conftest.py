"""Watch caches on backends that hold writes back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.backend import Backend, Done
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record
from apiserver_stub.storage.pipeline import GroupLimits
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.commits import WriteLimits
from apiserver_stub.watch_cache.hub import Hub
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.watch_cache.watch_readers import Cluster


def body(text: str = "") -> bytes:
    return b'{"metadata":{"resourceVersion":""},"text":"%b"}' % text.encode()


def content(store: WatchCache, resource: str = "pods") -> dict[str, int]:
    return {row.key: row.revision for row in store.snapshot(resource).items()}


async def ready() -> None:
    """Run everything that is ready on the loop."""
    for _ in range(10):
        await asyncio.sleep(0)


class HeldBackend(MemoryBackend):
    """A backend that finishes a group, with or without error, only on request."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Sequence[Record], Done]] = []
        self.compactable = True

    def append(self, records: Sequence[Record], done: Done) -> None:
        self.held.append((records, done))

    async def finish(self, failure: Exception | None = None) -> int:
        await ready()
        records, done = self.held.pop()
        if failure is None:
            super().append(records, done)
        else:
            done(failure)
        await ready()
        return len(records)

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        if self.compactable:
            super().compact(compacted, revisions, done)
        else:
            done(OSError("no space left"))


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Backend]:
    """Open the same log repeatedly."""
    memory = MemoryBackend()
    return lambda: memory if request.param == "memory" else SqliteBackend(tmp_path / "store.db")


@pytest.fixture
async def store(reopen: Callable[[], Backend]) -> AsyncIterator[WatchCache]:
    made = WatchCache(EmbeddedStorage(reopen()))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def backend() -> HeldBackend:
    return HeldBackend()


@pytest.fixture
async def held(backend: HeldBackend) -> WatchCache:
    made = WatchCache(EmbeddedStorage(backend, limits=GroupLimits(records=3)), limits=WriteLimits(transactions=7))
    await made.start()
    return made


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention(changes=100))
    await store.start()
    representations = RepresentationCache(store, size=256 << 20)
    made = Cluster(store, representations, Hub(store, representations))
    yield made
    made.hub.close()
    await asyncio.wait_for(asyncio.gather(*made.readers), 1)
    await store.close()
