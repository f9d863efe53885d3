"""The messages that are no objects in JSON, taken apart: times, quantities, values of any type."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.api.timestamps import parse_time

Tree = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)


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
    return {} if value is None else {"raw": msgspec.json.encode(value)}


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
