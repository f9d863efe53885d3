"""OpenAPI documents as protobuf for Go clients: a small writer, and the messages of both versions as tables.

The messages are those of gnostic (openapiv2/OpenAPIv2.proto, openapiv3/OpenAPIv3.proto), as far as our documents use
them.
A message is a table from the key in JSON to `NUMBER TYPE`; a function chooses a message by the value. A TYPE is
`text`, `flag`, `int`, `double`, `any` (any value, as YAML), `scalar` (a default of version 3), the name of a message,
or a composition:

    [T]    a repeated field                 {T}    a message of pairs (name, T)
    N>T    a message with T as field N      >T     the same with field 1

The key `x-` stands for all extensions and `*` for all keys not named; both are written as pairs.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.common.api.protobuf.wire import head, number
from controller_manager.common.api.tree import FrozenTree

Messages = Mapping[str, Mapping[str, str] | Callable[[Any], str]]
Encode = Callable[[int, Any], bytes]

_PARAMETER = {
    "required": "1 flag", "in": "2 text", "description": "3 text", "name": "4 text",
}  # fmt: skip
_DOCS = {"description": "1 text", "url": "2 text"}
_IN_V2 = MappingProxyType({"body": "1 Body", "query": "2 3>QueryParameter", "path": "2 4>PathParameter"})

V2: Messages = MappingProxyType({
    "Document": {
        "swagger": "1 text", "info": "2 Info", "paths": "8 Paths", "definitions": "9 {Schema}",
        "security": "12 [{>[text]}]", "securityDefinitions": "13 {2>ApiKey}",
    },
    "Info": {"title": "1 text", "version": "2 text"},
    "ApiKey": {"type": "1 text", "name": "2 text", "in": "3 text", "description": "4 text"},
    "Paths": {"*": "2 PathItem"},
    "PathItem": {
        "get": "2 Operation", "put": "3 Operation", "post": "4 Operation", "delete": "5 Operation",
        "options": "6 Operation", "head": "7 Operation", "patch": "8 Operation", "parameters": "9 [>Parameter]",
    },
    "Operation": {
        "tags": "1 [text]", "description": "3 text", "operationId": "5 text", "produces": "6 [text]",
        "consumes": "7 [text]", "parameters": "8 [>Parameter]", "responses": "9 Responses", "schemes": "10 [text]",
        "x-": "13 any",
    },
    "Parameter": lambda parameter: _IN_V2[parameter["in"]],
    "Body": {"name": "2 text", "in": "3 text", "required": "4 flag", "schema": "5 Schema"},
    "QueryParameter": {**_PARAMETER, "type": "6 text", "uniqueItems": "20 flag"},
    "PathParameter": {**_PARAMETER, "type": "5 text", "uniqueItems": "19 flag"},
    "Responses": {"*": "1 >Response"},
    "Response": {"description": "1 text", "schema": "2 >Schema"},
    "Schema": {
        "$ref": "1 text", "format": "2 text", "title": "3 text", "description": "4 text", "multipleOf": "6 double",
        "maximum": "7 double", "exclusiveMaximum": "8 flag", "minimum": "9 double", "exclusiveMinimum": "10 flag",
        "maxLength": "11 int", "minLength": "12 int", "pattern": "13 text", "maxItems": "14 int", "minItems": "15 int",
        "uniqueItems": "16 flag", "maxProperties": "17 int", "minProperties": "18 int", "required": "19 [text]",
        "enum": "20 [any]", "additionalProperties": "21 AdditionalProperties", "type": "22 >text",
        "items": "23 >Schema", "properties": "25 {Schema}", "externalDocs": "29 ExternalDocs", "example": "30 any",
        "x-": "31 any",
    },
    "AdditionalProperties": lambda schema: "2 flag" if isinstance(schema, bool) else "1 Schema",
    "ExternalDocs": _DOCS,
})  # fmt: skip

V3: Messages = MappingProxyType({
    "Document": {
        "openapi": "1 text", "info": "2 Info", "paths": "4 Paths", "components": "5 Components",
        "security": "6 [{>[text]}]",
    },
    "Info": {"title": "1 text", "version": "6 text"},
    "Components": {"schemas": "1 {SchemaOrReference}", "securitySchemes": "7 {>SecurityScheme}"},
    "SecurityScheme": {"type": "1 text", "description": "2 text", "name": "3 text", "in": "4 text"},
    "Paths": {"*": "1 PathItem"},
    "PathItem": {
        "get": "4 Operation", "put": "5 Operation", "post": "6 Operation", "delete": "7 Operation",
        "options": "8 Operation", "head": "9 Operation", "patch": "10 Operation", "parameters": "13 [>Parameter]",
    },
    "Operation": {
        "tags": "1 [text]", "description": "3 text", "operationId": "5 text", "parameters": "6 [>Parameter]",
        "requestBody": "7 >RequestBody", "responses": "8 Responses", "x-": "13 any",
    },
    "Parameter": {
        "name": "1 text", "in": "2 text", "description": "3 text", "required": "4 flag",
        "schema": "10 SchemaOrReference",
    },
    "RequestBody": {"content": "2 {MediaType}", "required": "3 flag"},
    "Responses": {"default": "1 >Response", "*": "2 >Response"},
    "Response": {"description": "1 text", "content": "3 {MediaType}"},
    "MediaType": {"schema": "1 SchemaOrReference"},
    "SchemaOrReference": lambda schema: "2 Reference" if "$ref" in schema else "1 Schema",
    "Reference": {"$ref": "1 text", "description": "3 text"},
    "Schema": {
        "nullable": "1 flag", "externalDocs": "6 ExternalDocs", "example": "7 any", "title": "9 text",
        "multipleOf": "10 double", "maximum": "11 double", "exclusiveMaximum": "12 flag", "minimum": "13 double",
        "exclusiveMinimum": "14 flag", "maxLength": "15 int", "minLength": "16 int", "pattern": "17 text",
        "maxItems": "18 int", "minItems": "19 int", "uniqueItems": "20 flag", "maxProperties": "21 int",
        "minProperties": "22 int", "required": "23 [text]", "enum": "24 [any]", "type": "25 text",
        "allOf": "26 [SchemaOrReference]", "oneOf": "27 [SchemaOrReference]", "anyOf": "28 [SchemaOrReference]",
        "not": "29 Schema", "items": "30 >SchemaOrReference", "properties": "31 {SchemaOrReference}",
        "additionalProperties": "32 AdditionalProperties", "default": "33 scalar", "description": "34 text",
        "format": "35 text", "x-": "36 any",
    },
    "AdditionalProperties": lambda schema: "2 flag" if isinstance(schema, bool) else "1 SchemaOrReference",
    "ExternalDocs": _DOCS,
})  # fmt: skip


_UNFIT: Any = object()


def fitted(messages: Messages, name: str, value: Any) -> FrozenTree:
    """Return the part of an untrusted tree that fits the named message; empty if nothing fits.

    Raises RecursionError for a tree that is too deep.
    """
    found = _fit(messages, name, value)
    return {} if found is _UNFIT else found


def _fit(messages: Messages, kind: str, value: Any) -> Any:
    if kind in _TYPES:
        return value if isinstance(value, _TYPES[kind]) else _UNFIT
    if kind.startswith("["):
        found = [_fit(messages, kind[1:-1], one) for one in value] if isinstance(value, list) else []
        return [one for one in found if one is not _UNFIT] if isinstance(value, list) else _UNFIT
    if kind.startswith("{"):
        return _fit_all(messages, dict.fromkeys(value, kind[1:-1]), value) if isinstance(value, dict) else _UNFIT
    _, arrow, inner = kind.partition(">")
    if arrow:
        return _fit(messages, inner, value)
    table = messages[kind]
    if callable(table):
        try:
            return _fit(messages, _kind(table(value)), value)
        except (KeyError, TypeError):
            return _UNFIT
    if not isinstance(value, dict):
        return _UNFIT
    specs = {key: table.get(key) or table.get("x-" if key.startswith("x-") else "*") for key in value}
    return _fit_all(messages, {key: _kind(spec) for key, spec in specs.items() if spec}, value)


def _fit_all(messages: Messages, kinds: Mapping[str, str], value: FrozenTree) -> dict[str, Any]:
    found = {key: _fit(messages, kind, value[key]) for key, kind in kinds.items()}
    return {key: one for key, one in found.items() if one is not _UNFIT}


def _kind(spec: str) -> str:
    return spec.partition(" ")[2]


class Writer:
    """Writes trees as protobuf messages of a table."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._fields: dict[str, tuple[int, Encode]] = {}

    def message(self, name: str, value: FrozenTree) -> bytes:
        """Return a tree as the named message. Raises KeyError for a key that is not in the table."""
        table = self._messages[name]
        if callable(table):
            field, encode = self._field(table(value))
            return encode(field, value)
        parts = []
        for key, found in value.items():
            spec = table.get(key)
            if spec is not None:
                field, encode = self._field(spec)
                parts.append(encode(field, found))
            else:
                field, encode = self._field(table["x-" if key.startswith("x-") else "*"])
                parts.append(_pair(field, key, found, encode))
        return b"".join(parts)

    def _field(self, spec: str) -> tuple[int, Encode]:
        found = self._fields.get(spec)
        if found is None:
            field, _, kind = spec.partition(" ")
            found = self._fields[spec] = int(field), self._encode(kind)
        return found

    def _encode(self, kind: str) -> Encode:
        if kind in _SCALARS:
            return _SCALARS[kind]
        if kind.startswith("["):
            one = self._encode(kind[1:-1])
            return lambda field, values: b"".join([one(field, value) for value in values])
        if kind.startswith("{"):
            named = self._encode(kind[1:-1])
            return lambda field, values: _bytes(field, _pairs(values, named))
        wrapped, arrow, inner = kind.partition(">")
        if arrow:
            place, within = int(wrapped or 1), self._encode(inner)
            return lambda field, value: _bytes(field, within(place, value))
        return lambda field, value: _bytes(field, self.message(kind, value))


