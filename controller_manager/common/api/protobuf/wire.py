"""The protobuf wire format: fields and scalar values, and writers of messages from JSON values, built from a table
(`table`).
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from struct import pack, unpack
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.tree import Tree

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Characters that Go escapes in JSON text in addition to the required ones, for use in HTML and JavaScript.
_ESCAPED = tuple((one.encode(), f"\\u{ord(one):04x}".encode()) for one in "<>&\u2028\u2029")
_FIRST, _LAST = 1 << 3, 0xFFFF_FFFF

Value = int | bytes


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the fields of a message in order: tag (number and wire type) and value. Raises `ValueError`."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = _varint(data, at)
        if not _FIRST <= tag <= _LAST:
            raise ValueError("a field has no number, or one too high")
        wire = tag & 7
        if wire not in (VARINT, BYTES):
            number = _size(wire)
        elif at < end and data[at] < 0x80:
            number = data[at]
            at += 1
        else:
            number, at = _varint(data, at)
        if wire == VARINT:
            yield tag, number
            continue
        start = at
        at += number
        if at > end:
            raise ValueError("it ends in the middle of a field")
        yield tag, data[start:at]


def _size(wire: int) -> int:
    if wire == FIXED64:
        return 8
    if wire == FIXED32:
        return 4
    raise ValueError(f"there is no wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and its end. Raises `ValueError`."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError("it ends in the middle of a number, or a number is too long")


def varints(data: bytes) -> Iterator[int]:
    """Yield the numbers of a packed list."""
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _integer(value: int, _: Any) -> int:
    """Return a signed number from its 64-bit two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


def _double(value: bytes, _: Any) -> float:
    found: float = unpack("<d", value)[0]
    if not math.isfinite(found):
        raise ValueError("a number is not finite")
    return found


SCALARS: Mapping[str, tuple[int, Callable[[Any, Any], Any]]] = MappingProxyType({
    "bool": (VARINT, lambda value, _: value != 0),
    "int": (VARINT, _integer),
    "uint": (VARINT, lambda value, _: value & 0xFFFF_FFFF_FFFF_FFFF),
    "double": (FIXED64, _double),
    "string": (BYTES, lambda value, _: value.decode()),
    "bytes": (BYTES, lambda value, _: b64encode(value).decode()),
    "raw": (BYTES, lambda value, _: value),
})  # fmt: skip
"""Wire type and JSON value of each scalar type."""


FieldWriter = Callable[[Any], bytes]
"""Returns the wire format of a value."""

_ONE_BYTE = tuple(bytes([number]) for number in range(0x80))


def number(value: int) -> bytes:
    """Return an integer of at most 64 bits as varint; a negative one takes ten bytes."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def head(field: int, size: int) -> bytes:
    """Return the tag and the size of a length-delimited field."""
    return number(field << 3 | BYTES) + number(size)


def sized(field: int, write: FieldWriter) -> FieldWriter:
    """Return a writer of length-delimited fields: tag, size, and the value from `write`."""
    heads = _heads(field)

    def put(value: Any) -> bytes:
        data = write(value)
        size = len(data)
        return (heads[size] if size < 0x80 else head(field, size)) + data

    return put


@cache
def _heads(field: int) -> tuple[bytes, ...]:
    """Return the tag and size of short fields by size, shared by all fields with the same number."""
    return tuple(head(field, size) for size in range(0x80))


def scalar(field: int, kind: str) -> FieldWriter:
    """Return the writer of a scalar field."""
    if kind in _BYTES:
        return sized(field, _BYTES[kind])
    tag = number(field << 3 | SCALARS[kind][0])
    if kind == "double":
        return lambda value: tag + pack("<d", value)
    if kind == "bool":
        yes, no = tag + b"\1", tag + b"\0"
        return lambda value: yes if value else no
    return lambda value: tag + number(value)


_BYTES: Mapping[str, FieldWriter] = MappingProxyType({"string": str.encode, "bytes": b64decode, "raw": bytes})


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_ZEROS: Mapping[str, Any] = MappingProxyType({"string": "", "bool": False, "int": 0, "double": 0.0})
_ABSENT = frozenset({"pointer", "list", "map"})


class MessageWriters:
    """The writers of all messages, created on demand."""

    def __init__(self, fields: Mapping[str, Mapping[str, list[str]]]) -> None:
        self._fields = fields
        self._made: dict[str, MessageWriter] = {}

    def __getitem__(self, name: str) -> "MessageWriter":
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = MessageWriter(name, self._fields[name], self)
        return found


class MessageWriter:
    """Writes one message, with fields in the order of their numbers; fields other than pointers are always written."""

    def __init__(self, name: str, described: Mapping[str, list[str]], writers: MessageWriters) -> None:
        self._described = described
        self._writers = writers
        self._parts = _PARTS.get(name)

    def message(self, value: Any) -> bytes:
        """Return the message of a JSON value; unknown fields are skipped, and null means absent."""
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
        """Return the message of an absent value."""
        return self.message({} if self._parts is None else None)

    @cached_property
    def _puts(self) -> Mapping[str, FieldWriter]:
        return {
            name: _LABELS.get("".join(label), _one)(int(number), kind, self._writers)
            for number, (name, kind, *label) in self._described.items()
            if name
        }

    @cached_property
    def _embedded(self) -> FieldWriter | None:
        for number, (name, kind, *_) in self._described.items():
            if not name:
                return _one(int(number), kind, self._writers)
        return None

    @cached_property
    def _absent(self) -> dict[str, bytes]:
        """Return the bytes for each absent field by name, in order."""
        return {field[0]: self._zero(int(number), *field[1:]) for number, field in self._described.items()}

    def _zero(self, number: int, kind: str, label: str = "") -> bytes:
        if label in _ABSENT:
            return b""
        if "." in kind:
            return sized(number, bytes)(self._writers[kind].empty)
        return scalar(number, kind)(_ZEROS[kind]) if kind in _ZEROS else b""


def _one(number: int, kind: str, writers: MessageWriters) -> FieldWriter:
    return sized(number, writers[kind].message) if "." in kind else scalar(number, kind)


def _list(number: int, kind: str, writers: MessageWriters) -> FieldWriter:
    put = _one(number, kind, writers)
    return lambda values: b"".join(map(put, values))


def _map(number: int, kind: str, writers: MessageWriters) -> FieldWriter:
    key, value = scalar(1, "string"), _one(2, kind, writers)
    put = sized(number, lambda item: key(item[0]) + value(item[1]))
    return lambda values: b"".join(map(put, sorted(values.items())))


_LABELS: Mapping[str, Callable[[int, str, MessageWriters], FieldWriter]] = MappingProxyType(
    {"list": _list, "map": _map}
)


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


def _extension_parts(value: Any) -> Tree:
    """Return the parts of a value that Go servers compare by bytes, in their format."""
    return {} if value is None else {"raw": escaped(msgspec.json.encode(value))}


def escaped(data: bytes) -> bytes:
    """Return JSON with all characters escaped that Go escapes."""
    for character, sequence in _ESCAPED:
        if character in data:
            data = data.replace(character, sequence)
    return data


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
    "runtime.RawExtension": _extension_parts,
    "util.intstr.IntOrString": _int_or_string_parts,
})  # fmt: skip
"""Functions that return the fields for a value (or None), by message that is not an object in JSON."""
