"""JSON with limits on depth and size, and reports of duplicate keys."""

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import orjson

from apiserver_stub.common.error_list import FieldPath, render, shortened
from apiserver_stub.encode.representations import ListDocument
from controller_manager.common.api.errors import BadRequest, RequestEntityTooLarge
from controller_manager.common.api.tree import Tree

DEEPEST = 200
MOST_VALUES = 100_000
"""The maximum number of values in a body, since each value costs time. A store with etcd's limit of 1.5 MiB per object
could hold only a few more.
"""
MOST_DUPLICATES = 100
"""The maximum number of duplicate keys that are reported."""
_TOO_DEEP = f"nested more than {DEEPEST} levels deep"
_ENCODER = msgspec.json.Encoder()


def _levels_written() -> int:
    """Return how many levels orjson writes. Some versions write one more and do not count empty objects."""
    value: Any = []
    for levels in range(2 * DEEPEST):
        try:
            orjson.dumps(value)
        except TypeError:
            return levels
        value = [value]
    raise ImportError(f"this version of orjson writes more than {2 * DEEPEST} levels, which bounds nothing")


_AROUND = _levels_written() - DEEPEST + 2  # makes every version of orjson reject what is too deep


class _Typed(msgspec.Struct, rename="camel", gc=False):
    kind: str = ""
    api_version: str = ""


_TYPED = msgspec.json.Decoder(_Typed)


class TooDeepError(ValueError):
    """A document nested deeper than the limit."""


def encode(value: Any) -> bytes:
    """Encode `value` into bytes without spare memory; the bytes of orjson hold more than their size."""
    return _ENCODER.encode(value)


def decode(data: bytes) -> Any:
    """Decode `data` within the limits of depth and size. Raises `BadRequest` or `RequestEntityTooLarge`."""
    return decode_noting(data, note=False)[0]


def decode_noting(data: bytes, *, note: bool = True) -> tuple[Any, tuple[str, ...]]:
    """Decode `data`. Returns the value and messages about duplicate keys; the last of them counts.

    Raises `BadRequest` or `RequestEntityTooLarge`.
    """
    try:
        if len(data) > MOST_VALUES and _marks(data) >= MOST_VALUES and _values(data) > MOST_VALUES:
            raise _too_many()
        found = orjson.loads(data)
        if data.count(b"{") + data.count(b"[") > DEEPEST:
            again = _encoded_again(found)
        else:  # cannot be too deep
            again = orjson.dumps(found) if note else b""
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    return found, () if not note or _is_complete(data, again) else _duplicates(data)


def check_depth(value: Any) -> None:
    """Raises `BadRequest` if a value is too deep to be decoded again."""
    try:
        _encoded_again(value)
    except TooDeepError as error:
        raise BadRequest(f"the object would be {error}") from None


def _marks(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[") + data.count(b",")


def _encoded_again(value: Any) -> bytes:
    """Return decoded JSON as encoded bytes. Raises `TooDeepError`.

    orjson itself rejects values far beyond the limit. Walking all containers, as is done near the limit, takes six
    times as long.
    """
    wrapped = value
    for _ in range(_AROUND):
        wrapped = (wrapped,)
    try:
        return orjson.dumps(wrapped)[_AROUND:-_AROUND]
    except TypeError:  # orjson may also reject a number
        count_keys(value)
        return encode(value)


def check_size(value: Any) -> None:
    """Raises `RequestEntityTooLarge` for too many values, or `TooDeepError`."""
    if _left(value, MOST_VALUES, DEEPEST) < 0:
        raise _too_many()


def _too_many() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"the object has more than {MOST_VALUES} values")


def _values(data: bytes) -> int:
    """Count the values of valid JSON by its punctuation, which is much faster than decoding them."""
    texts = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if texts.count(b'"') > 4 * MOST_VALUES:  # even if half of the strings are keys
        return MOST_VALUES + 1
    marks = b'"'.join(texts.split(b'"')[::2]).translate(None, b" \t\r\n")
    full = marks.count(b"{") + marks.count(b"[") - marks.count(b"{}") - marks.count(b"[]")
    return 1 + marks.count(b",") + full


def type_of(data: bytes) -> tuple[str, str]:
    """Return the apiVersion and kind of an object in JSON."""
    found = _TYPED.decode(data)
    return found.api_version, found.kind


def in_order(tree: Tree) -> Tree:
    """Return the object with apiVersion, kind and metadata first."""
    return {"apiVersion": None, "kind": None, "metadata": None, **tree}


def line(data: bytes) -> bytes:
    """Return JSON as a body that ends with a newline."""
    return data + b"\n"


def pieces(document: ListDocument) -> Iterator[bytes]:
    """Yield a list as one body in pieces."""
    yield b'%b,"%b":[' % (encode(document.head)[:-1], document.array.encode())
    before = b""
    for element in document.elements():
        yield before + element
        before = b","
    yield b"]}\n"


def indented(data: bytes) -> bytes:
    """Return JSON indented by two spaces."""
    return orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2)


