"""The rows and the history that a listing and the events behind it amount to; pure, fed record by record."""

from collections.abc import Iterable

from apiserver_stub.storage.interface import Listing, Record
from apiserver_stub.watch_cache.collection import Collection, Retention
from apiserver_stub.watch_cache.ordered import OrderedMap
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row, row_of


class _Shelf:
    """The rows and changes of one resource that are known so far."""

    __slots__ = ("changes", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.changes: list[Change] = []


class Replay:
    """Takes a listing, then records in the order of their revisions; then gives the collections they amount to.

    Of an object that cannot be read watchers can't be told: history begins behind it.
    """

    def __init__(self, listing: Listing, retention: Retention) -> None:
        self._retention = retention
        self._mark = listing.revision
        self._corrupt: dict[tuple[str, str], None] = {}
        self._shelves: dict[str, _Shelf] = {}
        for record in listing.records:
            self._shelf(record).rows[record.key] = self._row(record)

    def add(self, records: Iterable[Record]) -> None:
        """The next records."""
        for record in records:
            shelf = self._shelf(record)
            row, before = self._row(record), shelf.rows.get(record.key)
            if record.deleted:
                shelf.rows.pop(record.key, None)
            else:
                shelf.rows[record.key] = row
            shelf.changes.append(Change(row, before, record.deleted, record.at))

    def collections(self) -> dict[str, Collection]:
        """Return the state after the last record, by resource."""
        return {resource: self._collection(shelf) for resource, shelf in self._shelves.items()}

    def changes(self) -> list[Change]:
        """Return the changes of all resources in the order of their revisions."""
        found = [change for shelf in self._shelves.values() for change in shelf.changes]
        return sorted(found, key=lambda change: change.revision)

    def corrupt(self) -> list[CorruptRow]:
        """Return the rows that cannot be read."""
        found = [self._shelves[resource].rows.get(key) for resource, key in self._corrupt]
        return [row for row in found if isinstance(row, CorruptRow)]

    def _shelf(self, record: Record) -> _Shelf:
        found = self._shelves.get(record.resource)
        if found is None:
            found = self._shelves[record.resource] = _Shelf()
        return found

    def _row(self, record: Record) -> Row:
        if record.decode_error:
            self._corrupt[record.resource, record.key] = None
        return row_of(record)

    def _collection(self, shelf: _Shelf) -> Collection:
        start = _behind_corruption(shelf.changes) if self._corrupt else 0
        mark = shelf.changes[start - 1].revision if start else self._mark
        made = Collection(self._retention, mark, OrderedMap(sorted(shelf.rows.items())))
        for change in shelf.changes[start:]:
            made.history.append(change)
        return made


def _behind_corruption(changes: list[Change]) -> int:
    """Return how many changes there are up to the last that tells of a corrupt row; watchers can be told those behind
    it.
    """
    start = 0
    for at, change in enumerate(changes, 1):
        if isinstance(change.row, CorruptRow) or isinstance(change.before, CorruptRow):
            start = at
    return start
