"""Objects by who controls them: what an owner has or may adopt, and which owners a change concerns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from controller_manager.common.api.apps import DaemonSet, Deployment, StatefulSet
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.framework.client import Client, TransportError, WriteResult
from controller_manager.framework.controller import (
    Change,
    Informer,
    Informers,
    Key,
    TerminalError,
    controller_key,
    controller_of,
    key_of,
)

T = TypeVar("T", bound=Object)
O = TypeVar("O", bound=Object)  # noqa: E741

_CONTROLLER = "controller"


def _controller(obj: Object) -> tuple[str]:
    reference = controller_of(obj)
    return (reference.uid if reference is not None else _orphans(obj.metadata.namespace),)


def _orphans(namespace: str) -> str:
    return f"nobody in {namespace}"  # no uid has spaces


# What a controller that uses the functions below declares of its watch of the objects.
BY_CONTROLLER: Mapping[str, Callable[[Object], Iterable[str]]] = MappingProxyType({_CONTROLLER: _controller})


def controlled_by(objects: Informer[T], uid: str) -> list[T]:
    """The objects whose controller has that uid."""
    return objects.by_index(_CONTROLLER, uid)


def claimable_by(objects: Informer[T], owner: Object) -> list[T]:
    """The objects that `owner` controls, and those of its namespace that nobody does: what it may keep or adopt."""
    mine = objects.by_index(_CONTROLLER, owner.metadata.uid)
    return mine + objects.by_index(_CONTROLLER, _orphans(owner.metadata.namespace))


def stale_syncs(controller: str) -> Family:
    """Return the family in which a controller of that name counts reconciles for which a local copy was too old."""
    return Family(
        f"{controller}_controller_stale_sync_skips_total",
        "Reconciles that asked the server, since a local copy lacked what the controller had written, by what that is "
        "a copy of.",
        "counter",
        ("group", "resource"),
    )


# Whether the local copy of objects shows what was written.
Seen = Callable[[], bool]


class OwnedObjects(Generic[T]):
    """The objects of owners by the local copy, and by the server where the copy is known to lack what was written.

    The framework holds a key back until the copy shows what its last run wrote; where that takes too long, or a write
    got no answer, an owner that went by the copy would write once more what is there already. `stale`, of the family
    `stale_syncs`, counts how often the server is asked. The controller needs `list` on the objects.
    """

    def __init__(
        self, client: Client, objects: Informer[T], resource: Resource[T], stale: Counters | None = None
    ) -> None:
        self._client = client
        self._objects = objects
        self._resource = resource
        self._stale = stale
        self._unseen: dict[Key, tuple[Seen, ...]] = {}

    async def claimable_by(self, owner: Object, selector: LabelSelector) -> list[T]:
        """Return what `owner` controls and what it may adopt. The server is asked for what it selects; what it is to
        release, since it selects that no more, is known from the copy.
        """
        key, uid = key_of(owner), owner.metadata.uid
        if all(seen() for seen in self._unseen.get(key, ())):
            self._unseen.pop(key, None)
            return claimable_by(self._objects, owner)
        if self._stale is not None:
            self._stale.add(self._resource.group, self._resource.plural)
        listing = await self._client.list(self._resource, key.namespace, labels=str(selector))
        # This is behind all that was awaited.
        self._unseen[key] = (
            partial(self._objects.has_seen, WriteResult(self._resource, key, listing.resource_version)),
        )
        controllers = ((obj, controller_of(obj)) for obj in listing.items)
        found = [obj for obj, reference in controllers if reference is None or reference.uid == uid]
        listed = set(map(key_of, listing.items))
        others = (obj for obj in controlled_by(self._objects, uid) if key_of(obj) not in listed)
        return [*found, *(obj for obj in others if not selector.matches(obj.metadata.labels))]

    def wrote(self, owner: Object, *objects: T) -> None:
        """Expect the copy to show these objects, as they were written for `owner`."""
        writes = (WriteResult(self._resource, key_of(obj), obj.metadata.resource_version) for obj in objects)
        self.expect(owner, *(partial(self._objects.has_seen, write) for write in writes))

    def deleted(self, owner: Object, *objects: T) -> None:
        """Expect the copy to show that these objects of `owner` are being deleted, or are gone."""
        self.expect(owner, *(partial(self._is_gone, obj) for obj in objects))

    def _is_gone(self, obj: T) -> bool:
        now = self._objects.get(key_of(obj))
        return now is None or now.metadata.uid != obj.metadata.uid or now.metadata.deletion_timestamp is not None

    def doubt(self, owner: Object) -> None:
        """Go by the server next time: what was written for `owner` is not known."""
        self.expect(owner, _never)

    def expect(self, owner: Object, *seen: Seen) -> None:
        """Go by the copy only once all of these are so."""
        if seen:
            self._unseen[key_of(owner)] = (*self._unseen.get(key_of(owner), ()), *seen)

    def forget(self, key: Key) -> None:
        """There is no such owner any more."""
        self._unseen.pop(key, None)


def _never() -> bool:
    return False


def may_be_done(error: Exception | None) -> bool:
    """Return whether a request that failed may have been carried out nevertheless."""
    return isinstance(error, TransportError) or (isinstance(error, ApiError) and error.code >= 500)


Selecting = Deployment | DaemonSet | StatefulSet


def selector_of(owner: Selecting) -> LabelSelector:
    """Return the selector of an owner, which may be empty. Raises TerminalError for one that cannot be read."""
    try:
        return owner.spec.selector.selector()
    except KeyError as error:
        raise TerminalError(f"its selector has the operator {error}, which there is not") from error


def selects(owner: Selecting, obj: Object) -> bool:
    """Return whether an owner selects an object by its labels; one whose selector is empty selects nothing."""
    try:
        selector = owner.spec.selector.selector()
    except KeyError:
        return False
    return not selector.empty and selector.matches(obj.metadata.labels)


def owners_concerned(
    kind: Resource[O], selects: Callable[[O, T], bool], facts: Callable[[T], object] | None = None
) -> Callable[[Informers, Change[T]], Iterator[Key]]:
    """Return the `keys` of a `Mapped` watch of objects whose owners are of `kind`: the owners that a change concerns.

    That is who controls the object or did until now. An object that nobody controls, and that is new, was released or
    has other labels than before, concerns all who might adopt it, by `selects(owner, obj)`; at the start all owners are
    looked at anyway. A change of none of the `facts` of an object concerns nobody.
    """

    def keys(informers: Informers, change: Change[T]) -> Iterator[Key]:
        before, after = change.before, change.after
        if facts is not None and before is not None and after is not None and facts(before) == facts(after):
            return
        for obj in (before, after):
            key = controller_key(kind, obj) if obj is not None else None
            if key is not None:
                yield key
        if after is not None and not change.initial and _is_free(before, after):
            owners: Informer[Any] = informers.get(kind)
            yield from (key_of(one) for one in owners.list(after.metadata.namespace) if selects(one, after))

    return keys


def _is_free(before: Object | None, after: Object) -> bool:
    """Return whether an object has just become one that may be adopted."""
    if after.metadata.deletion_timestamp is not None or controller_of(after) is not None:
        return False
    return before is None or controller_of(before) is not None or before.metadata.labels != after.metadata.labels
