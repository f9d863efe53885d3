"""The bounded window of one resource's recent changes, which serves watches and reads of the past."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from apiserver_stub.storage.errors import TooOld
from apiserver_stub.watch_cache.row import Change


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds of the history each resource keeps: at most so many seconds, changes and bytes of objects; and of the
    bytes those of all resources keep together.
    """

    seconds: float = 300.0
    changes: int = 65_536
    size: int = 128 << 20
    total: int = 256 << 20


class Window:
    """Changes in the order of their revisions, each with a position that never changes.

    Positions count from 0 for the first change ever appended; `first` is the position of the oldest change held and
    `end` that of the next to come. `trimmed` is the revision of the newest change that is no longer held, `size` counts
    the bytes of the objects held.
    """

    __slots__ = ("_held", "_retention", "end", "first", "size", "trimmed")

    def __init__(self, retention: Retention, trimmed: int = 0) -> None:
        self._retention = retention
        self._held: list[Change] = []
        self.size = 0
        self.first = self.end = 0
        self.trimmed = trimmed

    def append(self, change: Change) -> None:
        """Add the newest change."""
        self._held.append(change)
        self.end += 1
        self.size += len(change.row.data)

    def trim(self, now: float) -> Sequence[Change]:
        """Let go of what exceeds the bounds at the time `now`, and return it."""
        keep, horizon = self._retention, now - self._retention.seconds
        count, size = 0, self.size
        for change in self._held:
            over = len(self._held) - count > keep.changes or size > keep.size
            if not over and change.at > horizon:
                break
            count += 1
            size -= len(change.row.data)
        return self.forget(count)

    def forget(self, count: int) -> Sequence[Change]:
        """Let go of the `count` oldest changes, and return them."""
        if not count:
            return ()
        gone = self._held[:count]
        del self._held[:count]
        self.size -= sum(len(change.row.data) for change in gone)
        self.first += count
        self.trimmed = gone[-1].revision
        return gone

    def position(self, revision: int) -> int:
        """Return the position of the first change after `revision`; raises `TooOld` if some of those are gone."""
        if revision < self.trimmed:
            raise TooOld(revision, self.trimmed)
        return self.first + bisect_right(self._held, revision, key=_revision)

    def since(self, position: int, limit: int | None = None) -> list[Change]:
        """Return at most `limit` changes from `position` on, which must not lie before `first`."""
        start = position - self.first
        return self._held[start:] if limit is None else self._held[start : start + limit]


def oldest_first(windows: Iterable[Window], excess: int) -> Iterator[tuple[Window, int]]:
    """Yield which of all the windows must forget how many changes, so that the oldest `excess` bytes of objects go;
    pure.
    """
    merged = merge(*(_sizes(window) for window in windows if window.size))
    counts: dict[int, tuple[Window, int]] = {}
    for _, number, size, window in merged:
        if excess <= 0:
            break
        excess -= size
        counts[id(window)] = window, number
    yield from counts.values()


def _sizes(window: Window) -> Iterator[tuple[int, int, int, Window]]:
    """Yield revision, number from 1 and size of each change; no revision comes twice."""
    for number, change in enumerate(window.since(window.first), 1):
        yield change.revision, number, len(change.row.data), window


def _revision(change: Change) -> int:
    return change.revision
