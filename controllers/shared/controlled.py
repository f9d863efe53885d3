"""Objects by their controller: what an owner controls or may adopt, and which owners a change affects."""

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
from controller_manager.framework import (
    Change,
    Client,
    Informer,
    Informers,
    Key,
    TerminalError,
    TransportError,
    controller_key,
    controller_of,
    key_of,
)
from controller_manager.framework.client.codec import WriteResult

T = TypeVar("T", bound=Object)
O = TypeVar("O", bound=Object)  # noqa: E741

_CONTROLLER = "controller"


def _controller(obj: Object) -> tuple[str]:
    reference = controller_of(obj)
    return (reference.uid if reference is not None else _orphans(obj.metadata.namespace),)


def _orphans(namespace: str) -> str:
    return f"orphans in {namespace}"  # no uid has spaces


# The index that a controller declares for its watch of the objects if it uses the functions below.
BY_CONTROLLER: Mapping[str, Callable[[Object], Iterable[str]]] = MappingProxyType({_CONTROLLER: _controller})


def controlled_by(objects: Informer[T], uid: str) -> list[T]:
    """Return the objects whose controller has that uid."""
    return objects.by_index(_CONTROLLER, uid)


def claimable_by(objects: Informer[T], owner: Object) -> list[T]:
    """Return the objects that `owner` controls and the orphans of its namespace, which it may adopt."""
    mine = objects.by_index(_CONTROLLER, owner.metadata.uid)
    return mine + objects.by_index(_CONTROLLER, _orphans(owner.metadata.namespace))


def stale_syncs(controller: str) -> Family:
    """Return the metric family in which a controller counts reconciles that found the cache stale."""
    return Family(
        f"{controller}_controller_stale_sync_skips_total",
        "Number of reconciles that listed from the server because the cache lacked a write of the controller, "
        "by resource.",
        "counter",
        ("group", "resource"),
    )


# Returns whether the cache shows a write.
Seen = Callable[[], bool]


class OwnedObjects(Generic[T]):
    """The objects of owners from the cache, or from the API server if the cache is known to lack a write of ours.

    The framework delays a key until the cache shows the writes of the last run. After a timeout, or a write without a
    response, an owner that relies on the cache would create the same objects again. `stale`, of the family
    `stale_syncs`, counts the lists sent to the server. The controller needs `list` on the objects.
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
        """Return the objects that `owner` controls and those that it may adopt.

        If the cache is stale, the server lists the objects that match the selector. Objects to release do not match
        it, so they come from the cache.
        """
        key, uid = key_of(owner), owner.metadata.uid
        if all(seen() for seen in self._unseen.get(key, ())):
            self._unseen.pop(key, None)
            return claimable_by(self._objects, owner)
        if self._stale is not None:
            self._stale.add(self._resource.group, self._resource.plural)
        listing = await self._client.list(self._resource, key.namespace, labels=str(selector))
        # The list is newer than all writes that were waited for.
        self._unseen[key] = (
            partial(self._objects.has_seen, WriteResult(self._resource, key, listing.resource_version)),
        )
        controllers = ((obj, controller_of(obj)) for obj in listing.items)
        found = [obj for obj, reference in controllers if reference is None or reference.uid == uid]
        listed = set(map(key_of, listing.items))
        others = (obj for obj in controlled_by(self._objects, uid) if key_of(obj) not in listed)
        return [*found, *(obj for obj in others if not selector.matches(obj.metadata.labels))]

    def wrote(self, owner: Object, *objects: T) -> None:
        """Expect the cache to show these objects, which were written for `owner`."""
        writes = (WriteResult(self._resource, key_of(obj), obj.metadata.resource_version) for obj in objects)
        self.expect(owner, *(partial(self._objects.has_seen, write) for write in writes))

    def deleted(self, owner: Object, *objects: T) -> None:
        """Expect the cache to show that these objects of `owner` are being deleted or gone."""
        self.expect(owner, *(partial(self._is_gone, obj) for obj in objects))

    def _is_gone(self, obj: T) -> bool:
        now = self._objects.get(key_of(obj))
        return now is None or now.metadata.uid != obj.metadata.uid or now.metadata.deletion_timestamp is not None

    def doubt(self, owner: Object) -> None:
        """List from the server next time, because the result of a write for `owner` is unknown."""
        self.expect(owner, _never)

    def expect(self, owner: Object, *seen: Seen) -> None:
        """Trust the cache only once all of these functions return true."""
        if seen:
            self._unseen[key_of(owner)] = (*self._unseen.get(key_of(owner), ()), *seen)

    def forget(self, key: Key) -> None:
        """Drop the expectations of an owner that was deleted."""
        self._unseen.pop(key, None)


def _never() -> bool:
    return False


def may_be_done(error: Exception | None) -> bool:
    """Return whether a failed request may have taken effect nevertheless."""
    return isinstance(error, TransportError) or (isinstance(error, ApiError) and error.code >= 500)


Selecting = Deployment | DaemonSet | StatefulSet


def selector_of(owner: Selecting) -> LabelSelector:
    """Return the selector of an owner, which may be empty. Raises TerminalError for an invalid one."""
    try:
        return owner.spec.selector.selector()
    except KeyError as error:
        raise TerminalError(f"spec.selector: {error} is not a valid label selector operator") from error


def selects(owner: Selecting, obj: Object) -> bool:
    """Return whether an owner selects an object by its labels. An empty selector selects nothing."""
    try:
        selector = owner.spec.selector.selector()
    except KeyError:
        return False
    return not selector.empty and selector.matches(obj.metadata.labels)


def owners_concerned(
    kind: Resource[O], selects: Callable[[O, T], bool], facts: Callable[[T], object] | None = None
) -> Callable[[Informers, Change[T]], Iterator[Key]]:
    """Return the `keys` of a `Mapped` watch: the owners of `kind` that a change of an object affects.

    These are the present and the previous controller of the object. An orphan that is new, was released or has new
    labels affects every owner that may adopt it, by `selects(owner, obj)`, except in the initial list, when all owners
    are reconciled anyway. A change that leaves the `facts` of an object equal affects no owner.
    """

    def keys(informers: Informers, change: Change[T]) -> Iterator[Key]:
        before, after = change.before, change.after
        if facts is not None and before is not None and after is not None and facts(before) == facts(after):
            return
        for obj in (before, after):
            key = controller_key(kind, obj) if obj is not None else None
            if key is not None:
                yield key
        if after is not None and not change.initial and _became_adoptable(before, after):
            owners: Informer[Any] = informers.get(kind)
            yield from (key_of(one) for one in owners.list(after.metadata.namespace) if selects(one, after))

    return keys


def _became_adoptable(before: Object | None, after: Object) -> bool:
    """Return whether an object has just become adoptable, or was given other labels."""
    if after.metadata.deletion_timestamp is not None or controller_of(after) is not None:
        return False
    return before is None or controller_of(before) is not None or before.metadata.labels != after.metadata.labels
