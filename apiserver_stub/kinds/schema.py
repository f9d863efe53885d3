"""The schema of objects as a graph of shared nodes, resolved on first use from plain data."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Tree = dict[str, Any]
Raw = Mapping[str, Any]
Resolve = Callable[[str], "Node"]

_NO_FIELDS: Mapping[str, "Node"] = MappingProxyType({})
_EXACT: Mapping[str, type] = MappingProxyType({"string": str, "boolean": bool})


class Node:
    """What a value may be.

    `type` is one of object (with `fields`, or a map with `values`), array (with `items`), string, integer, number,
    boolean, any, bytes (base64), int-or-string, quantity, time, micro-time. `fields`, `items` and `values` are
    resolved when first read, so that a graph may be recursive and only what is used costs anything. `exact` is the
    Python type that alone makes a scalar right, None where more must be checked.

    The plain data has the keys `type`, `format`, `ref`, `fields`, `items`, `values`, `required`, `enum`, `default`,
    `listType`, `listMapKeys`, `mapType`, `patchStrategy`, `patchMergeKey`, `preserve`; a `ref` beside other keys is
    the named definition with those keys laid over it.
    """

    __slots__ = (
        "_demands", "_empty", "_fields", "_items", "_judged", "_raw", "_resolve", "_values", "default", "enum",
        "exact", "format", "is_map", "list_map_keys", "list_type", "map_type", "patch_merge_key", "patch_strategy",
        "preserve", "required", "type",
    )  # fmt: skip

    def __init__(self, raw: Raw, resolve: Resolve) -> None:
        self._raw = raw
        self._resolve = resolve
        self._demands: bool | None = None
        self._judged: Mapping[str, Node] | None = None
        self._empty: tuple[tuple[str, Any], ...] | None = None
        self._fields: Mapping[str, Node] | None = None
        self._items: Node | None = None
        self._values: Node | None = None
        self.type: str = raw.get("type", "any")
        self.format: str = raw.get("format", "")
        self.required: tuple[str, ...] = tuple(raw.get("required", ()))
        self.enum: tuple[str, ...] = tuple(raw.get("enum", ()))
        self.default: Any = raw.get("default")
        self.list_type: str = raw.get("listType", "")
        self.list_map_keys: tuple[str, ...] = tuple(raw.get("listMapKeys", ()))
        self.map_type: str = raw.get("mapType", "")
        self.patch_strategy: frozenset[str] = frozenset(filter(None, raw.get("patchStrategy", "").split(",")))
        self.patch_merge_key: str = raw.get("patchMergeKey", "")
        self.preserve: bool = raw.get("preserve", False)
        self.is_map: bool = "values" in raw
        self.exact: type | None = _EXACT.get(self.type)

    def __repr__(self) -> str:
        return f"Node({self.type})"

    @property
    def fields(self) -> Mapping[str, "Node"]:
        """The named fields of an object; empty for a map and for everything else."""
        if self._fields is None:
            raw = self._raw.get("fields")
            self._fields = {name: self._node(field) for name, field in raw.items()} if raw else _NO_FIELDS
        return self._fields

    @property
    def always(self) -> tuple[tuple[str, Any], ...]:
        """The fields an object of this type always has, with the value they get when absent."""
        if self._empty is None:
            self._empty = tuple((name, node.default) for name, node in self.fields.items() if node.default is not None)
        return self._empty

    @property
    def demands(self) -> bool:
        """Whether anything in here is required or restricted to some values."""
        if self._demands is None:
            self._demands = True  # a way that leads back here finds it demanding
            inner = (*self.fields.values(), self.items, self.values)
            self._demands = bool(self.required or self.enum or any(node.demands for node in inner if node))
        return self._demands

    @property
    def judged(self) -> Mapping[str, "Node"]:
        """The fields whose values the schema may refuse."""
        if self._judged is None:
            self._judged = {name: node for name, node in self.fields.items() if node.demands}
        return self._judged

    @property
    def items(self) -> "Node | None":
        """The elements of an array."""
        if self._items is None and "items" in self._raw:
            self._items = self._node(self._raw["items"])
        return self._items

    @property
    def values(self) -> "Node | None":
        """The values of a map; None when the object is none."""
        if self._values is None and "values" in self._raw:
            self._values = self._node(self._raw["values"])
        return self._values

    def at(self, *path: str) -> "Node | None":
        """The node at a path of field names; arrays and maps are passed through to their elements."""
        found: Node | None = self
        for name in path:
            while found is not None and found.type == "array":
                found = found.items
            if found is None:
                return None
            found = found.fields.get(name) or found.values
        return found

    def _node(self, raw: Raw) -> "Node":
        name = raw.get("ref")
        if name is None:
            return Node(raw, self._resolve)
        target = self._resolve(name)
        if len(raw) == 1:
            return target
        laid_over = {key: value for key, value in raw.items() if key != "ref"}
        return Node({**target._raw, **laid_over}, self._resolve)


class Schemas:
    """Named definitions; each becomes one shared node when first asked for."""

    def __init__(self, definitions: Mapping[str, Raw]) -> None:
        self._definitions = definitions
        self._nodes: dict[str, Node] = {}

    def node(self, name: str) -> Node:
        """The node of a definition; raises KeyError when there is none."""
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = Node(self._definitions[name], self.node)
        return found

    def names(self) -> tuple[str, ...]:
        """Every definition there is."""
        return tuple(self._definitions)


ANYTHING = Node({"type": "any"}, Schemas({}).node)
