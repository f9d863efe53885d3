"""Definitions as schemas of OpenAPI 2 or 3: the same facts in two dialects. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.apis.openapi.custom import CustomSchemas
from apiserver_stub.apis.openapi.definitions import META, Definitions, Raw, name_of

Schema = dict[str, Any]

_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_EXTENSIONS = (
    ("intOrString", "x-kubernetes-int-or-string"),
    ("listMapKeys", "x-kubernetes-list-map-keys"),
    ("listType", "x-kubernetes-list-type"),
    ("mapType", "x-kubernetes-map-type"),
    ("patchMergeKey", "x-kubernetes-patch-merge-key"),
    ("patchStrategy", "x-kubernetes-patch-strategy"),
    ("preserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("unions", "x-kubernetes-unions"),
)
_PLAIN = ("description", "type", "format", "enum", "required")
# Descriptions of the fields that every kind has, by name and type.
_SENTENCES: Mapping[tuple[str, str], str] = MappingProxyType({
    ("apiVersion", "string"): "The group and version of the schema this object follows, as group/version.",
    ("kind", "string"): "The name of the schema this object follows.",
    ("metadata", "ref"): "Data about the object itself, such as its name and its version.",
    ("spec", "ref"): "What is wanted.",
    ("status", "ref"): "What was last observed.",
    ("items", "array"): "The objects of the list.",
})  # fmt: skip


class Dialect(msgspec.Struct, frozen=True):
    """The differences between OpenAPI versions: where definitions are, whether defaults are included (clients of
    version 2 fail on them), and definitions that only one version can describe fully.
    """

    prefix: str
    defaults: bool
    special: Mapping[str, Schema]

    def ref(self, name: str) -> Schema:
        """Return a reference to a definition."""
        return {"$ref": self.prefix + name}

    def definitions(
        self, definitions: Definitions, names: Iterable[str], version: tuple[str, str] | None = None
    ) -> dict[str, Schema]:
        """Return the named definitions. The group-version-kinds of a kind that all groups share are limited to the core
        group and the group and `version`, if given.
        """
        return {name: self.definition(definitions, name, version) for name in names}

    def definition(self, definitions: Definitions, name: str, version: tuple[str, str] | None = None) -> Schema:
        """Return one definition."""
        if name in self.special:
            return self.special[name]
        raw = definitions[name]
        if "custom" in raw:
            return self._custom(raw)
        sentences = _SENTENCES if "gvk" in raw else {}
        fields = {
            field: self._field(found, sentences.get((field, _type(found)), ""))
            for field, found in raw.get("fields", {}).items()
        }
        schema = _described(raw)
        if fields:
            schema["properties"] = fields
        if "gvk" in raw:
            schema["x-kubernetes-group-version-kind"] = [
                {"group": group, "kind": kind, "version": of}
                for group, of, kind in raw["gvk"]
                if version is None or len(raw["gvk"]) == 1 or (group, of) in (("", "v1"), version)
            ]
        return schema

    def _custom(self, raw: Raw) -> Schema:
        kind, metadata, of_list = raw["custom"], self.ref(f"{META}ObjectMeta"), self.ref(f"{META}ListMeta")
        schemas = CustomSchemas(kind, metadata, of_list, self.ref(name_of(kind)), old=not self.defaults)
        return schemas.list() if "isList" in raw else schemas.object()

    def _field(self, raw: Raw, sentence: str) -> Schema:
        schema = _described(raw)
        if "fields" in raw:
            schema["properties"] = {name: self._field(inner, "") for name, inner in raw["fields"].items()}
        if sentence:
            schema.setdefault("description", sentence)
        if self.defaults and "default" in raw:
            schema["default"] = raw["default"]
        if "ref" in raw:
            ref = self.ref(raw["ref"])
            schema.update({"allOf": [ref]} if schema and self.defaults else ref)
        for part, keyword in (("items", "items"), ("values", "additionalProperties")):
            if part in raw:
                schema[keyword] = self._field(raw[part], "")
        return schema


V2 = Dialect("#/definitions/", defaults=False, special=MappingProxyType({}))
V3 = Dialect(
    "#/components/schemas/",
    defaults=True,
    special=MappingProxyType({
        _INT_OR_STRING: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
        _QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    }),
)  # fmt: skip


def _type(raw: Raw) -> str:
    return "ref" if "ref" in raw else raw.get("type", "")


def _described(raw: Raw) -> Schema:
    schema = {key: raw[key] for key in _PLAIN if key in raw}
    schema.update({extension: raw[key] for key, extension in _EXTENSIONS if key in raw})
    return schema
