"""The selection of objects that an informer holds, the changes it tells of, and its state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller_manager.api.model import Object
from controller_manager.api.resource import Key, Resource, key_of

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """A selection of objects: those of a resource, or of one namespace, or those matching label and field selectors."""

    resource: Resource[T]
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def __str__(self) -> str:
        parts = (self.resource.name, self.namespace, self.labels, self.fields)
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
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


@dataclass(frozen=True, slots=True)
class InformerState:
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
