"""Objects by who controls them: what an owner has or may adopt, and which owners a change concerns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from controller_manager.api.model import Object
from controller_manager.api.resource import Resource
from controller_manager.controller import Change, Informer, Informers, Key, controller_key, controller_of, key_of

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
