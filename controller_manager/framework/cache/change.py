"""The selection of objects that an informer holds, the changes it tells of, its state and its progress; pure.

Versions of one resource are compared as the numbers they are; one that is no number is only ever equal or not.
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
    """A selection of objects: those of a resource, or of one namespace, those matching label and field selectors, and
    of these, what a `shard` holds.
    """

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
        """Return whether an object that the server selected is selected by the shard, too."""
        return self.shard is None or self.shard.keeps(self.resource, obj)


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One object (one uid) before and after a change: created without `before`, deleted without `after`.

    `initial` marks what is probably no news: an object of the first listing, and a resync, where both are the same.
    `missed` marks an object that nobody said was deleted: a later listing lacks it, or what it became can't be read.
    """

    before: T | None
    after: T | None
    initial: bool = False
    missed: bool = False

    @property
    def object(self) -> T:
        """The object as last known."""
        found = self.after if self.after is not None else self.before
        assert found is not None
        return found

    @property
    def key(self) -> Key:
        """The key of the object."""
        return key_of(self.object)


Subscriber = Callable[[Change[T]], None]


class InformerState(msgspec.Struct, frozen=True):
    """One local copy: `age` is the seconds since anything was heard from the server, the counts are since the start.

    `unreadable` names the objects that are left out because they do not fit their type, each with the reason.
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


# Nobody can tell whether a version that is no number was passed over: of so many that are waited for, the oldest is
# forgotten. Whoever waits goes on after a while anyway.
_MOST_OPAQUE = 1000


class Progress:
    """`revision` is the version up to which every change is known; empty before anything is."""

    def __init__(self) -> None:
        self.revision = ""
        self._number = -1
        # Waiting for a number, as a heap, with a count that keeps callables from being compared.
        self._numbered: list[tuple[int, int, Callable[[], None]]] = []
        self._opaque: dict[str, list[Callable[[], None]]] = {}
        self._count = 0

    def reached(self, version: str) -> bool:
        """Return whether the change that made `version` is known."""
        return int(version) <= self._number if version.isdecimal() else version == self.revision

    def when_reached(self, version: str, call: Callable[[], None]) -> None:
        """Call `call` once, when `version` is reached: at once if it is; never if it is passed over unrecognized."""
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
        """Everything up to `revision` is known now."""
        self.revision = revision
        self._number = int(revision) if revision.isdecimal() else -1
        while self._numbered and self._numbered[0][0] <= self._number:
            heapq.heappop(self._numbered)[2]()
        if self._opaque:
            for call in self._opaque.pop(revision, ()):
                call()
