"""Rebuilding the visible state from the durable log; pure, fed record by record."""

from collections.abc import Iterable, Mapping

from apiserver_stub.store.history import Retention
from apiserver_stub.store.index import Collection
from apiserver_stub.store.ordered import OrderedMap
from apiserver_stub.store.row import Change, Record, Row


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
    """

    def __init__(self, marks: Mapping[str, int], retention: Retention) -> None:
        self._retention = retention
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

    def collections(self) -> dict[str, Collection]:
        """The state after the last record, by resource."""
        return {resource: self._collection(shelf) for resource, shelf in self._shelves.items()}

    def _take(self, shelf: _Shelf, record: Record) -> None:
        before = shelf.rows.get(record.key)
        row = Row(shelf.resource, record.key, record.revision, record.data)
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

    def _collection(self, shelf: _Shelf) -> Collection:
        made = Collection(self._retention, shelf.mark, OrderedMap(sorted(shelf.rows.items())))
        for change in shelf.changes:
            made.history.append(change)
        return made
