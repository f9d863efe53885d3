"""The embedded storage, when others act between its steps."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from apiserver_stub.storage import embedded
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Record, TooOld, Write
from tests.apiserver_stub.memory_backend import MemoryBackend

DATA = b'{"metadata":{"resourceVersion":""}}'


class InterruptedBackend(MemoryBackend):
    """Runs a function before the n-th fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches = 0
        self.before: dict[int, Callable[[], object]] = {}

    def fetch(self, revisions: Sequence[int]) -> "asyncio.Future[Sequence[Record]]":
        self.fetches += 1
        self.before.get(self.fetches, int)()
        return super().fetch(revisions)


@pytest.mark.parametrize("fetch", [1, 2, 3])
async def test_list_overtaken_by_compaction_is_rejected(monkeypatch: pytest.MonkeyPatch, fetch: int) -> None:
    monkeypatch.setattr(embedded, "_PORTION", 10)
    backend = InterruptedBackend()
    storage = EmbeddedStorage(backend)
    await storage.open()
    first = await storage.txn([Write("pods", f"{number:02}", 0, DATA) for number in range(25)])
    newest = await storage.txn([Write("pods", f"{number:02}", number + 2, DATA) for number in range(25)])
    for _ in range(2):
        backend.before = {fetch: lambda: storage.compact(newest)}
        with pytest.raises(TooOld):
            await storage.list(at=first)
    assert len((await storage.list()).records) == 25
    await storage.close()


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("fetch", [1, 2, 3, 4, 5])
async def test_watch_overtaken_by_compaction_is_rejected(
    monkeypatch: pytest.MonkeyPatch, fetch: int, deleted: bool
) -> None:
    monkeypatch.setattr(embedded, "_PORTION", 10)
    backend = InterruptedBackend()
    storage = EmbeddedStorage(backend)
    await storage.open()
    await storage.txn([Write("pods", f"{number:02}", 0, DATA) for number in range(25)])
    newest = await storage.txn([Write("pods", f"{number:02}", number + 2, DATA, deleted) for number in range(25)])
    received: list[int] = []
    backend.before = {fetch: lambda: storage.compact(newest)}
    with pytest.raises(TooOld):
        await storage.watch(1, lambda records, _: received.extend(record.revision for record in records))
    assert received == list(range(2, 2 + 10 * (fetch - 1)))
    await storage.txn([Write("pods", "new", 0, DATA)])
    assert len(received) == 10 * (fetch - 1)
    await storage.close()


async def test_write_between_list_and_watch_is_delivered() -> None:
    backend = MemoryBackend()
    first = EmbeddedStorage(backend)
    await first.open()
    await first.txn([Write("pods", "a", 0, DATA)])
    await first.close()
    storage = EmbeddedStorage(backend)
    await storage.open()
    await storage.txn([Write("pods", "b", 0, DATA)])
    received: list[str] = []
    await storage.watch(1, lambda records, _: received.extend(record.key for record in records))
    assert received == ["a", "b"]
    assert [record.key for record in (await storage.list()).records] == ["a", "b"]
    await storage.close()
