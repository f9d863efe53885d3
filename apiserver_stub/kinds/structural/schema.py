"""A structural schema as a graph of nodes, created on first use from the plain `openAPIV3Schema`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.published import OBJECT_META, schemas
from apiserver_stub.kinds.schema.schema import Raw, Schema

EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_MAP_KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE = "x-kubernetes-list-type"
MAP_TYPE = "x-kubernetes-map-type"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
VALIDATIONS = "x-kubernetes-validations"
TYPE_META = frozenset({"apiVersion", "kind", "metadata"})
"""The fields of every resource, including embedded ones. They may be missing in its schema."""

_NOTHING: Mapping[str, "StructuralSchema"] = MappingProxyType({})
_SCALARS = (str, int, float)


class StructuralSchema(Schema):
    """The schema of a value of a custom resource.

    `raw` is the plain data, which is shared and never changed. Children are created on first read. `resource` means
    that the value is a resource: the object itself or an embedded one. As a `Schema`, with `fields`, `items` and
    `values`, it is used for field ownership. There a `default` exists for scalars only, as part of a list key. Values
    derived from the schema are cached in it (`derived`).
    """

    def __init__(self, raw: Raw, *, root: bool = False) -> None:
        super().__init__(_plain(raw, root=root), schemas().node)
        self.raw = raw
        self.resource: bool = root or bool(raw.get(EMBEDDED))
        self.nullable: bool = bool(raw.get("nullable"))
        self.int_or_string: bool = bool(raw.get(INT_OR_STRING))
        self.validations: Sequence[Mapping[str, Any]] = raw.get(VALIDATIONS) or ()
        self.default_value: Any = raw.get("default")
        self.has_additional: bool = raw.get("additionalProperties") is not None

    @cached_property
    def properties(self) -> Mapping[str, "StructuralSchema"]:
        """Return the named properties of an object."""
        found = self.raw.get("properties")
        return {name: StructuralSchema(raw) for name, raw in found.items()} if found else _NOTHING

    @cached_property
    def additional(self) -> "StructuralSchema | None":
        """Return the schema of additional properties, or None."""
        found = self.raw.get("additionalProperties")
        return StructuralSchema(found) if isinstance(found, dict) else None

    @cached_property
    def items(self) -> "StructuralSchema | None":
        """Return the schema of the elements of an array."""
        found = self.raw.get("items")
        return StructuralSchema(found) if isinstance(found, dict) else None

    @cached_property
    def fields(self) -> Mapping[str, Schema]:
        """Return the named fields of an object, including those of every resource."""
        if not self.resource:
            return self.properties
        text = Schema({"type": "string"}, self._resolve)
        of_all = {"apiVersion": text, "kind": text, "metadata": self._resolve(OBJECT_META)}
        return {**self.properties, **of_all}

    @property
    def values(self) -> "Schema | None":
        """Return the schema of the values of a map. None if the object is not a map."""
        return None if self.resource or self.properties else self.additional

    @cached_property
    def mixed(self) -> bool:
        """Return whether parts of the value may have any type, so that comparing must distinguish true from 1."""
        return self.preserve or any(node.mixed for node in self.nodes())

    def child(self, name: str) -> "StructuralSchema | None":
        """Return the schema of the value of the key `name` in an object."""
        return self.properties.get(name) or self.additional

    def nodes(self) -> Iterator["StructuralSchema"]:
        """Return the children of this node."""
        yield from self.properties.values()
        for inner in (self.additional, self.items):
            if inner is not None:
                yield inner


def _plain(raw: Raw, *, root: bool) -> Raw:
    """Return one level of a schema in the form that field ownership needs."""
    kind = "int-or-string" if raw.get(INT_OR_STRING) else raw.get("type") or "any"
    default = raw.get("default")
    return {
        "type": kind,
        "default": default if isinstance(default, _SCALARS) else None,
        "listType": raw.get(LIST_TYPE) or "",
        "listMapKeys": raw.get(LIST_MAP_KEYS) or (),
        "mapType": raw.get(MAP_TYPE) or "",
        "preserve": bool(raw.get(PRESERVE)),
        "required": ("metadata",) if root else (),
    }
