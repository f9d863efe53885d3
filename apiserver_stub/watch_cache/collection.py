"""The visible state of one resource in memory: its rows in order, and how they came about lately; pure, no I/O."""

from collections.abc import Iterator, Sequence

from apiserver_stub.storage.errors import TooNew
from apiserver_stub.storage.interface import Record
from apiserver_stub.watch_cache.history import Retention, Window
from apiserver_stub.watch_cache.ordered import OrderedMap, View
from apiserver_stub.watch_cache.row import Change, Row, row_of

_PAST_VIEWS = 8  # reconstructed states kept per resource, for lists that are read page by page


class Snapshot:
    """All rows of one resource as they were at `revision`."""

    __slots__ = ("_rows", "revision")

    def __init__(self, rows: View[Row], revision: int) -> None:
        self._rows = rows
        self.revision = revision

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Row | None:
        """Return the row of `key`, if there was one."""
        return self._rows.get(key)

    def items(self, after: str = "", prefix: str = "") -> Iterator[Row]:
        """Yield rows in the order of their keys: the keys greater than `after` that begin with `prefix`."""
        return self._rows.items(after, prefix)

    def count(self, after: str = "", prefix: str = "") -> int:
        """Return how many rows `items` yields, without visiting them."""
        return self._rows.count(after, prefix)


class Collection:
    """Rows and history of one resource."""

    __slots__ = ("_past", "_rows", "history")

    def __init__(self, retention: Retention, trimmed: int = 0, rows: OrderedMap[Row] | None = None) -> None:
        self._rows = rows if rows is not None else OrderedMap()
        self._past: dict[int, View[Row]] = {}
        self.history = Window(retention, trimmed)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Row | None:
        """Return the current row of `key`."""
        return self._rows.get(key)

    def apply(self, record: Record) -> Change:
        """Take in a record that has become durable; records come in the order of their revisions."""
        row = row_of(record)
        change = Change(row, self._rows.get(record.key), record.deleted, record.at)
        if record.deleted:
            self._rows.remove(record.key)
        else:
            self._rows.put(record.key, row)
        self.history.append(change)
        return change

    def trim(self, now: float) -> None:
        """Forget history beyond its bounds."""
        self._forgotten(self.history.trim(now))

    def forget(self, count: int) -> None:
        """Forget so many of the oldest changes."""
        self._forgotten(self.history.forget(count))

    def _forgotten(self, gone: Sequence[Change]) -> None:
        if gone and self._past:
            self._past = {position: view for position, view in self._past.items() if position >= self.history.first}

    def snapshot(self, revision: int) -> Snapshot:
        """Return the current rows, for ever; `revision` is the cache's."""
        return Snapshot(self._rows.snapshot(), revision)

    def snapshot_at(self, revision: int, current: int) -> Snapshot:
        """Return the rows at an earlier revision. Raises `TooOld`, or `TooNew` beyond `current`, that of the cache."""
        if revision > current:
            raise TooNew(revision, current)
        position = self.history.position(revision)
        if position == self.history.end:
            return self.snapshot(revision)
        view = self._past.get(position)
        if view is None:
            view = self._past[position] = self._undo(position)
            if len(self._past) > _PAST_VIEWS:
                del self._past[next(iter(self._past))]
        return Snapshot(view, revision)

    def _undo(self, position: int) -> View[Row]:
        rows = OrderedMap.copy(self._rows.snapshot())
        for change in reversed(self.history.since(position)):
            if change.before is None:
                rows.remove(change.row.key)
            else:
                rows.put(change.row.key, change.before)
        return rows.snapshot()
