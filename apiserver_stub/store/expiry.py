"""Rows that live for a limited time: which of them have outlived their last write, and when to look again."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from apiserver_stub.store.row import Record

_BATCH = 256  # rows removed in one go; other work gets its turn in between
_BREATH = 0.02  # seconds between two batches
_PAUSE = 1.0  # seconds between two looks when nothing is overdue

# Removes a row (resource, key, revision) soon, unless it changes before that or the store is busy.
Remove = Callable[[str, str, int], None]


class TTLIndex:
    """The rows of each resource that has a lifetime (in seconds, 0: without end), the longest unwritten first; pure."""

    __slots__ = ("_lifetimes", "_rows")

    def __init__(self, lifetimes: Mapping[str, float]) -> None:
        self._lifetimes = {resource: seconds for resource, seconds in lifetimes.items() if seconds > 0}
        self._rows: dict[str, OrderedDict[str, tuple[float, int]]] = {
            resource: OrderedDict() for resource in self._lifetimes
        }

    def note(self, record: Record) -> None:
        """Take in a durable record; records come in the order of their revisions, and so of the times they tell."""
        rows = self._rows.get(record.resource)
        if rows is None:
            return
        rows.pop(record.key, None)
        if not record.deleted:
            rows[record.key] = (record.at, record.revision)

    def due(self, now: float, limit: int) -> Iterator[tuple[str, str, int]]:
        """Resource, key and revision of at most `limit` rows of each resource whose time is over."""
        for resource, rows in self._rows.items():
            horizon = now - self._lifetimes[resource]
            for key, (at, revision) in islice(rows.items(), limit):
                if at > horizon:
                    break
                yield resource, key, revision

    def next(self) -> float | None:
        """The time at which the next row is due; None while there is none."""
        firsts = [(rows, self._lifetimes[resource]) for resource, rows in self._rows.items() if rows]
        return min((next(iter(rows.values()))[0] + seconds for rows, seconds in firsts), default=None)


class Expiry:
    """Removes rows within seconds after their time is over. What could not be removed is tried again."""

    def __init__(self, ages: TTLIndex, remove: Remove, clock: Callable[[], float]) -> None:
        self._ages = ages
        self._clock = clock
        self._remove = remove
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def wake(self) -> None:
        """There may be something to wait for; a store without such rows has no timer."""
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
        for resource, key, revision in due:
            self._remove(resource, key, revision)
        if len(due) >= _BATCH:
            self._rest(_BREATH)
        else:
            self.wake()
