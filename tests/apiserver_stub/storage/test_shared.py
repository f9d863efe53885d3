"""A storage shared by several workers survives its owner, and the owner survives slow workers."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from apiserver_stub.storage.interface import Record, RevisionConflict, TooNew, Write
from apiserver_stub.storage.shared import owner as owning
from apiserver_stub.storage.shared.messages import MessageReader
from apiserver_stub.storage.shared.storage import SharedStorage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.errors import ServiceUnavailable, Timeout
from controller_manager.common.base.random import random_source
from tests.apiserver_stub.conftest import Disk
from tests.apiserver_stub.storage_owner import InProcessOwner

pytestmark = pytest.mark.virtual


def put(key: str, expected: int = 0, text: str = "") -> Write:
    return Write("pods", key, expected, b'{"metadata":{"resourceVersion":""},"text":"%b"}' % text.encode())


@pytest.fixture
async def owner(disk: Disk) -> AsyncIterator[InProcessOwner]:
    made = InProcessOwner(disk)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def storage(owner: InProcessOwner) -> AsyncIterator[SharedStorage]:
    made = SharedStorage(owner.path, owner.page)
    await made.open()
    yield made
    await made.close()


async def test_requests_without_owner_wait_for_the_next_one(owner: InProcessOwner, storage: SharedStorage) -> None:
    first = await storage.txn([put("a")])
    await owner.stop()
    await asyncio.sleep(0.1)
    assert "gone" in storage.problem
    asked = storage.txn([put("b")]), asyncio.ensure_future(storage.get("pods", "a"))
    await asyncio.sleep(3)
    assert not any(one.done() for one in asked)
    await owner.start()
    assert await asked[0] == first + 1
    found = await asked[1]
    assert found is not None
    assert found.revision == first
    assert storage.problem == ""


async def test_waiting_for_an_owner_has_a_timeout(owner: InProcessOwner, storage: SharedStorage) -> None:
    await owner.stop()
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ServiceUnavailable, match="owner"):
        await storage.txn([put("a")])
    with pytest.raises(ServiceUnavailable, match="owner"):
        await storage.list()
    assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=1)
    assert storage.failures == {"refused": 1, "unknown": 0}


async def test_write_lost_with_its_owner_is_made_by_the_next(owner: InProcessOwner, storage: SharedStorage) -> None:
    asked = storage.txn([put("a")])
    await owner.kill()
    await owner.start()
    revision = await asked
    found = await storage.get("pods", "a")
    assert found is not None
    assert found.revision == revision


async def _kill_before_answer(owner: InProcessOwner) -> None:
    """Kill the owner when it has made a write but not yet answered."""
    before = owner.page.revision
    for _ in range(200):
        if owner.page.revision != before:
            break
        await asyncio.sleep(0)
    await owner.kill()


async def test_write_made_before_owner_died_is_not_repeated(owner: InProcessOwner, storage: SharedStorage) -> None:
    first = await storage.txn([put("a", text="old")])
    asked = storage.txn([put("b"), put("a", first, "new")])
    await _kill_before_answer(owner)
    await owner.start()
    assert await asked == first + 2
    assert await storage.current_revision() == first + 2


async def test_outcome_that_cannot_be_determined_is_unknown(owner: InProcessOwner, storage: SharedStorage) -> None:
    first = await storage.txn([put("a")])
    gone = storage.txn([Write("pods", "a", first, put("a").data, deleted=True)])
    await _kill_before_answer(owner)
    await owner.start()
    with pytest.raises(Timeout, match="unknown"):
        await gone
    assert storage.failures == {"refused": 0, "unknown": 1}
    assert await storage.get("pods", "a") is None


async def test_conflicts_are_reported_through_the_owner(owner: InProcessOwner, storage: SharedStorage) -> None:
    first = await storage.txn([put("a")])
    with pytest.raises(RevisionConflict) as refused:
        await storage.txn([put("a")])
    assert (refused.value.key, refused.value.current, refused.value.revision) == ("a", first, first)
    with pytest.raises(TooNew):
        await storage.list(at=first + 1)


async def test_write_failure_is_reported_to_all_workers(storage: SharedStorage, owner: InProcessOwner) -> None:
    other = SharedStorage(owner.path, owner.page)
    await other.open()
    assert isinstance(owner.backend, Disk)
    owner.backend.full = True
    with pytest.raises(ServiceUnavailable, match="no space"):
        await storage.txn([put("a")])
    await other.get("pods", "a")
    assert "no space" in storage.problem
    assert storage.problem == other.problem
    owner.backend.full = False
    await storage.txn([put("a")])
    await asyncio.sleep(1.1)
    assert storage.problem == other.problem == ""
    await other.close()


async def test_slow_worker_is_disconnected_and_blocks_no_others(
    owner: InProcessOwner, storage: SharedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owning, "_MOST_UNTAKEN", 4 << 20)
    other = SharedStorage(owner.path, owner.page)
    await other.open()
    received: list[int] = []
    ended: list[str] = []
    await other.watch(1, lambda records, _: received.extend(record.revision for record in records), ended.append)
    connection = other._connection
    assert connection is not None
    connection.hold(True)
    revision, text = 0, "x" * (1 << 20)
    for _ in range(20):
        revision = await storage.txn([put("a", revision, text)])
    connection.hold(False)
    await asyncio.sleep(1)
    assert ended == ["the owner of the store is gone"]
    seen = len(received)
    assert seen < 20
    await other.watch(
        received[-1] if received else 1, lambda records, _: received.extend(one.revision for one in records)
    )
    assert received == list(range(2, 22))
    await other.close()


async def test_long_list_is_sent_in_portions(owner: InProcessOwner, storage: SharedStorage) -> None:
    for number in range(0, 1200, 100):
        await storage.txn([put(f"{one:05}", text="x" * 3000) for one in range(number, number + 100)])
    found = await storage.list("pods")
    assert [record.key for record in found.records] == [f"{number:05}" for number in range(1200)]
    again: list[str] = []
    await storage.watch(1, lambda records, _: again.extend(record.key for record in records))
    assert len(again) == 1200


def test_messages_can_be_split_anywhere() -> None:
    sent = [bytes([65 + number]) * number for number in range(30)]
    stream = b"".join(len(one).to_bytes(4, "little") + one for one in sent)
    for size in (1, 3, 7, 64, len(stream)):
        reader = MessageReader(bytes)
        found = [one for at in range(0, len(stream), size) for one in reader.feed(stream[at : at + size])]
        assert found == sent
    with pytest.raises(ValueError, match="bytes"):
        reader.feed(b"\xff\xff\xff\xff")


class ConcurrentWriters:
    """Writers on the caches of several workers, and the events they received."""

    def __init__(self, caches: Sequence[WatchCache]) -> None:
        self.caches = caches
        self.acknowledged: dict[int, tuple[str, str]] = {}
        self.unknown = 0
        self.seen: list[list[Change]] = [[] for _ in caches]
        for cache, seen in zip(caches, self.seen, strict=True):
            cache.subscribe(seen.extend)

    async def write(self, name: str) -> None:
        """Change a few rows repeatedly; others change some of them too."""
        random = random_source()
        for number in range(30):
            cache = self.caches[int(random.uniform(0, len(self.caches)))]
            key = f"{name if random.uniform(0, 1) < 0.7 else 'all'}-{number % 3}"
            await cache.wait_for_latest()
            row = cache.get("pods", key)
            text = f"{name}/{number}"
            deleted = row is not None and random.uniform(0, 1) < 0.2
            write = Write("pods", key, row.revision if row else 0, put(key, text=text).data, deleted=deleted)
            try:
                made = await cache.commit(write)
            except RevisionConflict:
                continue
            except (Timeout, ServiceUnavailable):
                self.unknown += 1
                continue
            assert made.revision not in self.acknowledged
            self.acknowledged[made.revision] = key, text
            await asyncio.sleep(random.uniform(0, 0.05))


@pytest.mark.virtual(seeds=8)
async def test_acknowledged_writes_survive_any_failure(owner: InProcessOwner) -> None:
    """Owners are killed or replaced, and connections break: each cache gets every change once, in order."""
    caches = [WatchCache(SharedStorage(owner.path, owner.page)) for _ in range(3)]
    for cache in caches:
        await cache.start()
    trial, random = ConcurrentWriters(caches), random_source()
    writers = [asyncio.ensure_future(trial.write(f"w{number}")) for number in range(6)]
    while not all(writer.done() for writer in writers):
        await asyncio.sleep(random.uniform(0.1, 0.8))
        match int(random.uniform(0, 4)):
            case 0:
                await owner.kill()
                await asyncio.sleep(random.uniform(0, 2))
                await owner.start()
            case 1:
                await _kill_before_answer(owner)
                await owner.start()
            case 2:
                await owner.stop()
                await owner.start()
            case _:
                owner.cut_off(int(random.uniform(0, 3)))
    await asyncio.gather(*writers)
    await asyncio.sleep(30)
    log = [record async for records in _records(owner) for record in records]
    rows = {record.revision: (record.key, json.loads(record.data)["text"]) for record in log}
    assert trial.acknowledged.items() <= rows.items()
    assert len(trial.acknowledged) > 50
    for seen in trial.seen:
        assert [change.revision for change in seen] == sorted(rows)
    assert len({cache.revision for cache in caches}) == 1
    for cache in caches:
        await cache.close()


async def _records(owner: InProcessOwner) -> Any:
    async for records in owner.backend.replay():
        yield list[Record](records)
