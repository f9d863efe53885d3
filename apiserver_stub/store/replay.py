"""Rebuilding the visible state from the durable log; pure, fed record by record."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from apiserver_stub.store.expiry import TTLIndex
from apiserver_stub.store.history import Retention
from apiserver_stub.store.index import Collection, garbage
from apiserver_stub.store.ordered import OrderedMap
from apiserver_stub.store.row import Change, CorruptRow, Record, Row, uid_of

# What is wrong with the bytes of a record; empty for a sound one.
Inspect = Callable[[bytes], str]


class _Shelf:
    """What is known of one resource so far; `mark` is the revision up to which its history is gone."""

    __slots__ = ("changes", "mark", "resource", "rows")

    def __init__(self, resource: str, mark: int) -> None:
        self.resource = resource
        self.mark = mark
        self.rows: dict[str, Row] = {}
        self.changes: list[Change] = []


class Replay:
    """Takes the records of a log in the order of their revisions, then gives the collections they amount to.

    `marks` says, per resource, up to which revision the log has been compacted: records up to there are only the
    ground the later ones stand on. `garbage` lists records that a compaction should have removed and did not.
    Records that `inspect` finds fault with become rows that refuse to be read; history begins behind them.
    """

    def __init__(self, marks: Mapping[str, int], retention: Retention, inspect: Inspect, ages: TTLIndex) -> None:
        self._retention = retention
        self._inspect = inspect
        self._ages = ages
        self._suspects: dict[tuple[str, str], None] = {}
        self._shelves = {resource: _Shelf(resource, mark) for resource, mark in marks.items()}
        self.revision = max(marks.values(), default=0)
        self.garbage: list[int] = []

    def add(self, records: Iterable[Record]) -> None:
        """The next records."""
        for record in records:
            shelf = self._shelves.get(record.resource)
            if shelf is None:
                shelf = self._shelves[record.resource] = _Shelf(record.resource, 0)
            self._take(shelf, record)
            self.revision = max(self.revision, record.revision)

    def collections(self, floor: int = 0) -> dict[str, Collection]:
        """The state after the last record, by resource; history begins behind revision `floor` at the earliest."""
        return {resource: self._collection(shelf, floor) for resource, shelf in self._shelves.items()}

    def corrupt(self) -> list[CorruptRow]:
        """The rows that cannot be read."""
        found = [self._shelves[resource].rows.get(key) for resource, key in self._suspects]
        return [row for row in found if isinstance(row, CorruptRow)]

    def _take(self, shelf: _Shelf, record: Record) -> None:
        before = shelf.rows.get(record.key)
        row = self._row(shelf.resource, record)
        if record.deleted:
            shelf.rows.pop(record.key, None)
        else:
            shelf.rows[record.key] = row
        if record.revision > shelf.mark:
            shelf.changes.append(Change(row, before, record.deleted, record.at))
            return
        if before is not None:
            self.garbage.append(before.revision)
        if record.deleted:
            self.garbage.append(record.revision)

    def _row(self, resource: str, record: Record) -> Row:
        decode_error = record.decode_error or self._inspect(record.data)
        if not decode_error:
            self._ages.note(record)
            return Row(resource, record.key, record.revision, record.data)
        self._ages.note(record._replace(deleted=True))
        self._suspects[resource, record.key] = None
        return CorruptRow(
            resource, record.key, record.revision, record.data, decode_error=decode_error, uid=uid_of(record.data)
        )

    def _collection(self, shelf: _Shelf, floor: int) -> Collection:
        start = bisect_right(shelf.changes, floor, key=attrgetter("revision"))
        if self._suspects:
            start = max(start, _behind_corruption(shelf.changes))
        gone, kept = shelf.changes[:start], shelf.changes[start:]
        self.garbage += garbage(gone)
        mark = max(floor, gone[-1].revision if gone else shelf.mark)
        made = Collection(self._retention, mark, OrderedMap(sorted(shelf.rows.items())))
        for change in kept:
            made.history.append(change)
        return made


def _behind_corruption(changes: list[Change]) -> int:
    """How many changes there are up to the last that tells of a corrupt row; watchers can be told those behind it."""
    start = 0
    for at, change in enumerate(changes, 1):
        if isinstance(change.row, CorruptRow) or isinstance(change.before, CorruptRow):
            start = at
    return start
