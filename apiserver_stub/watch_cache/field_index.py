"""The keys of the rows of one resource by their value at one path, for lists that ask for a value; pure."""

from bisect import bisect_left, bisect_right, insort

from apiserver_stub.storage.ordered import OrderedMap, behind
from apiserver_stub.watch_cache.row import Corrupt, Row

WORTH = 256
"""The fewest rows for which an index is made: to look at fewer takes less time than to keep it up."""
MOST = 4
"""The most indexes of one resource."""
_LEAST_PATIENCE = 10_000  # changes that an index is kept up for at least, although nobody asks for it


class FieldIndex:
    """Takes in the rows there are piece by piece (`grow`), and each change meanwhile and afterwards (`note`).

    Keys stand in order, 8 bytes a row; the text of a key is that of its row. Rows that cannot be read may have any
    value.
    """

    __slots__ = ("_idle_changes", "_keys", "_path", "_reached", "_rows", "_unreadable", "complete", "dropped")

    def __init__(self, rows: OrderedMap[Row], path: str) -> None:
        self._rows = rows
        self._path = path
        self._keys: dict[str, list[str]] = {}
        self._unreadable: list[str] = []
        self._reached = ""  # all rows up to this key are taken in
        self._idle_changes = 0  # noted since somebody asked
        self.complete = False
        self.dropped = False
        """Whether it is kept up no longer."""

    @property
    def is_idle(self) -> bool:
        """Return whether it was kept up for longer than it would take to make it anew, and nobody asked."""
        return self._idle_changes > max(_LEAST_PATIENCE, len(self._rows))

    def grow(self, count: int) -> None:
        """Take in the next `count` rows; `complete` then says whether they were the last."""
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
        """Take in that a row took the place of another of the same key; None is no row."""
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
        """Return the rows that have that value, in the order of their keys: those greater than `after` that begin with
        `prefix`. Rows that cannot be read are among them.
        """
        self._idle_changes = 0
        keys = _between(self._keys.get(value, ()), after, prefix)
        if self._unreadable:
            keys = sorted([*keys, *_between(self._unreadable, after, prefix)])
        get = self._rows.get
        return [row for row in map(get, keys) if row is not None]

    def _keys_of(self, row: Row) -> list[str]:
        """Return the keys of the rows that have the value of this one."""
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
