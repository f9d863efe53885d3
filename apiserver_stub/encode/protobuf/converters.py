"""JSON values of protobuf messages that are not objects in JSON."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from apiserver_stub.encode.json import decode
from controller_manager.common.api.protobuf.reader import Convert
from controller_manager.common.api.timestamps import format_micro, format_time
from controller_manager.common.api.tree import Tree

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


CONVERTERS: Mapping[str, Convert] = MappingProxyType({
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
"""Functions by message that return the JSON value from the message's fields; None for no value."""
