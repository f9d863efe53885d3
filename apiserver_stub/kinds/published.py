"""The definitions of the published API, by name and by kind. Schemas of other kinds may refer to them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.schema.enums import lay_enums
from apiserver_stub.kinds.schema.schema import Schema, Schemas

OBJECT_META = "meta.v1.ObjectMeta"
_PROPS = "apiextensions.v1.JSONSchemaProps"


def schemas() -> Schemas:
    """Return the definitions of the published API by name (`meta.v1.ObjectMeta`)."""
    return _definitions()[0]


def names() -> Mapping[str, str]:
    """Return the name of the definition of each kind (`group/version/kind`)."""
    return _definitions()[1]


def schema_of(api_version: str, kind: str) -> Schema | None:
    """Return the schema of a published kind, which need not be a resource. None if it is unknown."""
    group, _, version = api_version.rpartition("/")
    name = names().get(f"{group}/{version}/{kind}")
    return schemas().node(name) if name else None


def _lay_schemas(fields: dict[str, Any]) -> None:
    """Add schema fields to the published definition of JSONSchemaProps where it is incomplete."""
    for name, otherwise in (("items", "array"), ("additionalProperties", "boolean"), ("additionalItems", "boolean")):
        fields[name] |= {"embeds": {"ref": _PROPS}, "format": otherwise}
    fields["dependencies"]["values"] = {"type": "any", "embeds": {"ref": _PROPS}}


@cache
def _definitions() -> tuple[Schemas, Mapping[str, str]]:
    data = load("schema.json")
    lay_enums(data["definitions"])
    _lay_schemas(data["definitions"][_PROPS]["fields"])
    return Schemas(data["definitions"]), data["kinds"]
