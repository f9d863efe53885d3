"""Writers of protobuf messages from JSON values, made from a table that describes them (`table`)."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.api.protobuf.wire import Write, scalar, sized
from controller_manager.api.timestamps import parse_time

Tree = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_ZEROS: Mapping[str, Any] = MappingProxyType({"string": "", "bool": False, "int": 0, "double": 0.0})
_ABSENT = frozenset({"pointer", "list", "map"})


class MessageWriters:
    """The writers of all messages, each made when first asked for."""

    def __init__(self, fields: Mapping[str, Mapping[str, list[str]]]) -> None:
        self._fields = fields
        self._made: dict[str, MessageWriter] = {}

    def __getitem__(self, name: str) -> "MessageWriter":
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = MessageWriter(name, self._fields[name], self)
        return found


class MessageWriter:
    """Writes one message, its fields in the order of their numbers; what is no pointer is written even when absent."""

    def __init__(self, name: str, described: Mapping[str, list[str]], writers: MessageWriters) -> None:
        self._described = described
        self._writers = writers
        self._parts = _PARTS.get(name)

    def message(self, value: Any) -> bytes:
        """Return the message of a JSON value; fields nobody knows are passed over, and null is absence."""
        tree = value if self._parts is None else self._parts(value)
        puts = self._puts
        found = self._absent.copy()
        for name, part in tree.items():
            put = puts.get(name)
            if put is not None and part is not None:
                found[name] = put(part)
        if self._embedded is not None:
            found[""] = self._embedded(tree)
        return b"".join(found.values())

    @cached_property
    def empty(self) -> bytes:
        """The message of an absent value."""
        return self.message({} if self._parts is None else None)

    @cached_property
    def _puts(self) -> Mapping[str, Write]:
        return {
            name: _LABELS.get("".join(label), _one)(int(number), kind, self._writers)
            for number, (name, kind, *label) in self._described.items()
            if name
        }

    @cached_property
    def _embedded(self) -> Write | None:
        for number, (name, kind, *_) in self._described.items():
            if not name:
                return _one(int(number), kind, self._writers)
        return None

    @cached_property
    def _absent(self) -> dict[str, bytes]:
        """By name, in order, what is written for each field that is absent."""
        return {field[0]: self._zero(int(number), *field[1:]) for number, field in self._described.items()}

    def _zero(self, number: int, kind: str, label: str = "") -> bytes:
        if label in _ABSENT:
            return b""
        if "." in kind:
            return sized(number, bytes)(self._writers[kind].empty)
        return scalar(number, kind)(_ZEROS[kind]) if kind in _ZEROS else b""


def _one(number: int, kind: str, writers: MessageWriters) -> Write:
    return sized(number, writers[kind].message) if "." in kind else scalar(number, kind)


def _list(number: int, kind: str, writers: MessageWriters) -> Write:
    put = _one(number, kind, writers)
    return lambda values: b"".join(map(put, values))


def _map(number: int, kind: str, writers: MessageWriters) -> Write:
    key, value = scalar(1, "string"), _one(2, kind, writers)
    put = sized(number, lambda item: key(item[0]) + value(item[1]))
    return lambda values: b"".join(map(put, sorted(values.items())))


_LABELS: Mapping[str, Callable[[int, str, MessageWriters], Write]] = MappingProxyType({"list": _list, "map": _map})


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


_PARTS: Mapping[str, Callable[[Any], Tree]] = MappingProxyType({
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
"""By message that is no object in JSON, what makes its fields of its value, or of None."""
