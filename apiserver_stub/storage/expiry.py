"""Rows with a limited lifetime: which clock counts, which rows have expired, and when to check next."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from apiserver_stub.storage.interface import Record
from controller_manager.common.base.clock import loop_clock, wall_seconds

_BATCH = 256  # rows removed at a time, before other tasks run
_BREATH = 0.02  # seconds between two batches
_PAUSE = 1.0  # seconds between two checks if nothing is overdue

# Removes rows (resource, key, revision) soon, unless they change before or the storage is busy.
Remove = Callable[[Sequence[tuple[str, str, int]]], None]


class TTLIndex:
    """The rows of each lifetime (in seconds), oldest write first. Pure."""

    __slots__ = ("_rows", "_ttls")

    def __init__(self) -> None:
        self._ttls: dict[tuple[str, str], float] = {}
        self._rows: dict[float, OrderedDict[tuple[str, str], tuple[float, int]]] = {}

    def note(self, record: Record) -> None:
        """Add a durable record. Records come in order of revision and time."""
        row = record.resource, record.key
        known = self._ttls.pop(row, None)
        if known is not None:
            rows = self._rows[known]
            del rows[row]
            if not rows:
                del self._rows[known]
        if record.ttl > 0 and not record.deleted:
            self._ttls[row] = record.ttl
            self._rows.setdefault(record.ttl, OrderedDict())[row] = record.at, record.revision

    def due(self, now: float, limit: int) -> Iterator[tuple[str, str, int]]:
        """Yield the resource, key and revision of expired rows, at most `limit` per lifetime."""
        for ttl, rows in self._rows.items():
            for (resource, key), (at, revision) in islice(rows.items(), limit):
                if at > now - ttl:
                    break
                yield resource, key, revision

    def next(self) -> float | None:
        """Return the time at which the next row expires; None if there is none."""
        return min((next(iter(rows.values()))[0] + ttl for ttl, rows in self._rows.items()), default=None)


class Ages(Protocol):
    """Rows by expiration time."""

    def due(self, now: float, limit: int) -> Iterator[tuple[str, str, int]]:
        """Yield the resource, key and revision of expired rows, at most `limit` per lifetime."""

    def next(self) -> float | None:
        """Return the time at which the next row expires; None if there is none."""


class Expiry:
    """Removes rows within seconds of their expiration. Failed removals are retried."""

    def __init__(self, ages: Ages, remove: Remove, clock: Callable[[], float]) -> None:
        self._ages = ages
        self._clock = clock
        self._remove = remove
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def wake(self) -> None:
        """Schedule a check; a storage without expiring rows has no timer."""
        due = None if self._timer is not None or self._closed else self._ages.next()
        if due is not None:
            self._rest(max(due - self._clock(), _PAUSE))

    def close(self) -> None:
        """Stop removing rows."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _rest(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._round)

    def _round(self) -> None:
        self._timer = None
        due = list(self._ages.due(self._clock(), _BATCH))
        if due:
            self._remove(due)
        if len(due) >= _BATCH:
            self._rest(_BREATH)
        else:
            self.wake()


class SteadyClock:
    """Seconds since the epoch for write times and ages. Changes of the wall clock while the store is open have no
    effect. Create it inside the loop.
    """

    def __init__(self) -> None:
        self._clock = loop_clock()
        self._offset = wall_seconds() - self._clock()

    def now(self) -> float:
        """Return the current time."""
        return self._clock() + self._offset


class Written:
    """The write times of the records of a log, made plausible: in order and not in the future.

    A record dated in the future counts as written now, one dated before its predecessor as written together with it.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._latest = float("-inf")

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records with plausible times."""
        for record in records:
            at = max(self._latest, min(record.at, self._now))
            self._latest = at
            yield record if at == record.at else record._replace(at=at)
