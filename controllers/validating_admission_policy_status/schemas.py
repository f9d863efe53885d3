"""The declared types of kinds, made of how the server describes them (OpenAPI v3)."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from controller_manager.framework.client.client import Client
from controller_manager.framework.client.rest_client import Call

from .types import GroupVersionKind

Schema = Mapping[str, Any]

_MOST_KEPT = 64  # types
_REFERENCE = "#/components/schemas/"
_KINDS = "x-kubernetes-group-version-kind"
_INT_OR_STRING = "x-kubernetes-int-or-string"


class Schemas:
    """Types by kind, each kept as long as the description of its version stays the same."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[tuple[str, GroupVersionKind], Any] = {}

    async def declared(self, kind: GroupVersionKind) -> Any:
        """Return the type of the objects of a kind; None for one that is not described."""
        paths = orjson.loads(await self._client.raw(Call("GET", "/openapi/v3")))["paths"]
        described = paths.get(kind.path)
        if described is None:
            return None
        url = described["serverRelativeURL"]
        key = url, kind
        if key not in self._kept:
            parts = urlsplit(url)
            document = orjson.loads(await self._client.raw(Call("GET", parts.path, tuple(parse_qsl(parts.query)))))
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = declared_in(document, kind)
        return self._kept[key]


def declared_in(document: Mapping[str, Any], kind: GroupVersionKind) -> Any:
    """Return the type of a kind that a document describes; None if it does not."""
    from controller_manager.common.cel.schema_types import declared_type  # CEL, which a manager can do without

    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        if kind._asdict() in schema.get(_KINDS, ()):
            found = declared_type(whole(schemas, schema, frozenset({name})), kind.kind, resource=True)
            return None if found is None else found.type
    return None


def whole(schemas: Mapping[str, Schema], schema: Schema, above: frozenset[str]) -> Schema:
    """Return a schema with what it refers to in place of references; `above` are the names of those it is part of,
    which stand there as objects without fields.
    """
    name = _referred(schema)
    if name is not None:
        if name in above:
            return {"type": "object"}
        return whole(schemas, schemas[name], above | {name})
    found = dict(schema)
    if found.get("format") == "int-or-string":
        found[_INT_OR_STRING] = True
    if "properties" in found:
        found["properties"] = {key: whole(schemas, each, above) for key, each in found["properties"].items()}
    for key in ("additionalProperties", "items"):
        if isinstance(found.get(key), dict):
            found[key] = whole(schemas, found[key], above)
    return found


def _referred(schema: Schema) -> str | None:
    """Return the name that a schema refers to, by itself or wrapped together with its description."""
    for each in (schema, *schema.get("allOf", ())):
        if "$ref" in each:
            return str(each["$ref"]).removeprefix(_REFERENCE)
    return None
