"""CBOR (RFC 8949), limited to what JSON can express. Needs the package `cbor2`.

Like Go clients, it writes strings as byte strings, so that readers need not validate UTF-8, and begins each document
with the CBOR tag (section 3.4.6). Both string types can be read.
"""

import math
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from types import MappingProxyType, ModuleType
from typing import Any

import orjson

from apiserver_stub.encode.json import DEEPEST, MOST_VALUES, check_size, type_of
from apiserver_stub.encode.representations import ListDocument
from apiserver_stub.kinds.published import schema_of
from apiserver_stub.kinds.schema.schema import Schema
from controller_manager.common.api.errors import BadRequest

_MARK = b"\xd9\xd9\xf7"  # tag 55799
_ARRAY, _MAP = 0x80, 0xA0
_BASE64 = 22  # tag for bytes that are base64 in JSON
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1

_ANY = "*"  # every field of a map

_Places = Mapping[str, "_Places | None"]
"""The positions of bytes within each field; None if the field itself is bytes. Lists are traversed."""


def available() -> bool:
    """Return whether the package is installed."""
    return find_spec("cbor2") is not None


def load(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """Decode `data`. Returns the value and an empty tuple, since duplicate keys are an error in CBOR.

    Raises `BadRequest` or `RequestEntityTooLarge`.
    """
    library, source = _library(), BytesIO(data)
    decoder = library.CBORDecoder(
        source,
        tag_hook=_content,
        semantic_decoders=_TAGS,
        max_depth=DEEPEST,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    try:
        decoded = decoder.decode()
        if len(data) > MOST_VALUES:
            check_size(decoded)
        found = _plain(decoded)
    except (library.CBORError, ValueError, OverflowError) as error:
        raise BadRequest(f"the body is not valid CBOR: {error}") from None
    if source.tell() != len(data):
        raise BadRequest("the body is not valid CBOR: something follows the value")
    return found, ()


def dump(data: bytes) -> bytes:
    """Return JSON bytes as CBOR with the CBOR tag."""
    return _MARK + _element(data)


def pieces(document: ListDocument) -> Iterator[bytes]:
    """Yield a list as one document in pieces."""
    head = b"".join(_encode(name) + _encode(value) for name, value in document.head.items())
    yield _MARK + _length(_MAP, len(document.head) + 1) + head
    yield _encode(document.array) + _length(_ARRAY, len(document.objects))
    yield from map(_element, document.elements())


def event(kind: str, data: bytes) -> bytes:
    """Return one item of a CBOR sequence of events (RFC 8742) from an object's JSON."""
    return b"".join((_MARK, _length(_MAP, 2), _encode("type"), _encode(kind), _encode("object"), dump(data)))


def _element(data: bytes) -> bytes:
    schema = schema_of(*type_of(data))
    found = schema.derived(_places) if schema else None
    return _encode(_at(orjson.loads(data), found) if found else orjson.loads(data))


def _at(value: Any, found: _Places) -> Any:
    """Return the value with bytes in place of base64 at these positions, as typed clients expect."""
    if isinstance(value, list):
        return [_at(child, found) for child in value]
    if not isinstance(value, dict):
        return value
    return {name: _binary(child, found.get(name, found.get(_ANY, {}))) for name, child in value.items()}


def _binary(value: Any, found: _Places | None) -> Any:
    if found is not None:
        return _at(value, found) if found else value
    return _library().CBORTag(_BASE64, b64decode(value)) if isinstance(value, str) else value


def _places(schema: Schema) -> _Places:
    """Return the positions of bytes (base64 in JSON) in objects; empty for nearly all kinds."""
    return _within(schema, frozenset())


def _within(node: Schema, above: frozenset[Schema]) -> _Places:
    """Return the positions of bytes in values of a schema. A recursive schema is traversed once."""
    while node.items is not None:
        node = node.items
    if node in above:
        return {}
    children = {**node.fields, **({_ANY: node.values} if node.values else {})}
    found: dict[str, _Places | None] = {}
    for name, child in children.items():
        if child.type == "bytes":
            found[name] = None
        elif inner := _within(child, above | {node}):
            found[name] = inner
    return found


def _encode(value: Any) -> bytes:
    found: bytes = _library().dumps(_raw(value))
    return found


def _length(major: int, size: int) -> bytes:
    """Return the head of an item (section 3)."""
    if size < 24:
        return bytes((major | size,))
    width = 1 if size < 1 << 8 else 2 if size < 1 << 16 else 4
    return bytes((major | 23 + width.bit_length(),)) + size.to_bytes(width, "big")


def _raw(value: Any) -> Any:
    """Return the value with byte strings for strings, and without numbers that could not be read back."""
    kind = value.__class__
    if kind is str:
        return value.encode()
    if kind is int and value > _LARGEST:
        return float(value)
    if kind is dict:
        return {key.encode(): _raw(child) for key, child in value.items()}
    return [_raw(child) for child in value] if kind is list else value


def _plain(value: Any) -> Any:
    """Return the JSON value of a value that the library decoded. Raises `ValueError` for values that JSON cannot
    express.
    """
    match value:
        case None | bool() | str():
            return value
        case bytes():
            return value.decode()
        case int():
            if not _SMALLEST <= value <= _LARGEST:
                raise ValueError(f"{value} is not a 64-bit integer")
            return value
        case float():
            if not math.isfinite(value):
                raise ValueError("a number is not finite")
            return value
        case list():
            return [_plain(child) for child in value]
        case dict():
            return _object(value)
    raise ValueError(f"JSON has nothing for {value!r:.40}")


def _object(value: Mapping[Any, Any]) -> dict[str, Any]:
    found = {_plain(key): _plain(child) for key, child in value.items()}
    if len(found) != len(value):
        raise ValueError("a key came twice, as a text and as bytes")
    return found


def _content(tag: Any, _: bool) -> Any:
    """Return the content of a tag. Bytes are encoded as the tag asks for JSON (section 3.4.5.2)."""
    spell = _SPELLINGS.get(tag.tag)
    return spell(tag.value) if spell is not None and isinstance(tag.value, bytes) else tag.value


def _since_epoch(value: Any, _: bool) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("a time is not a number")
    moment = datetime.fromtimestamp(value, UTC).replace(tzinfo=None).isoformat()
    return f"{moment.rstrip('0').rstrip('.') if '.' in moment else moment}Z"


def _none_in_json(value: Any, _: bool) -> Any:
    raise ValueError("JSON has no number that large")


@cache
def _library() -> ModuleType:
    import cbor2  # an optional dependency, needed only with the feature enabled

    return cbor2


_SPELLINGS: Mapping[int, Callable[[bytes], str]] = MappingProxyType({
    21: lambda value: urlsafe_b64encode(value).decode().rstrip("="),
    _BASE64: lambda value: b64encode(value).decode(),
    23: lambda value: value.hex(),
})  # fmt: skip
_ONLY_CONTENT = (0, 4, 5, 25, 28, 29, 30, 35, 36, 37, 43000, 100, 256, 258, 260, 261, 1004, 55799)  # fmt: skip
# The library would decode these to its own types.
_TAGS: Mapping[int, Callable[[Any, bool], Any]] = {
    **dict.fromkeys(_ONLY_CONTENT, lambda value, _: value),
    1: _since_epoch,
    2: _none_in_json,
    3: _none_in_json,
}
