"""The schema of objects as a graph of shared nodes, resolved on first use from plain data."""

from collections.abc import Callable, Mapping
from functools import cached_property
from threading import get_ident
from types import MappingProxyType
from typing import Any, Self, TypeVar

Raw = Mapping[str, Any]
_Resolve = Callable[[str], "Schema"]
T = TypeVar("T")

_EXACT: Mapping[str, type] = MappingProxyType({"string": str, "boolean": bool})
# The Python types by schema type, for types whose empty value may equal an absent one.
_PYTHON: Mapping[str, frozenset[type]] = MappingProxyType({
    "string": frozenset({str}), "bytes": frozenset({str}), "boolean": frozenset({bool}), "integer": frozenset({int}),
    "array": frozenset({list}), "object": frozenset({dict}),
})  # fmt: skip
_NOTHING: frozenset[type] = frozenset()


class Schema:
    """The schema of a value.

    `type` is one of object (with `fields`, or a map with `values`), array (with `items`), string, integer, number,
    boolean, any, bytes (base64), int-or-string, quantity, time, micro-time. `fields`, `items` and `values` are resolved
    on first read, so a graph may be recursive and unused parts cost nothing. `exact` is the Python type that is enough
    to accept a scalar, None if more must be checked. `default` is the value of the field if it is not set. It is None
    if the field may be absent or is then null (`null_when_absent`). `omits` are the Python types whose empty value is
    left out (`omit`). `name` is the name of its definition (`core.v1.Pod`), or empty.

    The plain data has the keys `type`, `format`, `ref`, `fields`, `items`, `values`, `embeds`, `required`, `enum`,
    `default`, `null`, `omit`, `listType`, `listMapKeys`, `mapType`, `patchStrategy`, `patchMergeKey`, `preserve`. A
    `ref` with other keys is the named definition with those keys overridden. The format `milli` is for quantities with
    at most three decimal places.
    """

    def __init__(self, raw: Raw, resolve: _Resolve, name: str = "") -> None:
        self._raw = raw
        self._resolve = resolve
        self.name = name
        self.type: str = raw.get("type", "any")
        self.format: str = raw.get("format", "")
        self.required: tuple[str, ...] = tuple(raw.get("required", ()))
        self.enum: tuple[str, ...] = tuple(raw.get("enum", ()))
        self.default: Any = raw.get("default")
        self.null_when_absent: bool = raw.get("null", False)
        self.omits: frozenset[type] = _PYTHON[self.type] if raw.get("omit") else _NOTHING
        self.list_type: str = raw.get("listType", "")
        self.list_map_keys: tuple[str, ...] = tuple(raw.get("listMapKeys", ()))
        self.map_type: str = raw.get("mapType", "")
        self.patch_strategy: frozenset[str] = frozenset(filter(None, raw.get("patchStrategy", "").split(",")))
        self.patch_merge_key: str = raw.get("patchMergeKey", "")
        self.preserve: bool = raw.get("preserve", False)
        self.is_map: bool = "values" in raw
        self.exact: type | None = _EXACT.get(self.type)
        self._derived: dict[object, Any] | None = None

    def __repr__(self) -> str:
        return f"Schema({self.type})"

    def derived(self, make: Callable[[Self], T], meanwhile: T | None = None) -> T:
        """Return `make(schema)`, computed once and cached as long as the schema. It must not be None. If `make`
        recurses into this schema, it gets `meanwhile`, which other threads never see.
        """
        derived = self._derived
        if derived is None:
            derived = self._derived = {}
        found: T | None = derived.get(make)
        if found is None:
            under_way = make, get_ident()
            found = derived.get(under_way)
            if found is None:
                derived[under_way] = meanwhile
                try:
                    found = derived[make] = make(self)
                finally:
                    del derived[under_way]
        return found

    def has_derived(self, make: Callable[[Self], T]) -> bool:
        """Return whether `derived` already has a value for `make`."""
        return self._derived is not None and make in self._derived

    @cached_property
    def fields(self) -> Mapping[str, "Schema"]:
        """Return the named fields of an object. Empty for a map and for other types."""
        return {name: self._node(field) for name, field in self._raw.get("fields", {}).items()}

    @cached_property
    def items(self) -> "Schema | None":
        """Return the schema of the elements of an array."""
        return self._node(self._raw["items"]) if "items" in self._raw else None

    @cached_property
    def embeds(self) -> "Schema | None":
        """Return the schema of objects inside a value of type any, single or in arrays. None if any are allowed."""
        return self._node(self._raw["embeds"]) if "embeds" in self._raw else None

    @cached_property
    def values(self) -> "Schema | None":
        """Return the schema of the values of a map. None if the object is not a map."""
        return self._node(self._raw["values"]) if "values" in self._raw else None

    def _node(self, raw: Raw) -> "Schema":
        name = raw.get("ref")
        if name is None:
            return Schema(raw, self._resolve)
        target = self._resolve(name)
        if len(raw) == 1:
            return target
        laid_over = {key: value for key, value in raw.items() if key != "ref"}
        return Schema({**target._raw, **laid_over}, self._resolve, name)


class Schemas:
    """Named definitions. Each becomes one shared node on first use."""

    def __init__(self, definitions: Mapping[str, Raw]) -> None:
        self._definitions = definitions
        self._nodes: dict[str, Schema] = {}

    def node(self, name: str) -> Schema:
        """Return the node of a definition. Raises KeyError if it does not exist."""
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = Schema(self._definitions[name], self.node, name)
        return found


ANYTHING = Schema({"type": "any"}, Schemas({}).node)
