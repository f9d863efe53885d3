"""Index of one resource: the keys of its rows by their value at one path, for lists with a field selector. Pure."""

from bisect import bisect_left, bisect_right, insort

from apiserver_stub.storage.ordered import OrderedMap, behind
from apiserver_stub.watch_cache.row import Corrupt, Row

WORTH = 256
"""The minimum number of rows for an index; scanning fewer rows costs less than maintaining it."""
MOST = 4
"""The maximum number of indexes per resource."""
_LEAST_PATIENCE = 10_000  # changes after which an unused index may be dropped, at least


class FieldIndex:
    """An index built step by step (`grow`) and updated by each change (`note`).

    Keys are in order, 8 bytes per row; the key's text is shared with its row. Unreadable rows match any value.
    """

    __slots__ = ("_idle_changes", "_keys", "_path", "_reached", "_rows", "_unreadable", "complete", "dropped")

    def __init__(self, rows: OrderedMap[Row], path: str) -> None:
        self._rows = rows
        self._path = path
        self._keys: dict[str, list[str]] = {}
        self._unreadable: list[str] = []
        self._reached = ""  # all rows up to this key are indexed
        self._idle_changes = 0  # changes since the last use
        self.complete = False
        self.dropped = False
        """Whether the index is no longer maintained."""

    @property
    def is_idle(self) -> bool:
        """Return whether the index was unused for long enough that rebuilding it would be cheaper."""
        return self._idle_changes > max(_LEAST_PATIENCE, len(self._rows))

    def grow(self, count: int) -> None:
        """Index the next `count` rows; `complete` is then true if they were the last."""
        key = self._reached
        for number, row in enumerate(() if self.complete else self._rows.items(after=key)):
            if number == count:
                break
            key = row.key
            self._keys_of(row).append(key)
        else:
            self.complete = True
        self._reached = key

    def note(self, before: Row | None, after: Row | None) -> None:
        """Update the index after a row replaced another of the same key; None means no row."""
        self._idle_changes += 1
        row = before or after
        if row is None or not (self.complete or row.key <= self._reached):
            return
        old = None if before is None else self._keys_of(before)
        new = None if after is None else self._keys_of(after)
        if old is new:
            return
        if old is not None and before is not None:
            self._remove(old, before)
        if new is not None:
            insort(new, row.key)

    def find(self, value: str, after: str = "", prefix: str = "") -> list[Row]:
        """Return the rows with that value in key order: keys greater than `after` that begin with `prefix`. Unreadable
        rows are included.
        """
        self._idle_changes = 0
        keys = _between(self._keys.get(value, ()), after, prefix)
        if self._unreadable:
            keys = sorted([*keys, *_between(self._unreadable, after, prefix)])
        get = self._rows.get
        return [row for row in map(get, keys) if row is not None]

    def _keys_of(self, row: Row) -> list[str]:
        """Return the keys of the rows that have the same value as this one."""
        try:
            value = row.read_field(self._path)
        except Corrupt:
            return self._unreadable
        found = self._keys.get(value)
        if found is None:
            found = self._keys[value] = []
        return found

    def _remove(self, keys: list[str], row: Row) -> None:
        del keys[bisect_left(keys, row.key)]
        if not keys and keys is not self._unreadable:
            del self._keys[row.read_field(self._path)]


def _between(keys: list[str] | tuple[()], after: str, prefix: str) -> list[str]:
    start = bisect_right(keys, after) if after >= prefix else bisect_left(keys, prefix)
    end = behind(prefix)
    return list(keys[start : bisect_left(keys, end) if end else len(keys)])
