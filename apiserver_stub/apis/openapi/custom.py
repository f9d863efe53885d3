"""OpenAPI schemas of custom resources, from the schema of their definition, for version 3 or 2.

Version 2 has no junctors, no nullable values and no defaults here, and its clients fail on declared fields next to
unknown ones.
"""

from typing import Any

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.structural.schema import EMBEDDED, INT_OR_STRING, PRESERVE, StructuralSchema

Schema = dict[str, Any]

_INTEGER_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_UNKNOWN_TO_OLD = frozenset({"allOf", "anyOf", "oneOf", "not", "default"})
_VALUES = frozenset({"default", "example"})
_DROPPED_IF_UNKNOWN = ("items", "properties")
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_VERSION = {
    "description": "APIVersion defines the versioned schema of this representation of an object. Servers should "
    "convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: "
    f"{_CONVENTIONS}#resources",
    "type": "string",
}
_KIND = {
    "description": "Kind is a string value representing the REST resource this object represents. Servers may infer "
    "this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
    f"{_CONVENTIONS}#types-kinds",
    "type": "string",
}
_INNER_VERSION = {
    "description": "apiVersion defines the versioned schema of this representation of an object. More info: "
    f"{_CONVENTIONS}#resources",
    "type": "string",
}
_INNER_KIND = {
    "description": "kind is a string value representing the type of this object. In CamelCase. More info: "
    f"{_CONVENTIONS}#types-kinds",
    "type": "string",
}
_METADATA = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"


class CustomSchemas:
    """The schemas of a custom resource and its list. `metadata` and `list_metadata` are references to the common
    schemas, `itself` to the resource's schema. `old` is version 2.
    """

    def __init__(
        self, kind: ResourceInfo, metadata: Schema, list_metadata: Schema, itself: Schema, *, old: bool
    ) -> None:
        self._kind = kind
        self._metadata = self._referring(metadata, _METADATA, old=old)
        self._list_metadata = self._referring(list_metadata, _LIST_METADATA, old=old)
        self._itself = itself
        self._old = old

    @staticmethod
    def _referring(to: Schema, description: str, *, old: bool) -> Schema:
        return {"description": description, **to} if old else {"description": description, "allOf": [to]}

    def object(self) -> Schema:
        """Return the schema of an object."""
        kind = self._kind
        assert isinstance(kind.schema, StructuralSchema)
        raw = kind.schema.raw
        if self._old and raw.get(PRESERVE):
            schema: Schema = {"type": "object"}
        else:
            schema = self._expressed(dict(raw))
            own = {"apiVersion": _VERSION, "kind": _KIND, "metadata": self._metadata}
            schema["properties"] = dict(sorted({**schema.get("properties", {}), **own}.items()))
        return {**schema, **self._about(kind.kind)}

    def list(self) -> Schema:
        """Return the schema of a collection."""
        kind = self._kind
        items = {
            "description": f"List of {kind.plural}. More info: {_CONVENTIONS}",
            "type": "array",
            "items": self._itself,
        }
        fields = {"apiVersion": _VERSION, "items": items, "kind": _KIND, "metadata": self._list_metadata}
        return {
            "description": f"{kind.list_kind} is a list of {kind.kind}", "type": "object", "required": ["items"],
            "properties": fields, **self._about(kind.list_kind),
        }  # fmt: skip

    def _about(self, name: str) -> Schema:
        kind = self._kind
        about = {"group": kind.group, "kind": name, "version": kind.version}
        found: Schema = {"x-kubernetes-group-version-kind": [about]}
        if kind.fields:
            found["x-kubernetes-selectable-fields"] = [{"fieldPath": path} for path in kind.fields]
        return found

    def _expressed(self, raw: Schema) -> Schema:
        """Return a schema in this OpenAPI version, recursively."""
        keywords = {name: value for name, value in raw.items() if _has_meaning(name, value)}
        schema = _simplified(keywords) if self._old else _unfolded(keywords)
        if "properties" in schema:
            schema["properties"] = {name: self._expressed(inner) for name, inner in schema["properties"].items()}
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                schema[name] = self._expressed(schema[name])
        if schema.get(EMBEDDED) and not (self._old and schema.get(PRESERVE)):
            own = {"apiVersion": _INNER_VERSION, "kind": _INNER_KIND, "metadata": self._metadata}
            schema["properties"] = {**schema.get("properties", {}), **own}
            required = schema.get("required", ())
            schema["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
        return schema


def _has_meaning(name: str, value: Any) -> bool:
    """Return whether a keyword with this value has a meaning; zero has one, and so does every example."""
    return value is not None and (name in _VALUES or (value is not False and value not in ("", [], {})))


def _unfolded(raw: Schema) -> Schema:
    """Return a schema with its extensions expressed in standard keywords."""
    schema = dict(raw)
    all_of = raw.get("allOf") or [{}]
    if raw.get(INT_OR_STRING) and _INTEGER_OR_STRING not in (raw.get("anyOf"), all_of[0].get("anyOf")):
        if "anyOf" in raw:
            schema["allOf"] = [{"anyOf": _INTEGER_OR_STRING}, *raw.get("allOf", ())]
        else:
            schema["anyOf"] = _INTEGER_OR_STRING
    return schema


def _simplified(raw: Schema) -> Schema:
    """Return a schema without keywords that version 2 or its clients do not support."""
    schema = {name: value for name, value in raw.items() if name not in _UNKNOWN_TO_OLD}
    properties = schema.get("properties", {})
    nullable = {name for name, inner in properties.items() if inner.get("nullable")}
    if raw.get("nullable") or raw.get(PRESERVE):
        schema = {name: value for name, value in schema.items() if name not in _DROPPED_IF_UNKNOWN}
    if schema.pop("nullable", False) or (schema.get("type") == "array" and "items" not in schema):
        schema.pop("type", None)
    if schema.get(PRESERVE) and schema.get("type") == "object":
        schema.pop("type")
    more = schema.get("additionalProperties")
    required = [name for name in schema.get("required", ()) if name not in nullable]
    if not required or (isinstance(more, dict) and more.get("nullable")):
        schema.pop("required", None)
    else:
        schema["required"] = required
    return schema
