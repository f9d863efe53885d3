"""Checkpoint the write-ahead log into the database in time, and report failures."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from controller_manager.common.base.log import Logger

_AFTER = 8 << 20  # approximate bytes in the write-ahead log after which it is checkpointed
_MOST = 256 << 20  # bytes that readers may keep in it before a warning
_RETRY = 10.0  # seconds until a failed checkpoint is retried
_PAGE = 8192


class Folded(NamedTuple):
    """Pages in the write-ahead log, and how many of them are in the database too. `epoch` is that of the next log; 0 if
    this one continues.
    """

    pages: int
    folded: int
    epoch: int


Fold = Callable[[], "asyncio.Future[Folded]"]


class Checkpoints:
    """Decides when to checkpoint and counts the results. `fold` runs a checkpoint and raises if it fails."""

    def __init__(self, fold: Fold, log: Logger) -> None:
        self._fold = fold
        self._log = log
        self._size = 0
        self._running = False
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        self.problem = ""
        """The problem with the last checkpoint; empty if there is none."""
        self.succeeded = 0
        self.failed = 0

    def grown(self, size: int) -> None:
        """Note that about `size` bytes were added to the write-ahead log."""
        self._size += size + 3 * _PAGE
        if self._size >= _AFTER and not self._running and self._retry is None:
            self._start()

    def close(self) -> None:
        """Start no more checkpoints."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _start(self) -> None:
        self._retry = None
        if not self._closed:
            self._running = True
            self._fold().add_done_callback(self._ended)

    def _ended(self, work: "asyncio.Future[Folded]") -> None:
        self._running = False
        self._size = 0
        failure = work.exception()
        if failure is not None:
            self.failed += 1
            self._report(f"the write-ahead log cannot be folded into the database: {failure}")
            if not self._closed:
                self._retry = asyncio.get_running_loop().call_later(_RETRY, self._start)
            return
        self.succeeded += 1
        pages, folded, _ = work.result()
        held = (pages - folded) * _PAGE
        self._report(
            f"another process reads, and holds {held >> 20} MiB back in the write-ahead log" if held > _MOST else ""
        )

    def _report(self, problem: str) -> None:
        if problem and not self.problem:
            self._log.error("failed to checkpoint the write-ahead log", why=problem)
        elif self.problem and not problem:
            self._log.info("checkpoints of the write-ahead log succeed again")
        self.problem = problem
