"""A SQLite backend for tests of whole servers, with `--storage=sqlite` or `workers`."""

import asyncio
import atexit
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.interface import Inspect, Record, uninspected
from apiserver_stub.storage.sqlite import SqliteBackend
from tests.apiserver_stub.memory_backend import MemoryBackend

_RAM = Path("/dev/shm")


class MirroredSqliteBackend(MemoryBackend):
    """A log that is also stored in a file and read from there. Its initial records are written when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None)
        atexit.register(self._folder.cleanup)
        self._path = Path(self._folder.name) / "apiserver.db"

    @property
    def problem(self) -> str:  # type: ignore[override]
        return self._file.problem

    @property
    def checkpoint_counts(self) -> tuple[int, int]:  # type: ignore[override]
        return self._file.checkpoint_counts

    async def open(self) -> int:
        if self._records and not self._path.exists():
            await self._begin()
        self._file = SqliteBackend(self._path)
        return await self._file.open()

    async def replay(self, inspect: Inspect = uninspected) -> AsyncIterator[Sequence[Record]]:
        async for records in self._file.replay(inspect):
            yield records

    async def begin(self) -> int:
        return await self._file.begin()

    def append(self, records: Sequence[Record], done: Done) -> None:
        def written(failure: BaseException | None) -> None:
            if failure is None:
                super(MirroredSqliteBackend, self).append(records, lambda _: None)
            done(failure)

        self._file.append(records, written)

    def fetch(self, revisions: Sequence[int]) -> Any:
        return self._file.fetch(revisions)

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        super().compact(compacted, revisions, lambda _: None)
        self._file.compact(compacted, revisions, done)

    async def close(self) -> None:
        await self._file.close()

    async def _begin(self) -> None:
        file = SqliteBackend(self._path)
        await file.open()
        async for _ in file.replay():
            pass
        await file.begin()
        done: Any = asyncio.get_running_loop().create_future()
        records = list(self._records.values())
        file.append(records, done.set_result)
        assert await done is None
        await file.close()
