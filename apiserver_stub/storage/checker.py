"""Another process that looks into the records of a store, while this one reads them: on another core.

It reads the same as `Audit`, and says of each portion how many records there are, what their checksums add up to, and
whether all are sound. Who finds as many that add up to the same need not look into them. For what is not sound, and for
all that a process which has ended did not get to, there is no voucher: it is looked into as if there were no other.
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
"""Those of `schema.records_query`: of a damaged record they may be anything."""
VOUCHER = Struct("<IQ?")
"""How a portion is told of: its records, the sum of their checksums, and whether all are sound."""
_PROCESS = "apiserver_stub.storage.check_process"
_WORTH = 64 << 20  # bytes of a database: another process takes a tenth of a second until it has begun
_MASK = (1 << 64) - 1
_WAIT = 0.01  # seconds for which a portion's voucher is waited for: as long as it takes to look into it
_PATIENCE = 10.0  # seconds that a process has to end when it is killed


class Portion(NamedTuple):
    """Some records that were read together."""

    records: int
    total: int


def portion_of(rows: Sequence[Columns]) -> Portion:
    """Return what tells a portion from others; checksums that are damaged may be anything."""
    return Portion(len(rows), sum(row[-1] for row in rows if isinstance(row[-1], int)) & _MASK)


def checker_of(path: Path, inspect: Inspect) -> "Checker | None":
    """Return a checker of the database, if it is large and there is a core for it."""
    if path.stat().st_size < _WORTH or _cores() < 2:
        return None
    return Checker(path, inspect)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Checker:
    """The process that checks a database, by objects that `inspect`, a function of a module, says nothing of."""

    def __init__(self, path: Path, inspect: Inspect) -> None:
        command = (sys.executable, "-m", _PROCESS, str(path), inspect.__module__, inspect.__qualname__)
        nothing = subprocess.DEVNULL
        # Without a buffer there is something to read whenever the selector says so.
        self._process = subprocess.Popen(command, bufsize=0, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)  # noqa: S603 - ours
        assert self._process.stdout is not None
        self._said = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._said, selectors.EVENT_READ)
        self._due = 0  # vouchers until that of the portion that was read last

    def vouches(self, portion: Portion) -> bool:
        """Return whether the next portion is this one, and sound, as far as that is known in time: a process that is
        late, since it has just begun or has no core to itself, is heard again once it has caught up.
        """
        self._due += 1
        end = monotonic() + _WAIT
        while self._selector.select(max(end - monotonic(), 0)):
            said = self._said.read(VOUCHER.size)
            self._due -= 1
            if not self._due or len(said) < VOUCHER.size:
                return bool(said == VOUCHER.pack(*portion, True))
        return False

    def close(self) -> None:
        """End the process."""
        self._selector.close()
        self._process.kill()
        self._process.communicate(timeout=_PATIENCE)
