"""A watcher of rows that may be stored in another version. Such rows, and all events behind them, wait until the rows
are converted. Synchronous, without clock or I/O.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.event_encoder import EventCache
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row
from apiserver_stub.watch_cache.watcher import Watcher, WatchOptions, WatchTarget

# Limits of the lookahead: rows or changes, and bytes of objects.
_MOST, _MOST_BYTES = 100, 1 << 20


class RowConverter(Protocol):
    """Converts rows to the version that a stream serves."""

    def is_served(self, row: Row) -> bool:
        """Return whether the row already has that version. Raises `Corrupt`."""

    async def convert(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in that version, in the same order. Raises `ApiError`."""


class ConvertingWatcher(Watcher):
    """A watcher that stops at rows in `unconverted` and continues after `converted` received their converted form.

    The lookahead is bounded. Converted rows are kept only until their events are sent.
    """

    def __init__(
        self,
        cache: WatchCache,
        events: EventCache,
        target: WatchTarget,
        options: WatchOptions,
        now: float,
        is_served: Callable[[Row], bool],
    ) -> None:
        super().__init__(cache, events, target, options, now)
        self.unconverted: list[Row] = []
        self._is_served = is_served
        self._served: dict[Row, Row] = {}  # by the stored row
        self._ahead: list[Row] = []  # rows of the initial state that are converted or waited for
        self._selective = not (options.labels.empty and options.fields.empty)

    def end(self) -> None:
        """End the stream without further events."""
        super().end()
        self.unconverted = []

    def converted(self, rows: Sequence[Row]) -> None:
        """Take the converted rows in the order of `unconverted`. Ignored after the end."""
        if self.ended:
            return
        self._served.update(zip(self.unconverted, rows, strict=True))
        self.unconverted = []

    def _state(self, rows: Iterator[Row]) -> bytes:
        if not self._ahead:
            self._ahead = list(_some(row for row in rows if self._filter.in_scope(row)))
            self._wait_for(self._ahead)
        if self.unconverted:
            return b""
        if not self._ahead:
            return super()._state(rows)
        left = iter([self._served.get(row, row) for row in self._ahead])
        chunk, _ = self._added(left)
        self._ahead, self._served = list(left), {}
        return chunk

    def _next(self) -> list[Change]:
        changes = self._history.since(self._position, _MOST)
        rows = list(_some(row for change in changes for row in self._rows_of(change)))
        self._wait_for(rows)
        if self.unconverted:
            return []
        self._served = served = {row: self._served.get(row, row) for row in rows}
        return list(_as_served(changes, served, self._rows_of))

    def _rows_of(self, change: Change) -> Iterator[Row]:
        """Yield the rows that are needed for the event of a change. Corrupt rows are reported later by the event
        itself.
        """
        if self._filter.in_scope(change.row):
            if self._selective and change.before is not None and not isinstance(change.before, CorruptRow):
                yield change.before
            yield change.row

    def _wait_for(self, rows: Sequence[Row]) -> None:
        self.unconverted = [row for row in rows if row not in self._served and not self._is_served(row)]


def _some(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield as many rows as are converted together, at least both rows of a change."""
    size = 0
    for count, row in enumerate(rows, start=1):
        yield row
        size += row.size
        if count >= _MOST or (size >= _MOST_BYTES and count > 1):
            return


def _as_served(
    changes: Sequence[Change], served: Mapping[Row, Row], rows_of: Callable[[Change], Iterator[Row]]
) -> Iterator[Change]:
    """Yield changes with converted rows, up to the first change whose rows were not checked."""
    for change in changes:
        if not all(row in served for row in rows_of(change)):
            return
        row, before = served.get(change.row, change.row), change.before
        yield Change(row, before and served.get(before, before), change.deleted, change.at)
