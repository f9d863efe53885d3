"""A failing disk: a write reported as failed never appears; one that may appear is reported as unknown."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.storage import sqlite
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Unusable, Write
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import ApiError, ServiceUnavailable, Timeout

from .test_integrity import backend_of, crash

SYNC_FAILED = sqlite3.SQLITE_IOERR_FSYNC


BODY = b'{"metadata":{"resourceVersion":""}}'


class FailingConnection(sqlite3.Connection):
    """Commits and then reports a failure, as a failed sync leaves it; or fails without effect."""

    failing: Callable[[str], bool] = staticmethod(lambda _: False)
    written = True
    code = SYNC_FAILED

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if not FailingConnection.failing(sql):
            return super().execute(sql, parameters)
        if FailingConnection.written and not sql.startswith("BEGIN"):
            super().execute(sql, parameters)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = FailingConnection.code
        raise error


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make statements with these prefixes fail, with or without effect, a number of times."""
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite.sqlite3, "connect", lambda *args, **kwargs: connect(*args, **kwargs, factory=FailingConnection)
    )
    monkeypatch.setattr(FailingConnection, "failing", staticmethod(lambda _: False))

    def fail(*beginnings: str, times: int = 10**9, written: bool = True, code: int = SYNC_FAILED) -> None:
        left = iter(range(times))
        monkeypatch.setattr(FailingConnection, "written", written)
        monkeypatch.setattr(FailingConnection, "code", code)
        monkeypatch.setattr(
            FailingConnection,
            "failing",
            staticmethod(lambda sql: sql.startswith(beginnings) and next(left, None) is not None),
        )

    return fail


@pytest.fixture
async def store(failing: object, tmp_path: Path) -> AsyncIterator[WatchCache]:
    made = WatchCache(EmbeddedStorage(SqliteBackend(tmp_path / "live" / "store.db")))
    await made.start()
    await made.commit(Write("pods", "kept", 0, BODY))
    yield made
    await made.close()


async def rows_after_kill(tmp_path: Path) -> dict[str, int]:
    left = crash(tmp_path / "live" / "store.db", Path(tempfile.mkdtemp(dir=tmp_path)) / "killed")
    again = WatchCache(EmbeddedStorage(SqliteBackend(left)))
    with pytest.MonkeyPatch.context() as sound:
        sound.setattr(FailingConnection, "failing", staticmethod(lambda _: False))
        await again.start()
        found = {row.key: row.revision for row in again.snapshot("pods").items()}
        await again.close()
    return found


async def write_error(store: WatchCache, key: str, expected: int = 0) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await store.commit(Write("pods", key, expected, BODY))
    return caught.value


@pytest.mark.parametrize("written", [True, False])
async def test_write_reported_as_failed_does_not_reappear(
    store: WatchCache, failing: Any, tmp_path: Path, written: bool
) -> None:
    failing("INSERT INTO log", times=1, written=written)
    answer = await write_error(store, "failed")
    assert (type(answer), "disk I/O error" in answer.message) == (ServiceUnavailable, True)
    assert await rows_after_kill(tmp_path) == {"kept": 2}
    assert (await store.commit(Write("pods", "later", 0, BODY))).revision == 4
    assert await rows_after_kill(tmp_path) == {"kept": 2, "later": 4}


async def test_write_that_cannot_be_rolled_back_is_unknown(store: WatchCache, failing: Any, tmp_path: Path) -> None:
    failing("INSERT INTO log", "BEGIN", written=True)
    answer = await write_error(store, "perhaps")
    assert (type(answer), "unknown whether the write was applied" in answer.message) == (Timeout, True)
    assert store.get("pods", "perhaps") is None
    assert store.storage.failures == {"refused": 0, "unknown": 1}
    assert await rows_after_kill(tmp_path) == {"kept": 2, "perhaps": 3}
    nothing_was_tried = await write_error(store, "failed")
    assert type(nothing_was_tried) is ServiceUnavailable
    assert await rows_after_kill(tmp_path) == {"kept": 2, "perhaps": 3}
    assert store.storage.problem
    failing()
    assert (await store.commit(Write("pods", "perhaps", 0, BODY))).revision == 5
    assert await rows_after_kill(tmp_path) == {"kept": 2, "perhaps": 5}
    assert not store.storage.problem


async def test_close_rolls_back_unknown_write(store: WatchCache, failing: Any, tmp_path: Path) -> None:
    failing("INSERT INTO log", "BEGIN", written=True)
    assert type(await write_error(store, "perhaps")) is Timeout
    failing()
    await store.close()
    assert await rows_after_kill(tmp_path) == {"kept": 2}


