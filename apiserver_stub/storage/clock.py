"""The time of a store: wall time as it was when the store was opened, going on evenly from there."""

from collections.abc import Iterable, Iterator

from apiserver_stub.storage.interface import Record
from controller_manager.base.clock import monotonic, wall_seconds


class SteadyClock:
    """Seconds since the epoch for what is written and for how long it is kept. Whoever sets the wall clock forward or
    back while the store is open neither hastens nor stops anything. Make it within the loop.
    """

    def __init__(self) -> None:
        self._offset = wall_seconds() - monotonic()

    def now(self) -> float:
        """Return the time."""
        return monotonic() + self._offset


class Written:
    """The times at which the records of a log were written, as far as they can be believed: in their order, and not in
    the future.

    A record that another clock has dated ahead counts as written just now, one dated before its predecessor as written
    with it.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._latest = float("-inf")

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, with times that can be."""
        for record in records:
            at = max(self._latest, min(record.at, self._now))
            self._latest = at
            yield record if at == record.at else record._replace(at=at)
