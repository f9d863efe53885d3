"""At which revision each row is, and which records of the log were superseded when; pure, without any data."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from apiserver_stub.storage.interface import Record


class RevisionIndex:
    """The rows of a log by resource and key, and in the order of revisions what each write has made useless.

    `compacted` is the revision up to which superseded records are forgotten.
    """

    __slots__ = ("_current", "_since", "_superseded", "compacted")

    def __init__(self, compacted: int = 0) -> None:
        self.compacted = compacted
        self._current: dict[str, dict[str, int]] = {}
        # Record `_superseded[i]` is useless once nobody wants to know what was before revision `_since[i]`.
        self._since = array("q")
        self._superseded = array("q")

    def current(self, resource: str, key: str) -> int:
        """Return the revision of a row; 0 if there is none."""
        return self._current.get(resource, _NONE).get(key, 0)

    def add(self, record: Record) -> None:
        """Take in a durable record; records come in the order of their revisions."""
        revision = record.revision
        rows = self._current.get(record.resource)
        if rows is None:
            rows = self._current[record.resource] = {}
        before = rows.get(record.key)
        if before is not None:
            self._supersede(revision, before)
        if record.deleted:
            rows.pop(record.key, None)
            self._supersede(revision, revision)
        else:
            rows[record.key] = revision

    def at(self, revision: int, resource: str | None = None) -> list[int]:
        """Return the revisions of the rows as they were at `revision`, not before `compacted`; among them may be others
        than those of `resource` (None: all are wanted).
        """
        found = [number for number in self._rows(resource) if number <= revision]
        start = bisect_right(self._since, revision)
        found += [number for number in self._superseded[start:] if number <= revision]
        return sorted(found)

    def after(self, revision: int) -> list[int]:
        """Return the revisions of all records behind `revision`, which is not before `compacted`."""
        start = bisect_right(self._since, revision)
        found = {number for number in self._superseded[start:] if number > revision}
        found.update(number for number in self._rows(None) if number > revision)
        return sorted(found)

    def compact(self, revision: int) -> list[int]:
        """Forget what was superseded up to `revision`; returns the revisions of records that are useless now."""
        self.compacted = max(self.compacted, revision)
        count = bisect_right(self._since, self.compacted)
        gone = self._superseded[:count].tolist()
        del self._since[:count], self._superseded[:count]
        return gone

    def _supersede(self, since: int, revision: int) -> None:
        self._since.append(since)
        self._superseded.append(revision)

    def _rows(self, resource: str | None) -> Iterator[int]:
        if resource is not None:
            yield from self._current.get(resource, _NONE).values()
            return
        for rows in self._current.values():
            yield from rows.values()


_NONE: dict[str, int] = {}
