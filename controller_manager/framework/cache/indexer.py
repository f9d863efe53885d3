"""The store of an informer: objects by key, namespace and named indexes, objects of a listing in progress, and objects
that could not be decoded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base.log import Logger
from controller_manager.framework.cache.sharing import share_equal_parts
from controller_manager.framework.client.codec import Listing, WatchEvent

T = TypeVar("T", bound=Object)

# Returns the values under which an index lists an object. It must depend on the object only and must not raise.
Index = Callable[[T], Iterable[str]]


class Indexer(Generic[T]):
    """Objects by key and by index. An index lists an object under the values it returns; empty entries are removed."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, T]] = {}
        self._indexes: dict[str, Index[T]] = {}
        self._by_value: dict[str, dict[str, dict[Key, T]]] = {}
        self._size = 0
        self._newest: T | None = None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for objects in self._namespaces.values():
            yield from objects.values()

    @property
    def indexes(self) -> Mapping[str, Index[T]]:
        """The indexes, by name."""
        return self._indexes

    def get(self, key: Key) -> T | None:
        """Return the object with that key; None if it is not in the store."""
        objects = self._namespaces.get(key.namespace)
        return objects.get(key.name) if objects else None

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under `value` of the index `name`. Raises KeyError if the index does not exist."""
        return list(self._by_value[name].get(value, {}).values())

    def list(self, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[T]:
        """Return the objects of a namespace, or of all namespaces; with `labels`, only those that have all of them."""
        found = self._namespaces.get(namespace, {}).values() if namespace else self
        if not labels:
            return list(found)
        return [obj for obj in found if labels.items() <= (obj.metadata.labels or {}).items()]

    def add_indexes(self, indexes: Mapping[str, Index[T]]) -> None:
        """Add indexes. Raises ValueError if another function already has one of the names."""
        for name, index in indexes.items():
            known = self._indexes.get(name)
            if known is not None and known is not index:
                raise ValueError(f"another index is called {name!r} already")
            if known is None:
                self._indexes[name] = index
                self._by_value[name] = {}
                for obj in self:
                    self._enter(name, index(obj), obj)

    def put(self, obj: T) -> T | None:
        """Store `obj` and return the object that it replaces, if any.

        Parts that equal those of the replaced object, or of the last stored one, are shared to save memory.
        """
        meta = obj.metadata
        entries = [(name, tuple(index(obj))) for name, index in self._indexes.items()]
        objects = self._namespaces.get(meta.namespace)
        if objects is None:
            objects = self._namespaces[meta.namespace] = {}
        before = objects.get(meta.name)
        if before is not None:
            share_equal_parts(obj, before)
        if self._newest is not None and self._newest is not before:
            share_equal_parts(obj, self._newest)
        objects[meta.name] = self._newest = obj
        if before is None:
            self._size += 1
        else:
            self._leave_all(before)
        for name, values in entries:
            self._enter(name, values, obj)
        return before

    def drop(self, key: Key) -> T | None:
        """Remove the object with that key and return it; None if it is not in the store."""
        objects = self._namespaces.get(key.namespace)
        before = objects.pop(key.name, None) if objects else None
        if objects is None or before is None:
            return None
        self._size -= 1
        if not objects:
            del self._namespaces[key.namespace]
        self._leave_all(before)
        return before

    def _enter(self, name: str, values: Iterable[str], obj: T) -> None:
        for value in values:
            self._by_value[name].setdefault(value, {})[key_of(obj)] = obj

    def _leave_all(self, obj: T) -> None:
        for name, index in self._indexes.items():
            self._leave(name, index(obj), key_of(obj))

    def _leave(self, name: str, values: Iterable[str], key: Key) -> None:
        for value in set(values):
            entries = self._by_value[name][value]
            del entries[key]
            if not entries:
                del self._by_value[name][value]


class Staged(Generic[T]):
    """A listing in progress, which replaces the known state when it is complete.

    It has the objects read so far, and the reasons why others could not be decoded. A key is in one of the two at most.
    """

    def __init__(self) -> None:
        self.objects: Indexer[T] = Indexer()
        self.unreadable: dict[Key, str] = {}

    def page(self, page: Listing[T]) -> None:
        """Add a page of a list."""
        for obj in page.items:
            self.objects.put(obj)
        self.unreadable.update((key_of(one.object), one.why) for one in page.unreadable)

    def event(self, event: WatchEvent[T]) -> None:
        """Apply an event of a streaming list."""
        key = key_of(event.object)
        if event.type == "DELETED" or event.unreadable:
            self.objects.drop(key)
        else:
            self.objects.put(event.object)
        if event.type != "DELETED" and event.unreadable:
            self.unreadable[key] = event.unreadable
        elif self.unreadable:
            self.unreadable.pop(key, None)


class UnreadableObjects:
    """The objects that an informer leaves out because they could not be decoded, with the reason. Each is logged once.

    Objects whose names could not be decoded share the empty key.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._why: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._why)

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each object, with the reason."""
        return tuple(f"{_name(key)}: {why}" for key, why in self._why.items())

    def add(self, key: Key, why: str) -> None:
        """Record that an object could not be decoded."""
        if key not in self._why:
            self._log.warning("an object can't be read and is left out", object=_name(key), error=why)
        self._why[key] = why

    def discard(self, key: Key) -> None:
        """Record that an object can be decoded again, or was deleted."""
        if self._why.pop(key, None) is not None:
            self._log.info("an object that could not be read is gone or can be read now", object=_name(key))

    def replace(self, found: Mapping[Key, str]) -> None:
        """Replace the whole set with `found`."""
        for key in [key for key in self._why if key not in found]:
            self.discard(key)
        for key, why in found.items():
            self.add(key, why)


def _name(key: Key) -> str:
    return str(key) or "without a readable name"
