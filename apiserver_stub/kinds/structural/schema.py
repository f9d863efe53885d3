"""A structural schema as a graph of nodes, made of the plain `openAPIV3Schema` when something is first asked of it."""

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
"""The fields of every resource, embedded ones too, which need not be in its schema."""

_NOTHING: Mapping[str, "StructuralSchema"] = MappingProxyType({})
_SCALARS = (str, int, float)


class StructuralSchema(Schema):
    """The schema of a value of a custom resource.

    `raw` is the plain data, which is shared and never changed; children are made when first read. `resource` says that
    the value is a resource: the object itself or one embedded in it. As a `Schema`, with `fields`, `items` and
    `values`, it says who may own what; a `default` is there for scalars alone, as part of a key. What is made of it for
    one purpose is kept by it (`derived`).
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
        """The named properties of an object."""
        found = self.raw.get("properties")
        return {name: StructuralSchema(raw) for name, raw in found.items()} if found else _NOTHING

    @cached_property
    def additional(self) -> "StructuralSchema | None":
        """The schema of values that have no name of their own; None if there is none."""
        found = self.raw.get("additionalProperties")
        return StructuralSchema(found) if isinstance(found, dict) else None

    @cached_property
    def items(self) -> "StructuralSchema | None":
        """The elements of an array."""
        found = self.raw.get("items")
        return StructuralSchema(found) if isinstance(found, dict) else None

    @cached_property
    def fields(self) -> Mapping[str, Schema]:
        """The named fields of an object, those of every resource among them."""
        if not self.resource:
            return self.properties
        text = Schema({"type": "string"}, self._resolve)
        of_all = {"apiVersion": text, "kind": text, "metadata": self._resolve(OBJECT_META)}
        return {**self.properties, **of_all}

    @property
    def values(self) -> "Schema | None":
        """The values of a map; None when the object is none."""
        return None if self.resource or self.properties else self.additional

    @cached_property
    def mixed(self) -> bool:
        """Whether the value has parts of any type, so that true may take the place of 1."""
        return self.preserve or any(node.mixed for node in self.nodes())

    def child(self, name: str) -> "StructuralSchema | None":
        """Return the schema of the value called `name` in an object."""
        return self.properties.get(name) or self.additional

    def nodes(self) -> Iterator["StructuralSchema"]:
        """Return the children of this node."""
        yield from self.properties.values()
        for inner in (self.additional, self.items):
            if inner is not None:
                yield inner


def _plain(raw: Raw, *, root: bool) -> Raw:
    """Return the one level of a schema, as ownership of fields needs it."""
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
