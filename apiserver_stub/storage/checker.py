"""A second process that checks the records of a store on another core while this process reads them.

It reads the same portions as `Audit`. For each it reports the number of records, the sum of their checksums, and
whether all are valid. If a portion has the same number and sum, its records need no further check. There is no voucher
for invalid records, or after the process ended: those are checked here.
"""

import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from apiserver_stub.storage.interface import Inspect
from controller_manager.common.base.clock import monotonic

Columns = tuple[Any, ...]
"""The columns of `schema.records_query`; those of a damaged record can have any type."""
VOUCHER = Struct("<IQ?")
"""The format of a voucher: number of records, sum of checksums, and whether all are valid."""
_PROCESS = "apiserver_stub.storage.check_process"
_WORTH = 64 << 20  # bytes of a database; starting another process takes a tenth of a second
_MASK = (1 << 64) - 1
_WAIT = 0.01  # seconds to wait for a voucher: as long as checking the portion here
_PATIENCE = 10.0  # seconds to wait for the process to end after it was killed


class Portion(NamedTuple):
    """The count and checksums of records that were read together."""

    records: int
    total: int


def portion_of(rows: Sequence[Columns]) -> Portion:
    """Return the portion of some rows. Damaged checksums can have any type."""
    return Portion(len(rows), sum(row[-1] for row in rows if isinstance(row[-1], int)) & _MASK)


def checker_of(path: Path, inspect: Inspect) -> "Checker | None":
    """Return a checker if the database is large and a core is free."""
    if path.stat().st_size < _WORTH or _cores() < 2:
        return None
    return Checker(path, inspect)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Checker:
    """The process that checks a database with `inspect`, a module-level function."""

    def __init__(self, path: Path, inspect: Inspect) -> None:
        command = (sys.executable, "-m", _PROCESS, str(path), inspect.__module__, inspect.__qualname__)
        nothing = subprocess.DEVNULL
        # Unbuffered, so that the selector reports all available data.
        self._process = subprocess.Popen(command, bufsize=0, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)  # noqa: S603 - ours
        assert self._process.stdout is not None
        self._vouchers = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._vouchers, selectors.EVENT_READ)
        self._due = 0  # vouchers still to be read before that of the last portion

    def vouches(self, portion: Portion) -> bool:
        """Return whether the next voucher is for this portion and reports it as valid. A process that is late is
        skipped and used again after it has caught up.
        """
        self._due += 1
        end = monotonic() + _WAIT
        while self._selector.select(max(end - monotonic(), 0)):
            voucher = self._vouchers.read(VOUCHER.size)
            self._due -= 1
            if not self._due or len(voucher) < VOUCHER.size:
                return bool(voucher == VOUCHER.pack(*portion, True))
        return False

    def close(self) -> None:
        """Kill the process."""
        self._selector.close()
        self._process.kill()
        self._process.communicate(timeout=_PATIENCE)
