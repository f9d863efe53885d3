"""Known sizes of values before evaluation, from bounds in declared types."""

from __future__ import annotations

from collections.abc import Callable

from controller_manager.common.cel.library import Estimate, fixed
from controller_manager.common.cel.syntax import ListLiteral, Literal, MapLiteral, Node
from controller_manager.common.cel.types import Kind, ObjectType, Type

SizePath = tuple[str, ...]
# Returns the size of a path: a variable, then field names, `@items`, `@keys`, `@values`.
Sizes = Callable[[SizePath], Estimate | None]


def declared_sizes(root: Type) -> Sizes:
    """Return the sizes from the bounds of a declared type; a value without a bound counts as empty.

    The first name of a path is any variable of the type.
    """

    def size(path: SizePath) -> Estimate | None:
        current = root
        for name in path[1:]:
            found = _below(current, name)
            if found is None:
                return None
            current = found
        return Estimate(0, current.max_elements or 0)

    return size


def _below(owner: Type, name: str) -> Type | None:
    if name in ("@items", "@values"):
        return owner.parameters[-1] if owner.parameters else None
    if name == "@keys":
        return owner.parameters[0] if owner.kind is Kind.MAP else None
    field = owner.fields.get(name) if isinstance(owner, ObjectType) else None
    return None if field is None else field.type


class EntrySizes:
    """The sizes of the keys and values of a list or map."""

    __slots__ = ("key", "kind", "value")

    def __init__(self, kind: Kind, key: Estimate, value: Estimate) -> None:
        self.kind = kind
        self.key = key
        self.value = value

    def union(self, other: EntrySizes | None) -> EntrySizes | None:
        """Return the union of two entry sizes if both are known."""
        if other is None:
            return None
        return EntrySizes(self.kind, self.key.union(other.key), self.value.union(other.value))


def literal_size(node: Node) -> Estimate | None:
    """Return the size of a literal; None for other expressions."""
    if isinstance(node, Literal):
        return fixed(len(node.value)) if isinstance(node.value, str | bytes) else fixed(1)
    if isinstance(node, ListLiteral):
        return fixed(len(node.elements))
    return fixed(len(node.entries)) if isinstance(node, MapLiteral) else None
