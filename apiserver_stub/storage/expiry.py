"""Rows that live for a limited time: by which clock, which have outlived their last write, and when to look again."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from apiserver_stub.storage.interface import Record
from controller_manager.common.base.clock import loop_clock, wall_seconds

_BATCH = 256  # rows removed in one go; other work gets its turn in between
_BREATH = 0.02  # seconds between two batches
_PAUSE = 1.0  # seconds between two looks when nothing is overdue

# Removes rows (resource, key, revision) soon, unless they change before that or the storage is busy.
Remove = Callable[[Sequence[tuple[str, str, int]]], None]


class TTLIndex:
    """The rows of each lifetime (in seconds), the longest unwritten first; pure."""

    __slots__ = ("_rows", "_ttls")

    def __init__(self) -> None:
        self._ttls: dict[tuple[str, str], float] = {}
        self._rows: dict[float, OrderedDict[tuple[str, str], tuple[float, int]]] = {}

    def note(self, record: Record) -> None:
        """Take in a durable record; records come in the order of their revisions, and so of the times they tell."""
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
        """Yield resource, key and revision of at most `limit` rows of each lifetime whose time is over."""
        for ttl, rows in self._rows.items():
            for (resource, key), (at, revision) in islice(rows.items(), limit):
                if at > now - ttl:
                    break
                yield resource, key, revision

    def next(self) -> float | None:
        """Return the time at which the next row is due; None while there is none."""
        return min((next(iter(rows.values()))[0] + ttl for ttl, rows in self._rows.items()), default=None)


class Ages(Protocol):
    """Rows by when their time is over."""

    def due(self, now: float, limit: int) -> Iterator[tuple[str, str, int]]:
        """Yield resource, key and revision of rows whose time is over, at most `limit` of each kind of lifetime."""

    def next(self) -> float | None:
        """Return the time at which the next row is due; None while there is none."""


class Expiry:
    """Removes rows within seconds after their time is over. What could not be removed is tried again."""

    def __init__(self, ages: Ages, remove: Remove, clock: Callable[[], float]) -> None:
        self._ages = ages
        self._clock = clock
        self._remove = remove
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def wake(self) -> None:
        """There may be something to wait for; a storage without such rows has no timer."""
        due = None if self._timer is not None or self._closed else self._ages.next()
        if due is not None:
            self._rest(max(due - self._clock(), _PAUSE))

    def close(self) -> None:
        """Remove no more."""
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
    """Seconds since the epoch for what is written and for how long it is kept. Whoever sets the wall clock forward or
    back while the store is open neither hastens nor stops anything. Make it within the loop.
    """

    def __init__(self) -> None:
        self._clock = loop_clock()
        self._offset = wall_seconds() - self._clock()

    def now(self) -> float:
        """Return the time."""
        return self._clock() + self._offset


class Written:
    """The times at which the records of a log were written, as far as they can be believed: in their order, and not in
    the future.

    A record that another clock has dated ahead counts as written just now, one dated before its predecessor as written
    with it.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._latest = float("-inf")

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, with times that can be."""
        for record in records:
            at = max(self._latest, min(record.at, self._now))
            self._latest = at
            yield record if at == record.at else record._replace(at=at)
