"""The visible state of one resource in memory: its rows in order, and a bounded window of recent changes. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge

import msgspec

from apiserver_stub.storage.interface import Record, TooNew, TooOld, as_of
from apiserver_stub.storage.ordered import OrderedMap, View
from apiserver_stub.watch_cache.field_index import MOST, WORTH, FieldIndex
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row, row_of, uid_of

_PAST_VIEWS = 8  # reconstructed states cached per resource, for paged lists


class Retention(msgspec.Struct, frozen=True):
    """The limits of the history per resource: seconds, changes and bytes of objects; and the bytes of all resources
    together.
    """

    seconds: float = 300.0
    changes: int = 65_536
    size: int = 128 << 20
    total: int = 256 << 20


class Window:
    """Changes in order of revision, each with a fixed position.

    Positions count from 0 for the first change ever appended. `first` is the position of the oldest change held, `end`
    that of the next one. No watch can resume before `begun`, where the history was restarted. `trimmed` is the revision
    of the newest dropped change, `size` the bytes of the held objects.
    """

    __slots__ = ("_gap", "_held", "_retention", "begun", "end", "first", "size", "trimmed")

    def __init__(self, retention: Retention, trimmed: int = 0) -> None:
        self._retention = retention
        self._held: list[Change] = []
        self._gap = (0, 0)  # the revisions between which changes may be missing
        self.size = 0
        self.first = self.end = self.begun = 0
        self.trimmed = trimmed

    def append(self, change: Change) -> None:
        """Append the newest change."""
        self._held.append(change)
        self.end += 1
        self.size += change.row.size

    def trim(self, now: float) -> Sequence[Change]:
        """Drop changes beyond the limits at the time `now`, and return them."""
        keep, horizon = self._retention, now - self._retention.seconds
        count, size = 0, self.size
        if not self._held or (len(self._held) <= keep.changes and size <= keep.size and self._held[0].at > horizon):
            return ()
        for change in self._held:
            over = len(self._held) - count > keep.changes or size > keep.size
            if not over and change.at > horizon:
                break
            count += 1
            size -= change.row.size
        return self.forget(count)

    def forget(self, count: int) -> Sequence[Change]:
        """Drop the `count` oldest changes and return them."""
        if not count:
            return ()
        gone = self._held[:count]
        del self._held[:count]
        self.size -= sum(change.row.size for change in gone)
        self.first += count
        self.trimmed = max(self.trimmed, gone[-1].revision)
        return gone

    def skip(self, seen: int, revision: int) -> Sequence[Change]:
        """Continue at `revision` with the known changes since `seen`, which are appended next; no watch can start in
        between. Returns the changes dropped because they are older than an existing gap.
        """
        gone = self.forget(self.position(self._gap[1]) - self.first) if self._gap[1] > self.trimmed else ()
        self.trimmed = max(self.trimmed, self._gap[1])
        self._gap = seen, revision
        return gone

    def restart(self, revision: int) -> None:
        """Restart the history at `revision`: no watch can resume from before."""
        self.end += 1  # a separate position, so that watchers at the end are also behind
        self.first = self.begun = self.end
        self.trimmed, self.size = revision, 0
        self._held.clear()

    def position(self, revision: int) -> int:
        """Return the position of the first change after `revision`. Raises `TooOld` if some have been dropped."""
        if revision < self.trimmed:
            raise TooOld(revision, self.trimmed)
        if self._gap[0] < revision < self._gap[1]:
            raise TooOld(revision, self._gap[1])
        return self.first + bisect_right(self._held, revision, key=_revision)

    def since(self, position: int, limit: int | None = None) -> list[Change]:
        """Return at most `limit` changes from `position` on, which must not be before `first`."""
        start = position - self.first
        return self._held[start:] if limit is None else self._held[start : start + limit]


def oldest_first(windows: Iterable[Window], excess: int) -> Iterator[tuple[Window, int]]:
    """Yield how many changes each window must drop to free the oldest `excess` bytes of all windows together. Pure."""
    merged = merge(*(_sizes(window) for window in windows if window.size))
    counts: dict[int, tuple[Window, int]] = {}
    for _, number, size, window in merged:
        if excess <= 0:
            break
        excess -= size
        counts[id(window)] = window, number
    yield from counts.values()


def _sizes(window: Window) -> Iterator[tuple[int, int, int, Window]]:
    """Yield the revision, the number (from 1) and the size of each change. Revisions are unique."""
    for number, change in enumerate(window.since(window.first), 1):
        yield change.revision, number, change.row.size, window


def _revision(change: Change) -> int:
    return change.revision


class Snapshot:
    """All rows of one resource as they were at `revision`."""

    __slots__ = ("revision", "view")

    def __init__(self, view: View[Row], revision: int) -> None:
        self.view = view
        """The rows by key."""
        self.revision = revision

    def __len__(self) -> int:
        return len(self.view)

    def get(self, key: str) -> Row | None:
        """Return the row of `key`, or None."""
        return self.view.get(key)

    def items(self, after: str = "", prefix: str = "") -> Iterator[Row]:
        """Yield rows in key order: keys greater than `after` that begin with `prefix`."""
        return self.view.items(after, prefix)

    def count(self, after: str = "", prefix: str = "") -> int:
        """Return the number of rows of `items` without visiting them."""
        return self.view.count(after, prefix)


def _is_gone(row: Row, record: Record | None) -> bool:
    """Return whether the record does not show a later state of the same object."""
    if record is None:
        return True
    return row.revision != record.revision and _uid(row) != uid_of(record.data)


def _uid(row: Row) -> str:
    return row.uid if isinstance(row, CorruptRow) else uid_of(row.data)


def _last_of(row: Row, revision: int) -> Row:
    """Return the last known state of a deleted row, with the given revision."""
    if isinstance(row, CorruptRow):
        return CorruptRow(row.resource, row.key, revision, b"", decode_error=row.decode_error, uid=row.uid)
    return Row(row.resource, row.key, revision, as_of(row.data, revision))


class Collection:
    """The rows and the history of one resource."""

    __slots__ = ("_indexes", "_past", "_rows", "get", "history")

    def __init__(self, retention: Retention, trimmed: int = 0, rows: OrderedMap[Row] | None = None) -> None:
        self._rows = rows if rows is not None else OrderedMap()
        self.get = self._rows.get
        """Returns the current row of a key."""
        self._past: dict[int, View[Row]] = {}
        self._indexes: dict[str, FieldIndex] = {}  # by path, the least recently used first
        self.history = Window(retention, trimmed)

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, record: Record) -> Change:
        """Apply a durable record. Records come in order of revision."""
        row = row_of(record)
        change = Change(row, self.get(record.key), record.deleted, record.at)
        if record.deleted:
            self._rows.remove(record.key)
        else:
            self._rows.put(record.key, row)
        if self._indexes:
            self._note(change)
        self.history.append(change)
        return change

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the history, then the current ones."""
        for change in self.history.since(self.history.first):
            if change.before is not None:
                yield change.before
        yield from self._rows.items()

    def index(self, path: str) -> FieldIndex | None:
        """Return the index of the rows by their value at `path`; it may be incomplete and need `grow`. None if there
        are too few rows. An index that is no longer used is dropped.
        """
        found = self._indexes.pop(path, None)
        if found is None:
            if len(self) < WORTH:
                return None
            found = FieldIndex(self._rows, path)
            if len(self._indexes) == MOST:
                self._indexes.pop(next(iter(self._indexes))).dropped = True
        self._indexes[path] = found
        return found

    def _note(self, change: Change) -> None:
        after = None if change.deleted else change.row
        for path, index in tuple(self._indexes.items()):
            index.note(change.before, after)
            if index.is_idle:
                self._indexes.pop(path).dropped = True

    def replace(self, records: Mapping[str, Record], seen: int, revision: int, at: float) -> list[Change]:
        """Replace the rows by those of a listing at `revision`, and return the known changes since `seen`: first the
        objects deleted or replaced meanwhile, at the revision after `seen`, then the new rows at their own revisions.

        The history continues with them and has a gap there. If a row is older than `seen` but unknown, delivered writes
        have been lost, and the history restarts.
        """
        gone = [row for row in self._rows.items() if _is_gone(row, records.get(row.key))]
        changes = [Change(_last_of(row, min(seen + 1, revision)), row, True, at) for row in gone]
        for row in gone:
            self._rows.remove(row.key)
        for record in sorted(records.values()):
            before = self._rows.get(record.key)
            if before is None or before.revision != record.revision:
                changes.append(Change(row_of(record), before, False, record.at))
                self._rows.put(record.key, changes[-1].row)
        for change in changes if self._indexes else ():
            self._note(change)
        if all(change.revision > seen for change in changes):
            self._forgotten(self.history.skip(seen, revision))
            for change in changes:
                self.history.append(change)
        else:
            self._past.clear()
            self.history.restart(revision)
        return changes

    def trim(self, now: float) -> None:
        """Drop history beyond its limits."""
        self._forgotten(self.history.trim(now))

    def forget(self, count: int) -> None:
        """Drop the oldest `count` changes."""
        self._forgotten(self.history.forget(count))

    def _forgotten(self, gone: Sequence[Change]) -> None:
        if gone and self._past:
            self._past = {position: view for position, view in self._past.items() if position >= self.history.first}

    def snapshot(self, revision: int) -> Snapshot:
        """Return an immutable view of the current rows; `revision` is that of the cache."""
        return Snapshot(self._rows.snapshot(), revision)

    def snapshot_at(self, revision: int, current: int) -> Snapshot:
        """Return the rows at an earlier revision. Raises `TooOld`, or `TooNew` beyond `current`, the revision of the
        cache.
        """
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