def _pair(field: int, name: str, value: Any, encode: Encode) -> bytes:
    return _bytes(field, _text(1, name) + encode(2, value))


def _pairs(values: FrozenTree, encode: Encode) -> bytes:
    return b"".join([_pair(1, name, value, encode) for name, value in values.items()])


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _flag(field: int, value: bool) -> bytes:
    return number(field << 3) + b"\1" if value else b""


def _int(field: int, value: float) -> bytes:
    return number(field << 3) + number(int(value))


def _double(field: int, value: float) -> bytes:
    return number(field << 3 | 1) + struct.pack("<d", value)


def _any(field: int, value: Any) -> bytes:
    return _bytes(field, _bytes(2, msgspec.json.encode(value)))


def _scalar(field: int, value: Any) -> bytes:
    """Return a default value; the message cannot hold an object."""
    if isinstance(value, bool):
        return _bytes(field, _flag(2, value) or b"\x10\0")
    if isinstance(value, int | float):
        return _bytes(field, _double(1, value))
    return _bytes(field, _text(3, value)) if isinstance(value, str) else b""


def _bytes(field: int, value: bytes) -> bytes:
    return head(field, len(value)) + value


_TYPES: Mapping[str, Any] = MappingProxyType({
    "text": str, "flag": bool, "int": int, "double": int | float, "any": object, "scalar": object,
})  # fmt: skip
_SCALARS: Mapping[str, Encode] = MappingProxyType({
    "text": _text, "flag": _flag, "int": _int, "double": _double, "any": _any, "scalar": _scalar,
})  # fmt: skip
