"""The checker process of a store: its results are used for the verified portion only."""

import signal
import sqlite3
from pathlib import Path

import pytest

from apiserver_stub.storage import checker
from apiserver_stub.storage.audit import PORTION, Audit
from apiserver_stub.storage.checker import Checker, Portion, checker_of, portion_of
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.interface import Inspect, Unusable, Write
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import CorruptRow
from tests.apiserver_stub.storage.store_files import BODY

ROWS = PORTION + 100
INSPECTED: list[bytes] = []  # in this process; the checker process has its own list


def inspect(data: bytes) -> str:
    INSPECTED.append(data)
    return "" if data.startswith(b"{") else "it is no object"


async def opened(path: Path) -> WatchCache:
    INSPECTED.clear()
    store = WatchCache(EmbeddedStorage(SqliteBackend(path), StorageRules(inspect)))
    await store.start()
    return store


@pytest.fixture
async def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is large enough for the checker process, in two portions."""
    found = tmp_path / "store.db"
    storage = EmbeddedStorage(SqliteBackend(found))
    await storage.open()
    await storage.txn([Write("pods", f"ns/{number:04}", 0, BODY) for number in range(ROWS)])
    await storage.close()
    monkeypatch.setattr(checker, "_WORTH", 0)
    monkeypatch.setattr(checker, "_WAIT", 10.0)
    monkeypatch.setattr(checker, "_cores", lambda: 2)
    return found


def execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


async def test_verified_rows_are_not_inspected_again(path: Path) -> None:
    store = await opened(path)
    assert (len(store.snapshot("pods")), INSPECTED) == (ROWS, [])
    row = store.get("pods", "ns/0007")
    assert row is not None
    assert row.data == BODY.replace(b'"resourceVersion":""', b'"resourceVersion":"9"')
    await store.close()


async def test_damaged_object_is_found_in_its_portion(path: Path) -> None:
    execute(path, "UPDATE log SET data = replace(CAST(data AS TEXT), 'Pod', 'Pox') WHERE key = 'ns/0003'")
    store = await opened(path)
    row = store.get("pods", "ns/0003")
    assert isinstance(row, CorruptRow)
    assert row.decode_error == "the bytes are not those that were written"
    assert len(INSPECTED) == PORTION - 1, "the other portion is vouched for"
    await store.close()


async def test_damaged_record_is_reported_as_loss(path: Path) -> None:
    execute(path, "UPDATE log SET key = 'ns/other' WHERE key = 'ns/1050'")
    with pytest.raises(Unusable, match=r"damaged: revision 1052 \('pods' 'ns/other'\)"):
        await opened(path)


async def test_invalid_object_is_reported(path: Path) -> None:
    storage = EmbeddedStorage(SqliteBackend(path))
    await storage.open()
    await storage.txn([Write("pods", "ns/odd", 0, b"odd")])
    await storage.close()
    store = await opened(path)
    row = store.get("pods", "ns/odd")
    assert isinstance(row, CorruptRow)
    assert row.decode_error == "it is no object"
    await store.close()


async def test_exited_checker_process_is_replaced_by_inspection(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_PROCESS", "json.tool")
    store = await opened(path)
    assert (len(store.snapshot("pods")), len(INSPECTED)) == (ROWS, ROWS)
    await store.close()


async def test_hanging_checker_process_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Checker):
        def __init__(self, path: Path, inspect: Inspect) -> None:
            super().__init__(path, inspect)
            self._process.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(checker, "_WAIT", 0.1)
    monkeypatch.setattr(checker, "Checker", Stopped)
    store = await opened(path)
    assert (len(store.snapshot("pods")), len(INSPECTED)) == (ROWS, ROWS)
    await store.close()


def test_late_checker_process_is_used_once_it_catches_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(path)
    audit.open()
    first, second = [portion for portion, _ in audit.portions(PORTION, inspect)]
    audit.close()
    checks = Checker(path, inspect)
    checks._process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(checker, "_WAIT", 0.0)
    assert not checks.vouches(first)
    checks._process.send_signal(signal.SIGCONT)
    monkeypatch.setattr(checker, "_WAIT", 10.0)
    assert checks.vouches(second)
    checks.close()


def test_result_is_valid_for_one_portion(path: Path) -> None:
    audit = Audit(path)
    audit.open()
    first, second = [portion for portion, _ in audit.portions(PORTION, inspect)]
    audit.close()
    checks = Checker(path, inspect)
    assert checks.vouches(first)
    assert not checks.vouches(Portion(second.records, second.total + 1))
    assert not checks.vouches(Portion(0, 0)), "there is no more"
    checks.close()


def test_non_numeric_checksums_count_as_zero() -> None:
    assert portion_of([(b"x", 5), (b"y", None), (b"z", "7")]) == Portion(3, 5)


def test_small_stores_and_single_cores_use_no_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_cores", lambda: 1)
    assert checker_of(path, inspect) is None
    monkeypatch.setattr(checker, "_cores", lambda: 2)
    monkeypatch.setattr(checker, "_WORTH", path.stat().st_size + 1)
    assert checker_of(path, inspect) is None
