"""The messages that are no objects in JSON: times, quantities, free JSON, and values of one type or another."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import orjson

from apiserver_stub.encode.json import Tree, decode
from controller_manager.api.timestamps import format_micro, format_time, parse_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)


def _time(fields: Tree) -> str | None:
    return format_time(_moment(fields)) if fields else None


def _micro_time(fields: Tree) -> str | None:
    return format_micro(_moment(fields)) if fields else None


def _moment(fields: Tree) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=fields.get("seconds", 0), microseconds=fields.get("nanos", 0) // 1000)
    except OverflowError:
        raise ValueError("a time is beyond the calendar") from None


def _quantity(fields: Tree) -> str:
    return str(fields.get("text", "0"))


def _int_or_string(fields: Tree) -> int | str:
    found: int | str = fields.get("text", "") if fields.get("type") else fields.get("number", 0)
    return found


def _json(fields: Tree) -> Any:
    raw = fields.get("raw")
    return decode(raw) if raw else None


def _schema_or_several(fields: Tree) -> Any:
    return fields.get("several") or fields.get("schema")


def _schema_or_bool(fields: Tree) -> Any:
    return fields.get("schema", fields.get("allows", False))


def _items(fields: Tree) -> Any:
    return fields.get("items", [])


FORMS: Mapping[str, Callable[[Tree], Any]] = MappingProxyType({
    "api.resource.Quantity": _quantity,
    "apiextensions.v1.JSON": _json,
    "apiextensions.v1.JSONSchemaPropsOrArray": _schema_or_several,
    "apiextensions.v1.JSONSchemaPropsOrBool": _schema_or_bool,
    "apiextensions.v1.JSONSchemaPropsOrStringArray": _schema_or_several,
    "meta.v1.ExtraValue": _items,
    "meta.v1.FieldsV1": _json,
    "meta.v1.MicroTime": _micro_time,
    "meta.v1.Time": _time,
    "runtime.RawExtension": _json,
    "util.intstr.IntOrString": _int_or_string,
})  # fmt: skip
"""What the fields of such a message are in JSON; None where they are nothing."""


def _time_parts(text: str | None) -> Tree:
    return {"seconds": (parse_time(text) - _EPOCH) // _SECOND, "nanos": 0} if text else {}


def _micro_time_parts(text: str | None) -> Tree:
    if not text:
        return {}
    seconds, rest = divmod(parse_time(text) - _EPOCH, _SECOND)
    return {"seconds": seconds, "nanos": rest // _MICROSECOND * 1000}


def _quantity_parts(text: str | None) -> Tree:
    return {"text": text or "0"}


def _int_or_string_parts(value: int | str | None) -> Tree:
    return {"type": 1, "text": value} if isinstance(value, str) else {"number": value}


def _json_parts(value: Any) -> Tree:
    return {} if value is None else {"raw": orjson.dumps(value)}


def _schema_or_several_parts(value: Any) -> Tree:
    return {"several" if isinstance(value, list) else "schema": value}


def _schema_or_bool_parts(value: Any) -> Tree:
    return {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": value}


def _items_parts(value: Any) -> Tree:
    return {"items": value}


PARTS: Mapping[str, Callable[[Any], Tree]] = MappingProxyType({
    "api.resource.Quantity": _quantity_parts,
    "apiextensions.v1.JSON": _json_parts,
    "apiextensions.v1.JSONSchemaPropsOrArray": _schema_or_several_parts,
    "apiextensions.v1.JSONSchemaPropsOrBool": _schema_or_bool_parts,
    "apiextensions.v1.JSONSchemaPropsOrStringArray": _schema_or_several_parts,
    "meta.v1.ExtraValue": _items_parts,
    "meta.v1.FieldsV1": _json_parts,
    "meta.v1.MicroTime": _micro_time_parts,
    "meta.v1.Time": _time_parts,
    "runtime.RawExtension": _json_parts,
    "util.intstr.IntOrString": _int_or_string_parts,
})  # fmt: skip
"""The fields of such a message, of its JSON value or of None where there is nothing."""
