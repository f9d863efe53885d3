"""What was found out for as long as a verdict of admission stands."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from apiserver_stub.admission import StandingVerdict
from apiserver_stub.storage.interface import TooOld
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Row

T = TypeVar("T")
_Reads = tuple[tuple[str, str], ...]


class StandingFindings(Generic[T]):
    """Findings by their places, the `most` that were asked for last. Each rests on a verdict, and is forgotten when a
    row changes that this has looked at.
    """

    def __init__(self, store: WatchCache, most: int) -> None:
        self.most = most
        self._store = store
        self._found: OrderedDict[Hashable, tuple[T, _Reads]] = OrderedDict()
        self._places: dict[_Reads, set[Hashable]] = {}
        self._resources: frozenset[str] = frozenset()  # of which any verdict looks at rows
        store.subscribe(self._hear)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, place: Hashable) -> T | None:
        """Return what was found out there, if that still holds."""
        found = self._found.get(place)
        if found is None:
            return None
        self._found.move_to_end(place)
        return found[0]

    def put(self, place: Hashable, found: T, verdict: StandingVerdict, began: int) -> None:
        """Note a finding, unless something has changed since the revision at which it `began`."""
        if self._has_changed(verdict.reads, began):
            return
        self._remove(place)
        self._found[place] = found, verdict.reads
        if verdict.reads not in self._places:
            self._places[verdict.reads] = set()
            self._note_resources()
        self._places[verdict.reads].add(place)
        if len(self._found) > self.most:
            self._remove(next(iter(self._found)))

    def _has_changed(self, reads: _Reads, began: int) -> bool:
        try:
            return any(
                _looks_at(reads, change.row)
                for history in {self._store.history(resource) for resource, _ in reads}
                for change in history.since(history.position(began))
            )
        except TooOld:
            return True

    def _remove(self, place: Hashable) -> None:
        _, reads = self._found.pop(place, (None, None))
        if reads is None:
            return
        places = self._places[reads]
        places.discard(place)
        if not places:
            del self._places[reads]
            self._note_resources()

    def _hear(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.row.resource in self._resources:
                self._forget(change.row)

    def _forget(self, row: Row) -> None:
        for reads in [reads for reads in self._places if _looks_at(reads, row)]:
            for place in self._places.pop(reads):
                del self._found[place]
        self._note_resources()

    def _note_resources(self) -> None:
        self._resources = frozenset(resource for reads in self._places for resource, _ in reads)


def _looks_at(reads: _Reads, row: Row) -> bool:
    return any(row.resource == resource and row.key.startswith(key) for resource, key in reads)
