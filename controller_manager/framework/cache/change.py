"""Data types of an informer: its selection of objects, its change notifications, its state and its progress; pure.

Resource versions are compared as numbers. A version that is not a number can only be equal to another or not.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.framework.cache.shard import Shard

T = TypeVar("T", bound=Object)


class Selection(msgspec.Struct, Generic[T], frozen=True):
    """The objects of a resource, optionally limited to a namespace, label and field selectors, and a `shard`."""

    resource: Resource[T]
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    shard: Shard | None = None

    def __hash__(self) -> int:
        return hash((self.resource.plural, self.fields))  # the rest seldom differs, as for resources

    def __str__(self) -> str:
        shard = str(self.shard) if self.shard is not None else ""
        parts = (self.resource.name, self.namespace, self.labels, self.fields, shard)
        return " ".join(part for part in parts if part)

    def keeps(self, obj: T) -> bool:
        """Return whether the shard also selects an object that the server returned for this selection."""
        return self.shard is None or self.shard.keeps(self.resource, obj)


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One object (one uid) before and after a change. `before` is None if it was created, `after` if it was deleted.

    `initial` marks an object of the first listing or a resync (`before` and `after` are equal): probably nothing to do.
    `missed` marks a deletion without a DELETED event: a later listing lacks the object, its new state cannot be
    decoded, or it left the shard.
    """

    before: T | None
    after: T | None
    initial: bool = False
    missed: bool = False

    @property
    def object(self) -> T:
        """The last known state of the object."""
        found = self.after if self.after is not None else self.before
        assert found is not None
        return found

    @property
    def key(self) -> Key:
        """The key of the object."""
        return key_of(self.object)


Subscriber = Callable[[Change[T]], None]


class InformerState(msgspec.Struct, frozen=True):
    """The state of one informer. `age` is the seconds since the last message of the server; counts are since the start.

    `unreadable` lists the objects that are left out because they could not be decoded, each with the reason.
    """

    selection: str
    objects: int
    synced: bool
    age: float
    revision: str
    lists: int
    watches: int
    failures: int
    last_error: str
    unreadable: tuple[str, ...] = ()


# A version that is not a number may have been skipped without notice. Above this number of awaited versions the oldest
# is dropped; callers have a timeout of their own.
_MOST_OPAQUE = 1000


class Progress:
    """`revision` is the resource version up to which all changes are known; empty before the first listing."""

    def __init__(self) -> None:
        self.revision = ""
        self._number = -1
        # Callbacks by numeric version, as a heap. The counter breaks ties, as callables cannot be compared.
        self._numbered: list[tuple[int, int, Callable[[], None]]] = []
        self._opaque: dict[str, list[Callable[[], None]]] = {}
        self._count = 0

    def reached(self, version: str) -> bool:
        """Return whether the change that made `version` is known."""
        return int(version) <= self._number if version.isdecimal() else version == self.revision

    def when_reached(self, version: str, call: Callable[[], None]) -> None:
        """Call `call` once when `version` is reached, at once if it already is; never if a non-number is skipped."""
        if self.reached(version):
            call()
        elif version.isdecimal():
            self._count += 1
            heapq.heappush(self._numbered, (int(version), self._count, call))
        else:
            self._opaque.setdefault(version, []).append(call)
            if len(self._opaque) > _MOST_OPAQUE:
                del self._opaque[next(iter(self._opaque))]

    def advance(self, revision: str) -> None:
        """Record that all changes up to `revision` are known."""
        self.revision = revision
        self._number = int(revision) if revision.isdecimal() else -1
        while self._numbered and self._numbered[0][0] <= self._number:
            heapq.heappop(self._numbered)[2]()
        if self._opaque:
            for call in self._opaque.pop(revision, ()):
                call()
