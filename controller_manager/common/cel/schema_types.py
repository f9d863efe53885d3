"""CEL types for structural schemas of custom resources.

Values without a type in the schema, and preserved unknown fields, are not available to expressions.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from controller_manager.common.cel.property_names import KEYWORDS, escaped
from controller_manager.common.cel.times import SECOND, parse_duration, parse_timestamp
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    ListType,
    MapType,
    ObjectType,
    Type,
)
from controller_manager.common.cel.values import Duration, EvaluationError, KeyedList, SetList, Timestamp

Schema = Mapping[str, Any]
Reader = Callable[[Any], Any]

MAX_REQUEST = 3 * 1024 * 1024  # bytes of the largest request, for estimates of unbounded values
_LONGEST_STRING = MAX_REQUEST - 2
_SMALLEST = {"boolean": 4, "number": 1, "integer": 1}  # bytes of the shortest JSON value


class DeclaredType(NamedTuple):
    """A type, and the bytes of its smallest JSON value."""

    type: Type
    min_size: int


def declared_type(schema: Schema, name: str, *, resource: bool = False) -> DeclaredType | None:
    """Return the type of a schema's values, or None if they are not available to expressions.

    `name` is the name of the type and a prefix for nested types. A `resource` has metadata even if the schema does not
    declare it.
    """
    if schema.get("x-kubernetes-int-or-string"):
        length = schema.get("maxLength")
        return DeclaredType(DYN.bounded(_LONGEST_STRING if length is None else max(length, 0) * 4), 1)
    if resource:
        schema = _with_metadata(schema)
    kind = schema.get("type")
    if kind == "array":
        return _list_type(schema, name)
    if kind == "object":
        properties = schema.get("additionalProperties")
        return _map_type(schema, properties, name) if isinstance(properties, dict) else _object_type(schema, name)
    if kind == "string":
        return _string_type(schema)
    scalar = _SCALARS.get(kind) if isinstance(kind, str) else None
    return None if scalar is None else DeclaredType(scalar, _SMALLEST[str(kind)])


def _with_metadata(schema: Schema) -> Schema:
    text = {"type": "string"}
    properties = schema.get("properties") or {}
    known = properties.get("metadata") or {}
    names = known.get("properties") or {}
    texts = [properties.get("kind"), properties.get("apiVersion"), names.get("name"), names.get("generateName")]
    if known.get("type") == "object" and all(one and one.get("type") == "string" for one in texts):
        return schema
    metadata = {"type": "object", "properties": {"name": text, "generateName": text}}
    return {**schema, "properties": {**properties, "kind": text, "apiVersion": text, "metadata": metadata}}


def _below(schema: Schema, name: str) -> DeclaredType | None:
    return declared_type(schema, name, resource=bool(schema.get("x-kubernetes-embedded-resource")))


def _list_type(schema: Schema, name: str) -> DeclaredType | None:
    items = schema.get("items")
    element = _below(items, f"{name}.@idx") if isinstance(items, dict) else None
    if element is None:
        return None
    most = schema.get("maxItems")
    most = (MAX_REQUEST - 2) // (element.min_size + 1) if most is None else max(most, 0)
    return DeclaredType(ListType(element.type, most, _list_reader(schema, element.type.reader)), 2)


def _map_type(schema: Schema, values: Schema, name: str) -> DeclaredType | None:
    value = _below(values, f"{name}.@elem")
    if value is None:
        return None
    most = schema.get("maxProperties")
    most = (MAX_REQUEST - 2) // (value.min_size + 6) if most is None else max(most, 0)
    reader = value.type.reader
    return DeclaredType(MapType(STRING, value.type, most, None if reader is None else _map_reader(reader)), 2)


def _object_type(schema: Schema, name: str) -> DeclaredType:
    fields: dict[str, Type | Field] = {}
    required = schema.get("required") or ()
    size = 2
    for key, below in (schema.get("properties") or {}).items():
        field_name = escaped(key)
        declared = _below(below, f"{name}.{field_name or key}")
        if declared is None:
            continue
        if field_name is not None:
            fields[field_name] = Field(declared.type, key)
            if key in KEYWORDS:
                fields[key] = fields[field_name]
        if key in required and below.get("default") is None:
            size += len(key.encode()) + declared.min_size + 4
    return DeclaredType(ObjectType(name, fields), size)


def _string_type(schema: Schema) -> DeclaredType:
    length, text_format = schema.get("maxLength"), schema.get("format")
    if text_format == "byte":
        return DeclaredType(BYTES.bounded(_LONGEST_STRING if length is None else max(length, 0), _read_bytes), 2)
    if text_format == "duration":
        return DeclaredType(DURATION.bounded(32, _read_duration), 3)
    if text_format == "date":
        return DeclaredType(TIMESTAMP.bounded(12, _read_date), 12)
    if text_format == "date-time":
        return DeclaredType(TIMESTAMP.bounded(32, _read_date_time), 21)
    if length is not None:
        return DeclaredType(STRING.bounded(max(length, 0) * 4), 2)
    values = schema.get("enum")
    if values:
        return DeclaredType(STRING.bounded(max(len(one.encode()) if isinstance(one, str) else 0 for one in values)), 2)
    return DeclaredType(STRING.bounded(_LONGEST_STRING), 2)


def _list_reader(schema: Schema, element: Reader | None) -> Reader | None:
    """Return the conversion of items to a list of their list type, or None for plain lists."""
    kind = schema.get("x-kubernetes-list-type")
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if kind not in ("set", "map") and element is None:
        return None

    def read(items: Any) -> Any:
        if type(items) is not list:
            return items
        values = items if element is None else [_nullable(element, item) for item in items]
        if kind == "set":
            return SetList(values)
        return KeyedList(values, keys) if kind == "map" else values

    return read


def _map_reader(value: Reader) -> Reader:
    def read(mapping: Any) -> Any:
        if type(mapping) is not dict:
            return mapping
        return {key: _nullable(value, item) for key, item in mapping.items()}

    return read


def _nullable(reader: Reader, value: Any) -> Any:
    return None if value is None else reader(value)


def _read_double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _read_bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text.replace("\r", "").replace("\n", ""), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, AttributeError) as error:
        raise EvaluationError(f"Invalid byte formatted string {text}: {error}") from None


def _read_date(text: Any) -> Timestamp:
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    except (TypeError, ValueError):
        day = None
    if day is None:
        raise EvaluationError(f"Invalid date formatted string {text}")
    return Timestamp((day - date(1970, 1, 1)).days * 86400 * SECOND)


def _read_date_time(text: Any) -> Timestamp:
    if text == "":
        return Timestamp(0)
    try:
        return parse_timestamp(text)
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except (TypeError, ValueError):
        raise EvaluationError(f"Invalid date-time formatted string {text}") from None
    return Timestamp(int(moment.timestamp()) * SECOND)


_DAYS = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_SPANS = (
    (("ns",), "nano", 1),
    (("us", "µs"), "micro", 1000),
    (("ms",), "milli", 1_000_000),
    (("s",), "sec", SECOND),
    (("m",), "min", 60 * SECOND),
    (("h", "hr"), "hour", 3600 * SECOND),
    (("d",), "day", 86400 * SECOND),
    (("w", "wk"), "week", 7 * 86400 * SECOND),
)


def _read_duration(text: Any) -> Duration:
    """Parse a duration in Go's format, or in words like `2 days`."""
    try:
        return parse_duration(text)
    except (TypeError, ValueError):
        pass
    total = None
    for count, unit in _DAYS.findall(text) if isinstance(text, str) else ():
        for short, prefix, factor in _SPANS:
            if unit.lower() in short or unit.lower().startswith(prefix):
                total = (total or 0) + int(count) * factor
    if total is None:
        raise EvaluationError(f"Invalid duration {text}: unable to parse {text} as duration")
    return Duration(total)


_SCALARS = {
    "boolean": BOOL.bounded(0),
    "number": DOUBLE.bounded(0, _read_double),
    "integer": INT.bounded(0),
}
