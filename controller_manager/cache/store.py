"""The objects of one collection by key, by namespace and by named indexes; it hands out the objects it was given."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from controller_manager.api.model import Object
from controller_manager.api.resource import Key, key_of

T = TypeVar("T", bound=Object)

# The values under which an index lists an object. Must depend on nothing but the object, and not raise.
Index = Callable[[T], Iterable[str]]


class Store(Generic[T]):
    """An object is under exactly the values each index computes for it; no value and no namespace is left empty."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, T]] = {}
        self._indexes: dict[str, Index[T]] = {}
        self._by_value: dict[str, dict[str, dict[Key, T]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for objects in self._namespaces.values():
            yield from objects.values()

    @property
    def indexes(self) -> Mapping[str, Index[T]]:
        """The indexes that are kept, by name."""
        return self._indexes

    def get(self, key: Key) -> T | None:
        """The object of that key."""
        objects = self._namespaces.get(key.namespace)
        return objects.get(key.name) if objects else None

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects under `value` of the index `name`; KeyError if there is no such index."""
        return list(self._by_value[name].get(value, {}).values())

    def list(self, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[T]:
        """The objects of a namespace, or all; with `labels`, those that have all of them."""
        found = self._namespaces.get(namespace, {}).values() if namespace else self
        if not labels:
            return list(found)
        return [obj for obj in found if labels.items() <= (obj.metadata.labels or {}).items()]

    def add_indexes(self, indexes: Mapping[str, Index[T]]) -> None:
        """Keep these indexes too. Another function under a name that is taken is a ValueError."""
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
        """Take in `obj`; return the one of its key that was there, whose place it takes."""
        meta = obj.metadata
        entries = [(name, tuple(index(obj))) for name, index in self._indexes.items()]
        objects = self._namespaces.get(meta.namespace)
        if objects is None:
            objects = self._namespaces[meta.namespace] = {}
        before = objects.get(meta.name)
        objects[meta.name] = obj
        if before is None:
            self._size += 1
        else:
            self._leave_all(before)
        for name, values in entries:
            self._enter(name, values, obj)
        return before

    def drop(self, key: Key) -> T | None:
        """Let go of the object of that key, and return it."""
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
