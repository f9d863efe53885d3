"""The wire format of protobuf, which knows nothing of messages: numbered fields, and what scalars their bytes are."""

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from struct import pack, unpack
from types import MappingProxyType
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIRST, _LAST = 1 << 3, 0xFFFF_FFFF

Value = int | bytes


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the fields of a message as they come: tag (number and wire type) and value. Raises `ValueError`."""
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
    """Return the number that begins at a position, and where it ends. Raises `ValueError`."""
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
    """Return the signed number: it is written as 64 bits, in the complement of two."""
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
    "double": (FIXED64, _double),
    "string": (BYTES, lambda value, _: value.decode()),
    "bytes": (BYTES, lambda value, _: b64encode(value).decode()),
    "raw": (BYTES, lambda value, _: value),
})  # fmt: skip
"""Of each scalar type its wire type, and its JSON value."""


Write = Callable[[Any], bytes]
"""Returns a value as it is on the wire."""

_ONE_BYTE = tuple(bytes([number]) for number in range(0x80))


def number(value: int) -> bytes:
    """Return an integer of at most 64 bits as it is written; one below zero takes ten bytes."""
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
    """Return what stands before the bytes of a field: its tag, and how many there are."""
    return number(field << 3 | BYTES) + number(size)


def sized(field: int, write: Write) -> Write:
    """Return a field of bytes: its tag, their size, and what `write` makes of the value."""
    heads = _heads(field)

    def put(value: Any) -> bytes:
        data = write(value)
        size = len(data)
        return (heads[size] if size < 0x80 else head(field, size)) + data

    return put


@cache
def _heads(field: int) -> tuple[bytes, ...]:
    """Return the heads of short fields by size, shared by all fields of one number."""
    return tuple(head(field, size) for size in range(0x80))


def scalar(field: int, kind: str) -> Write:
    """Return a field of a scalar type."""
    if kind in _BYTES:
        return sized(field, _BYTES[kind])
    tag = number(field << 3 | SCALARS[kind][0])
    if kind == "double":
        return lambda value: tag + pack("<d", value)
    if kind == "bool":
        yes, no = tag + b"\1", tag + b"\0"
        return lambda value: yes if value else no
    return lambda value: tag + number(value)


_BYTES: Mapping[str, Write] = MappingProxyType({"string": str.encode, "bytes": b64decode, "raw": bytes})