def indented_pieces(document: ListDocument) -> Iterator[bytes]:
    """Yield a list as one body indented by two spaces, in pieces."""
    yield b'%b,\n  "%b": [' % (indented(encode(document.head)).removesuffix(b"\n}"), document.array.encode())
    before, after = b"\n", b"]\n}"
    for element in document.elements():
        yield before + indented(b"[[%b]]" % element)[len("[\n  [\n") : -len("\n  ]\n]")]
        before, after = b",\n", b"\n  ]\n}"
    yield after


def count_keys(value: Any, levels: int = DEEPEST) -> int:
    """Count the keys of all objects in `value`. Raises `TooDeepError` beyond `levels`."""
    if value.__class__ is dict:
        count, value = len(value), value.values()
    elif value.__class__ is list:
        count = 0
    else:
        return 0
    if levels == 0:
        raise TooDeepError(_TOO_DEEP)
    for child in value:
        if child.__class__ is dict or child.__class__ is list:
            count += count_keys(child, levels - 1)
    return count


def _left(value: Any, room: int, levels: int) -> int:
    """Subtract the number of values from `room`; the result is negative if there are too many. Raises
    `TooDeepError`.
    """
    if value.__class__ is dict:
        value = value.values()
    elif value.__class__ is not list:
        return room - 1
    if levels == 0:
        raise TooDeepError(_TOO_DEEP)
    room -= 1 + len(value)
    for child in value:
        if room < 0:
            return room
        if child.__class__ is dict or child.__class__ is list:
            room = _left(child, room + 1, levels - 1)
    return room


class ObjectWithDuplicates(dict[Any, Any]):
    """An object that remembers its duplicate keys."""

    __slots__ = ("duplicates",)

    def __init__(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(pairs)
        self.duplicates: tuple[Any, ...] = _repeated(pairs) if len(self) != len(pairs) else ()


def path_of(at: FieldPath) -> str:
    """Return the path of a duplicate key as reported: `spec.containers[0].image`."""
    return render(at, lambda name: f".{shortened(name)}")


def _walk_duplicates(value: Any, at: FieldPath = None) -> Iterator[str]:
    """Yield the paths of duplicate keys in a value whose objects are `ObjectWithDuplicates`."""
    if isinstance(value, ObjectWithDuplicates):
        yield from (path_of((at, key)) for key in value.duplicates)
        for key, child in value.items():
            yield from _walk_duplicates(child, (at, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk_duplicates(child, (at, index))


def _duplicates(data: bytes) -> tuple[str, ...]:
    paths = _walk_duplicates(json.loads(data, object_pairs_hook=ObjectWithDuplicates))
    return tuple(f'duplicate field "{path}"' for path in islice(paths, MOST_DUPLICATES))


def as_written(data: bytes, messages: Collection[str]) -> tuple[str, ...]:
    """Return the messages about unknown and duplicate fields in document order."""
    found = dict.fromkeys(
        text for text in _walk_fields(json.loads(data, object_pairs_hook=_Pairs), None) if text in messages
    )
    return tuple(dict.fromkeys((*found, *messages)))


class _Pairs(list[tuple[str, Any]]):
    """An object as a list of its pairs, in document order."""


def _walk_fields(value: Any, at: FieldPath) -> Iterator[str]:
    """Yield the possible messages for each field in a value whose objects are `_Pairs`."""
    if isinstance(value, _Pairs):
        known: set[str] = set()
        for key, child in value:
            path = path_of((at, key))
            yield f'duplicate field "{path}"' if key in known else f'unknown field "{path}"'
            known.add(key)
            yield from _walk_fields(child, (at, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk_fields(child, (at, index))


def _is_complete(data: bytes, again: bytes) -> bool:
    """Return whether decoding lost no key; False if this is uncertain.

    A lost key loses a colon, and encoding again is the fastest way to count the remaining ones. Strings keep their
    colons, except escaped ones. Compact JSON from a client is usually identical after encoding.
    """
    if again == data:
        return True
    if b"\\" in data and (b"\\u003a" in data or b"\\u003A" in data):
        return False
    return data.count(b":") == again.count(b":")


def _repeated(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    seen: set[Any] = set()
    repeated: dict[Any, None] = {}
    for key, _ in pairs:
        if key in seen:
            repeated[key] = None
        seen.add(key)
    return tuple(repeated)
