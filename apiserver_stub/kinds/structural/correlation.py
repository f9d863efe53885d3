"""Match each value of a changed object to its old value and compare both (KEP-4008)."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver_stub.kinds.structural.schema import StructuralSchema

_SCALARS = (bool, int, float, str)


class Correlation:
    """A value, its old value, and the schema that says how their children correspond. Children are created lazily."""

    __slots__ = ("_by_key", "_children", "_equal", "_schema", "new", "old")

    def __init__(self, new: Any, old: Any, schema: StructuralSchema) -> None:
        self.new = new
        self.old = old
        self._schema = schema
        self._equal: bool | None = None
        self._children: dict[str | int, Correlation | None] = {}
        self._by_key: MapList | None = None

    def key(self, name: str) -> "Correlation | None":
        """Return the correlation of the child `name`. None if only one of the objects has it, or if it is unknown."""
        if name not in self._children:
            found = None
            if type(self.new) is type(self.old) is dict and name in self.new and name in self.old:
                child = self._schema.child(name)
                found = None if child is None else Correlation(self.new[name], self.old[name], child)
            self._children[name] = found
        return self._children[name]

    def index(self, index: int) -> "Correlation | None":
        """Return the correlation of an element of a map list with the old element that has the same keys."""
        if index not in self._children:
            self._children[index] = self._element(index)
        return self._children[index]

    @property
    def equal(self) -> bool:
        """Return whether the value is unchanged. The order in map lists does not matter."""
        if self._equal is None:
            self._equal = self._compared()
        return self._equal

    def _element(self, index: int) -> "Correlation | None":
        items = self._schema.items
        if type(self.old) is not list or items is None or self._schema.list_type != "map":
            return None
        if self._by_key is None:
            self._by_key = MapList(self._schema, self.old)
        found = self._by_key.get(self.new[index])
        return None if found is None else Correlation(self.new[index], found, items)

    def _compared(self) -> bool:
        new, old = self.new, self.old
        if type(new) is dict and type(old) is dict:
            return len(new) == len(old) and all((child := self.key(name)) and child.equal for name in new)
        if type(new) is list and type(old) is list and self._schema.list_type == "map":
            if len(new) != len(old):
                return False
            return all((child := self.index(i)) and child.equal for i in range(len(new)))
        return same(new, old)


class MapList:
    """The elements of a map list by their keys. Empty for other lists."""

    __slots__ = ("_elements", "_keys")

    def __init__(self, schema: StructuralSchema, elements: Any) -> None:
        self._keys: Sequence[str] = schema.list_map_keys if schema.list_type == "map" else ()
        self._elements: dict[Any, Any] = {}
        for element in elements if self._keys and type(elements) is list else ():
            key = self._key_of(element)
            if key is not None:
                self._elements.setdefault(key, element)

    def get(self, element: Any) -> Any:
        """Return the element with the same keys as another one, or None."""
        key = self._key_of(element)
        return None if key is None else self._elements.get(key)

    def _key_of(self, element: Any) -> tuple[tuple[type, Any], ...] | None:
        if type(element) is not dict:
            return None
        values = [element.get(name) for name in self._keys]
        return tuple((type(value), value) for value in values) if all(type(v) in _SCALARS for v in values) else None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same types, like decoded values in Go."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return len(one) == len(other) and all(name in other and same(one[name], other[name]) for name in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
