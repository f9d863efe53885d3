"""Reads the questions of virtual kinds in protobuf (document 1, Protobuf envelope), which is how kubectl asks them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from controller_manager.api.errors import BadRequest
from controller_manager.api.platform import VENDOR

MEDIA_TYPE = f"application/vnd.{VENDOR}.protobuf"

_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}

Message = Mapping[int, tuple[str, Any]]
"""Of each field the name, and what it is: `str`, `list` of strings, or another message."""

_RESOURCE: Message = MappingProxyType({
    1: ("namespace", str), 2: ("verb", str), 3: ("group", str), 4: ("version", str), 5: ("resource", str),
    6: ("subresource", str), 7: ("name", str),
})  # fmt: skip
_OTHER: Message = MappingProxyType({1: ("path", str), 2: ("verb", str)})
_SUBJECT: Message = MappingProxyType({
    1: ("resourceAttributes", _RESOURCE), 2: ("nonResourceAttributes", _OTHER), 3: ("user", str), 4: ("groups", list),
    6: ("uid", str),
})  # fmt: skip
_SPECS: Mapping[str, Message] = MappingProxyType({
    "TokenReview": {1: ("token", str), 2: ("audiences", list)},
    "SelfSubjectReview": {},
    "SelfSubjectRulesReview": {1: ("namespace", str)},
    "SelfSubjectAccessReview": _SUBJECT,
    "SubjectAccessReview": _SUBJECT,
    "LocalSubjectAccessReview": _SUBJECT,
})  # fmt: skip
_TYPE: Message = MappingProxyType({1: ("apiVersion", str), 2: ("kind", str)})
_ENVELOPE: Message = MappingProxyType({1: ("type", _TYPE), 2: ("raw", bytes)})


def read_question(data: bytes, api_version: str, kind: str) -> dict[str, Any]:
    """The object, with its `spec` alone. Raises `BadRequest` for anything else than that version and kind."""
    if not data.startswith(_MAGIC):
        raise BadRequest("the body does not begin like a protobuf object")
    envelope = _read(data[len(_MAGIC) :], _ENVELOPE)
    found = envelope.get("type", {})
    if (found.get("apiVersion"), found.get("kind")) != (api_version, kind):
        raise BadRequest(f"the body is no {kind} of {api_version}")
    question = _read(envelope.get("raw", b""), {2: ("spec", _SPECS[kind])})
    return {"apiVersion": api_version, "kind": kind, **question}


def _read(data: bytes, message: Message) -> dict[str, Any]:
    """The known fields of a message that are not empty."""
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in message or not isinstance(value, bytes):
            continue
        name, shape = message[number]
        if shape is list:
            found.setdefault(name, []).append(_text(value))
        elif shape is str:
            found[name] = _text(value)
        else:
            found[name] = value if shape is bytes else _read(value, shape)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by number, as they came."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value, position = _varint(data, position) if wire in (_VARINT, _BYTES) else (_SIZES.get(wire, -1), position)
        if wire == _VARINT:
            yield number, value
            continue
        end = position + value
        if value < 0 or end > len(data):
            raise BadRequest("the body is not valid protobuf")
        yield number, data[position:end]
        position = end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise BadRequest("the body is not valid protobuf")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not valid protobuf: a text is not UTF-8") from None
