"""Which events are worth writing: equal ones become a count, and one object's flood is cut off; pure."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from controller_manager.api.core import ObjectReference
from controller_manager.base.bucket import TokenBucket

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SAME_WITHIN = 600.0
_REMEMBERED = 4096
_BURST = 25
_REFILL = 1 / 300.0


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to an object; `at` is wall seconds."""

    regarding: ObjectReference
    component: str
    type: str
    reason: str
    note: str
    action: str
    at: float

    @property
    def source(self) -> tuple[str, ...]:
        """Who speaks about which object."""
        it = self.regarding
        return (self.component, it.api_version, it.kind, it.namespace, it.name, it.uid)

    @property
    def same(self) -> tuple[str, ...]:
        """What two occurrences share that are one event."""
        return (*self.source, self.regarding.field_path, self.type, self.reason, self.note, self.action)


@dataclass(frozen=True, slots=True)
class Record:
    """An event as it stands in the cluster: its name, and how often and when it happened (wall seconds)."""

    name: str
    count: int
    first: float
    last: float


class Correlator:
    """Remembers the events of the last ten minutes and how much each source has said about each object.

    A source may say 25 things about one object at once and one more every five minutes. Both memories keep the
    4,096 latest entries, and none that makes no difference any more.
    """

    def __init__(self, new_name: Callable[[str], str]) -> None:
        self._new_name = new_name
        self._records: _Latest[tuple[str, ...], Record] = _Latest(_REMEMBERED, _SAME_WITHIN)
        self._buckets: _Latest[tuple[str, ...], TokenBucket] = _Latest(_REMEMBERED, _BURST / _REFILL)

    def admit(self, it: Occurrence) -> Record | None:
        """What to write for one more occurrence (a `count` of 1 is a new event); None when the source says too much."""
        bucket = self._buckets.get(it.source) or TokenBucket(_REFILL, _BURST)
        self._buckets.put(it.source, bucket, it.at)
        if not bucket.try_take(it.at):
            return None
        known = self._records.get(it.same)
        if known is None or it.at - known.last > _SAME_WITHIN:
            record = Record(self._new_name(it.regarding.name), 1, it.at, it.at)
        else:
            record = replace(known, count=known.count + 1, last=max(known.last, it.at))
        self._records.put(it.same, record, it.at)
        return record

    def forget(self, it: Occurrence) -> None:
        """The event is not in the cluster (any more): the next occurrence is a new one."""
        self._records.drop(it.same)


class _Latest(Generic[K, V]):
    """A mapping that keeps its latest entries, for so many seconds at most."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return found[1] if found else None

    def put(self, key: K, value: V, at: float) -> None:
        self._entries[key] = (at, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size or next(iter(self._entries.values()))[0] < at - self._seconds:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)
