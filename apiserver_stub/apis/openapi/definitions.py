"""The object definitions that OpenAPI documents refer to, by their published names."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.structural.schema import StructuralSchema

Raw = Mapping[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
STATUS, PATCH, DELETE_OPTIONS, WATCH_EVENT = (
    META + name for name in ("Status", "Patch", "DeleteOptions", "WatchEvent")
)
# The locations of groups whose definitions are not below `io.k8s.api.`.
_HOMES = (
    ("meta.", "io.k8s.apimachinery.pkg.apis."),
    ("apiextensions.", "io.k8s.apiextensions-apiserver.pkg.apis."),
    ("apiregistration.", "io.k8s.kube-aggregator.pkg.apis."),
    ("", "io.k8s.api."),
)
_TYPE: Raw = MappingProxyType({"apiVersion": {"type": "string"}, "kind": {"type": "string"}})
# OpenAPI names of value types, if they differ.
_TYPES: Mapping[str, Raw] = MappingProxyType({
    "any": {"preserveUnknownFields": True},
    "bytes": {"type": "string", "format": "byte"},
    "int-or-string": {"intOrString": True},
    "quantity": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
    "micro-time": {"type": "string", "format": "date-time"},
})  # fmt: skip


class Definitions:
    """Raw definitions by full name.

    A definition has the keys of the facts: `type`, `format`, `ref`, `fields`, `items`, `values`, `required`, `enum`,
    `default`, `description`, `listType`, `listMapKeys`, `mapType`, `patchStrategy`, `patchMergeKey`, `unions`, and as
    `gvk` a list of (group, version, kind). The definition of a `custom` kind (with `isList`:
    of its list) is described by its schema and has only the fields that refer to other definitions.
    """

    def __init__(self, definitions: Mapping[str, Raw]) -> None:
        self._definitions = definitions

    def __getitem__(self, name: str) -> Raw:
        return self._definitions[name]

    def __contains__(self, name: str) -> bool:
        return name in self._definitions

    def closure(self, names: Iterable[str]) -> list[str]:
        """Return the names and everything they refer to, sorted."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(_refs(self._definitions[name]))
        return sorted(found)

    def with_kinds(self, kinds: Iterable[ResourceInfo]) -> "Definitions":
        """Return these definitions plus those of kinds that are not in the published API, built from their schema, with
        their lists.
        """
        found: dict[str, Raw] = {}
        for kind in kinds:
            if kind.definition:
                continue
            custom = {"custom": kind} if isinstance(kind.schema, StructuralSchema) else {}
            found[name_of(kind)] = {**_object_of(kind), **custom}
            found[name_of_list(kind)] = {**_list_of(kind), **custom, "isList": True}
        return Definitions({**self._definitions, **found}) if found else self


def built_in() -> Definitions:
    """Return the definitions of the built-in API with descriptions."""
    definitions = _load("definitions.json")
    for short, descriptions in _load("descriptions.json").items():
        raw = definitions[full_name(short)]
        for name, sentence in descriptions.items():
            (raw["fields"][name] if name else raw)["description"] = sentence
    return Definitions(definitions)


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(files(__package__).joinpath(name).read_bytes())
    return found


def full_name(short: str) -> str:
    """Return the published name of a definition: `core.v1.Pod` is `io.k8s.api.core.v1.Pod`."""
    return next(home + short for start, home in _HOMES if short.startswith(start))


def name_of(body: ResourceInfo | Subresource) -> str:
    """Return the published name of a kind's definition. For a kind outside the published API it is the reversed group,
    version and kind, whether the definition exists or not.
    """
    if body.definition:
        return full_name(body.definition)
    return ".".join([*reversed(body.group.split(".")), body.version, body.kind])


def name_of_list(kind: ResourceInfo) -> str:
    """Return the name of the definition of the kind's list."""
    return f"{name_of(kind)}List"


def _refs(raw: Raw) -> Iterator[str]:
    for field in raw.get("fields", {}).values():
        found: Raw | None = field
        while found is not None:
            if "ref" in found:
                yield found["ref"]
            found = found.get("items") or found.get("values")


def _object_of(kind: ResourceInfo) -> Raw:
    """Return an object definition from the kind's schema; an empty schema allows anything."""
    found = {} if isinstance(kind.schema, StructuralSchema) else _described(kind.schema, ())
    fields = {**found.get("fields", {}), **_TYPE, "metadata": {"ref": f"{META}ObjectMeta"}}
    gvk = [[kind.group, kind.version, kind.kind]]
    return {**found, "type": "object", "gvk": gvk, "fields": {name: fields[name] for name in sorted(fields)}}


def _list_of(kind: ResourceInfo) -> Raw:
    fields = {
        **_TYPE,
        "items": {"type": "array", "items": {"ref": name_of(kind)}},
        "metadata": {"ref": f"{META}ListMeta"},
    }
    gvk = [[kind.group, kind.version, kind.list_kind]]
    return {"type": "object", "gvk": gvk, "required": ["items"], "fields": {k: fields[k] for k in sorted(fields)}}


def _described(schema: Schema, above: tuple[Schema, ...]) -> Raw:
    """Return a schema as a definition with its references inlined; a recursive reference allows anything."""
    found: dict[str, Any] = dict(_TYPES.get(schema.type, {"type": schema.type}))
    if schema.preserve or schema in above or not (schema.fields or schema.values or schema.type != "object"):
        found["preserveUnknownFields"] = True
    if schema in above:
        return found
    above = (*above, schema)
    found.update({key: value for key, value in _keywords(schema) if value})
    if schema.fields:
        found["fields"] = {name: _described(field, above) for name, field in schema.fields.items()}
    for part, inner in (("items", schema.items), ("values", schema.values)):
        if inner is not None:
            found[part] = _described(inner, above)
    return found


def _keywords(schema: Schema) -> Iterator[tuple[str, Any]]:
    yield "required", list(schema.required)
    yield "enum", list(schema.enum)
    yield "listType", schema.list_type
    yield "listMapKeys", list(schema.list_map_keys)
    yield "mapType", schema.map_type
