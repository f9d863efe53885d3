"""Commits that amend one row: made together, each with its own result."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Compare, RevisionConflict, Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.joint_commits import Amend
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import Forbidden, ServiceUnavailable
from tests.apiserver_stub.lagging_storage import LaggingStorage
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.watch_cache.conftest import HeldBackend, body, content, ready

pytestmark = pytest.mark.virtual
COUNTER = "counters"
MOST = 1000


def counter(number: int) -> bytes:
    return b'{"metadata":{"resourceVersion":""},"number":%d}' % number


def number(store: WatchCache) -> int:
    row = store.get(COUNTER, "n/c")
    assert row is not None
    found: int = json.loads(row.data)["number"]
    return found


def incremented(data: bytes, most: int = MOST) -> bytes:
    found: int = json.loads(data)["number"]
    if found >= most:
        raise Forbidden("no more")
    return counter(found + 1)


AMEND = Amend(COUNTER, "n/c", incremented)


def put(key: str, expected: int = 0, text: str = "") -> Write:
    return Write("pods", key, expected, body(text))


async def start(store: WatchCache) -> WatchCache:
    await store.start()
    await store.commit(Write(COUNTER, "n/c", 0, counter(0)))
    return store


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    store = await start(WatchCache(EmbeddedStorage(MemoryBackend())))
    yield store
    await store.close()


async def outcomes(*commits: "asyncio.Task[Row] | object") -> list[Row | BaseException]:
    return await asyncio.gather(*commits, return_exceptions=True)  # type: ignore[call-overload,no-any-return]


async def test_many_commits_share_few_transactions(store: WatchCache) -> None:
    rows = await outcomes(*(store.commit(put(f"n/{name}", text=str(name)), AMEND) for name in range(100)))
    assert number(store) == 100
    for name, row in enumerate(rows):
        assert isinstance(row, Row)
        assert row is store.get("pods", f"n/{name}")
    changes = [change for change in store.history(COUNTER).since(0) if change.row.key == "n/c"]
    assert len(changes) < 10


async def test_failed_condition_affects_no_other_commit(store: WatchCache) -> None:
    await store.commit(put("n/3"))
    gone = Compare("pods", "n/none", 7)
    commits = [store.commit(put(f"n/{name}"), AMEND, *((gone,) if name == 5 else ())) for name in range(10)]
    found = await outcomes(*commits)
    failed = [name for name, outcome in enumerate(found) if isinstance(outcome, RevisionConflict)]
    assert failed == [3, 5]
    assert number(store) == 8
    assert len(content(store)) == 9


async def test_commits_of_same_row_are_serialized(store: WatchCache) -> None:
    found = await outcomes(*(store.commit(put("n/same"), AMEND) for _ in range(3)))
    assert [isinstance(outcome, RevisionConflict) for outcome in found] == [False, True, True]
    assert number(store) == 1


async def test_commit_rejected_by_amended_row_is_not_written(store: WatchCache) -> None:
    amend = Amend(COUNTER, "n/c", lambda data: incremented(data, 4))
    found = await outcomes(*(store.commit(put(f"n/{name}"), amend) for name in range(10)))
    assert [isinstance(outcome, Forbidden) for outcome in found] == [False] * 4 + [True] * 6
    assert number(store) == len(content(store)) == 4


async def test_failed_commit_uses_no_capacity(store: WatchCache) -> None:
    await store.commit(put("n/1"))
    amend = Amend(COUNTER, "n/c", lambda data: incremented(data, 3))
    found = await outcomes(*(store.commit(put(f"n/{name}"), amend) for name in range(5)))
    assert [type(outcome).__name__ for outcome in found] == ["Row", "RevisionConflict", "Row", "Row", "Forbidden"]
    assert number(store) == 3


async def test_deleted_row_is_not_amended(store: WatchCache) -> None:
    row = store.get(COUNTER, "n/c")
    assert row is not None
    await store.commit(Write(COUNTER, "n/c", row.revision, counter(0), deleted=True))
    assert await store.commit(put("n/a"), AMEND) is store.get("pods", "n/a")
    assert store.get(COUNTER, "n/c") is None


async def test_direct_writes_of_amended_row_are_serialized(store: WatchCache) -> None:
    row = store.get(COUNTER, "n/c")
    assert row is not None
    by_hand = store.commit(Write(COUNTER, "n/c", row.revision, counter(50)))
    await outcomes(by_hand, *(store.commit(put(f"n/{name}"), AMEND) for name in range(5)))
    assert number(store) == 55


async def test_raising_amendment_affects_no_other_commit(store: WatchCache) -> None:
    def broken(_: bytes) -> bytes:
        raise KeyError("broken")

    first = asyncio.ensure_future(store.commit(put("n/first"), AMEND))
    await asyncio.sleep(0)
    rest = [store.commit(put("n/a"), AMEND), store.commit(put("n/b"), Amend(COUNTER, "n/c", broken))]
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    found = await outcomes(first, *rest)
    assert isinstance(found[0], Row)
    assert isinstance(found[2], KeyError)
    await store.commit(put("n/c"), AMEND)
    assert number(store) == len(content(store))


async def test_canceled_commit_is_not_counted() -> None:
    backend = HeldBackend()
    store = WatchCache(EmbeddedStorage(backend))
    await store.start()
    made = asyncio.ensure_future(store.commit(Write(COUNTER, "n/c", 0, counter(0))))
    await backend.finish()
    await made
    tasks = [asyncio.ensure_future(store.commit(put(f"n/{name}"), AMEND)) for name in range(3)]
    await ready()
    tasks[1].cancel()
    for _ in range(2):
        await backend.finish()
    await outcomes(*tasks)
    assert number(store) == len(content(store)) == 2


async def test_close_rejects_waiting_commits() -> None:
    backend = HeldBackend()
    store = WatchCache(EmbeddedStorage(backend))
    await store.start()
    made = asyncio.ensure_future(store.commit(Write(COUNTER, "n/c", 0, counter(0))))
    await backend.finish()
    await made
    tasks = [asyncio.ensure_future(store.commit(put(f"n/{name}"), AMEND)) for name in range(3)]
    await ready()
    closing = asyncio.ensure_future(store.close())
    await backend.finish()
    await closing
    found = await outcomes(*tasks)
    assert isinstance(found[0], Row)
    assert all(isinstance(outcome, ServiceUnavailable) for outcome in found[1:])


@pytest.mark.parametrize("lag", [0.0, 0.05])
async def test_two_servers_amend_one_row(lag: float) -> None:
    storage = EmbeddedStorage(MemoryBackend())
    late = LaggingStorage(storage)
    one, other = await start(WatchCache(storage)), WatchCache(late)
    await other.start()

    async def be_late() -> None:
        while lag:
            late.held = True
            await asyncio.sleep(lag)
            late.release()
            await asyncio.sleep(lag)

    lagging = asyncio.ensure_future(be_late())
    commits = [cache.commit(put(f"n/{cache is one}-{name}"), AMEND) for name in range(50) for cache in (one, other)]
    found = await outcomes(*commits)
    lagging.cancel()
    assert all(isinstance(outcome, Row) for outcome in found)
    assert number(one) == len(content(one)) == 100
    await other.close()
    await one.close()