async def test_unwritable_witness_makes_write_unknown(
    store: WatchCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(backend_of(store)._beside, "note", fail)
        answer = await write_error(store, "perhaps")
        assert (type(answer), "No space left" in answer.message) == (Timeout, True)
    await store.commit(Write("pods", "later", 0, BODY))
    assert await rows_after_kill(tmp_path) == {"kept": 2, "later": 4}


async def test_failed_compaction_is_harmless(store: WatchCache, failing: Any, tmp_path: Path) -> None:
    revision = 2
    for _ in range(5):
        revision = (await store.commit(Write("pods", "kept", revision, BODY))).revision
    for statement in ("BEGIN", "DELETE", "INSERT INTO state", "COMMIT"):
        failing(statement, times=1, written=statement != "COMMIT")
        store.storage.compact(revision)
        await store.commit(Write("pods", statement, 0, BODY))
        assert (await rows_after_kill(tmp_path))["kept"] == revision
    failing()
    await store.storage.compact(revision)
    await store.commit(Write("pods", "last", 0, BODY))
    assert len(await rows_after_kill(tmp_path)) == 6


async def test_failed_checkpoints_are_counted_and_retried(
    store: WatchCache, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiserver_stub.storage.checkpoints._RETRY", 0.01)
    checkpoints = backend_of(store).checkpoints
    failing("PRAGMA wal_checkpoint", written=False)
    checkpoints.grown(100 << 20)
    await wait_until(lambda: checkpoints.failed > 2)
    assert store.storage.problem == "the write-ahead log cannot be folded into the database: disk I/O error"
    await store.commit(Write("pods", "a", 0, BODY))
    assert store.storage.problem
    failing()
    await wait_until(lambda: not store.storage.problem)
    assert store.storage.checkpoint_counts[0] == 1


async def test_checkpoints_happen_as_the_log_grows(store: WatchCache) -> None:
    for number in range(30):
        await store.commit(Write("pods", f"large-{number}", 0, b"x" * 1_000_000))
    await wait_until(lambda: store.storage.checkpoint_counts[0] >= 3)
    log = backend_of(store)._path.with_name("store.db-wal")
    assert log.stat().st_size < 16 << 20


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


WRITER = """
import asyncio, ctypes, os, struct, sys
from pathlib import Path
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.storage.interface import Write

X86, ARM = {"sync": [74, 75], "write": [18]}, {"sync": [82, 83], "write": [68]}
NUMBERS = {"x86_64": X86, "aarch64": ARM}[os.uname().machine]

def fail(calls, error):
    # The system refuses these calls of this thread, and of no other, from now on (a seccomp filter).
    libc = ctypes.CDLL(None, use_errno=True)
    steps = [struct.pack("HBBI", 0x20, 0, 0, 0)]
    for number in calls:
        steps += [struct.pack("HBBI", 0x15, 0, 1, number), struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | error)]
    steps.append(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()

async def attempt(store, key):
    try:
        row = await store.commit(Write("pods", key, 0, b'{}'))
        print(key, "made", row.revision, flush=True)
    except Exception as error:
        print(key, type(error).__name__, 0, flush=True)

async def main():
    backend = SqliteBackend(Path(sys.argv[1]))
    store = WatchCache(EmbeddedStorage(backend))
    await store.start()
    for number in range(3):
        await attempt(store, f"before-{number}")
    await backend._run(fail, NUMBERS[sys.argv[2]], int(sys.argv[3]))
    for number in range(3):
        await attempt(store, f"after-{number}")
    await asyncio.gather(*(attempt(store, f"group-{number}") for number in range(5)))
    print("end of it", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="the system call filter is Linux's")
@pytest.mark.parametrize(("calls", "error"), [("sync", 5), ("sync", 28), ("write", 28), ("write", 5)])
async def test_answers_hold_if_system_calls_fail(tmp_path: Path, calls: str, error: int) -> None:
    """Real failures of fsync and write in the writer thread, then SIGKILL: each answer holds after the restart."""
    path = tmp_path / "store.db"
    answers = run_and_kill([sys.executable, "-c", WRITER, str(path), calls, str(error)])
    kinds = {kind for _, kind, _ in answers}
    assert [kind for _, kind, _ in answers[:3]] == ["made"] * 3
    assert kinds == ({"made", "Timeout", "ServiceUnavailable"} if calls == "sync" else {"made", "ServiceUnavailable"})
    store = WatchCache(EmbeddedStorage(SqliteBackend(path)))
    await store.start()
    for key, kind, revision in answers:
        row = store.get("pods", key)
        if kind == "made":
            assert row is not None
            assert row.revision == revision
        elif kind == "ServiceUnavailable":
            assert row is None, key
    await store.commit(Write("pods", "new", 0, BODY))
    await store.close()


def run_and_kill(command: Sequence[str]) -> list[tuple[str, str, int]]:
    """The results that the process printed for its writes before it was killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        if line.startswith("end"):
            break
        lines.append(line.split())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return [(key, kind, int(revision)) for key, kind, revision in lines]


async def test_no_space_for_witness_is_one_error_line(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Unusable, match="No space left on device"):
        await WatchCache(EmbeddedStorage(SqliteBackend(tmp_path / "store.db"))).start()
