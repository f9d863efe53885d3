"""Killed under a load of writes, the store has every acknowledged write and the whole history."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.base.random import random_source

KILLS = 3

LOAD = """
import asyncio, sys
from pathlib import Path
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.storage.interface import Write

BODY = b'{"metadata":{"resourceVersion":""}}'

async def writer(store, name):
    number = 0
    while True:
        number += 1
        key = f"{name}-{number % 7}"
        row = store.get("pods", key)
        delete = row is not None and number % 5 == 0
        expected = row.revision if row else 0
        made = await store.commit(Write("pods", key, expected, BODY, deleted=delete))
        print(key, made.revision, expected, int(delete), flush=True)

async def report_compaction(backend):
    while not backend._state.floor:
        await asyncio.sleep(0.01)
    print("compacted", flush=True)

async def main():
    backend = SqliteBackend(Path(sys.argv[1]))
    store = WatchCache(EmbeddedStorage(backend), Retention(total=40 * int(sys.argv[3])))
    await store.start()
    store._upkeep._pause = 0.05
    async with asyncio.TaskGroup() as group:
        group.create_task(report_compaction(backend))
        for number in range(16):
            group.create_task(writer(store, f"{sys.argv[2]}-{number}"))

asyncio.run(main())
"""


class Acknowledged(NamedTuple):
    """One line of the killed process; `before` is the replaced revision."""

    key: str
    revision: int
    before: int
    deleted: bool


def run_and_kill(
    path: Path, name: str, changes: int, moment: float = 0.25, compacts: bool = False
) -> list[Acknowledged]:
    """The writes that the process acknowledged before it was killed; with `compacts`, after a compaction."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, str(path), name, str(changes)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while compacts and lines[-1] not in ("compacted\n", ""):
        lines.append(process.stdout.readline())
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    process.wait()
    assert process.returncode == -signal.SIGKILL
    whole = [line.split() for line in lines if line.endswith("\n") and line != "compacted\n"]
    return [Acknowledged(key, int(revision), int(before), deleted == "1") for key, revision, before, deleted in whole]


@pytest.mark.e2e
@pytest.mark.parametrize("changes", [1_000_000, 50], ids=["whole history", "compacting"])
async def test_every_acknowledged_write_survives_sigkill(tmp_path: Path, changes: int) -> None:
    rows: dict[str, int] = {}
    revision = 0
    for kill in range(KILLS):
        writes = run_and_kill(tmp_path / "store.db", f"run{kill}", changes, compacts=changes == 50)
        assert len(writes) > 16
        assert min(write.revision for write in writes) > revision
        store = WatchCache(EmbeddedStorage(SqliteBackend(tmp_path / "store.db")))
        await store.start()
        check_history(store, writes)
        rows |= expected_rows(store, writes)
        assert {row.key: row.revision for row in store.snapshot("pods").items()} == rows
        assert (store.history("pods").trimmed > 0) is (changes == 50)
        revision = store.revision
        await store.close()


@pytest.mark.e2e
@pytest.mark.virtual(seeds=2)
async def test_repeated_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    """`make soak ARGS=tests/apiserver_stub/storage/test_crash.py` tries thousands of moments."""
    rows: dict[str, int] = {}
    revision = 0
    for kill in range(3):
        moment = random_source().uniform(0, 0.2)
        writes = run_and_kill(tmp_path / "store.db", f"run{kill}", int(random_source().uniform(1, 200)), moment)
        assert min(write.revision for write in writes) > revision
        store = WatchCache(EmbeddedStorage(SqliteBackend(tmp_path / "store.db")))
        await store.start()
        rows |= expected_rows(store, writes)
        found = {row.key: row.revision for row in store.snapshot("pods").items()}
        assert {key: found.get(key, 0) for key in rows} == rows
        revision = store.revision
        await store.close()


def check_history(store: WatchCache, writes: list[Acknowledged]) -> None:
    window = store.history("pods")
    history = {change.revision: change for change in window.since(window.first)}
    for write in writes:
        if write.revision > store.history("pods").trimmed:
            change = history[write.revision]
            before = change.before.revision if change.before is not None else 0
            assert (change.row.key, before, change.deleted) == (write.key, write.before, write.deleted)
            assert change.row.data == b'{"metadata":{"resourceVersion":"%d"}}' % write.revision


def expected_rows(store: WatchCache, writes: list[Acknowledged]) -> dict[str, int]:
    """The state after the acknowledged writes, and the pending ones: they are the newest in the history."""
    assert store.revision >= max(write.revision for write in writes)
    last = {write.key: (write.revision, write.deleted) for write in sorted(writes, key=lambda write: write.revision)}
    for change in store.history("pods").since(store.history("pods").first):
        if change.row.key.startswith(writes[0].key.split("-")[0]):
            last[change.row.key] = (change.revision, change.deleted)
    return {key: revision for key, (revision, deleted) in last.items() if not deleted}
