"""JSON as the server reads and writes it: bounded in depth, ordered for people, no key lost unnoticed."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import orjson

from apiserver_stub.encode.listing import Listing
from controller_manager.api.errors import BadRequest

Tree = dict[str, Any]

DEEPEST = 200
_SPACES = (b" ", b"\t", b"\n", b"\r")
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')
_ENCODER = msgspec.json.Encoder()


class _Typed(msgspec.Struct, rename="camel", gc=False):
    kind: str = ""
    api_version: str = ""


_TYPED = msgspec.json.Decoder(_Typed)


class TooDeepError(ValueError):
    """A document nested beyond what the server follows."""


def encode(value: Any) -> bytes:
    """`value` as JSON in exactly sized bytes; what orjson returns keeps more memory than it shows."""
    return _ENCODER.encode(value)


def decode(data: bytes) -> Any:
    """The value `data` spells, of bounded depth. Raises `BadRequest`."""
    return decode_noting(data, note=False)[0]


def decode_noting(data: bytes, *, note: bool = True) -> tuple[Any, tuple[str, ...]]:
    """The value `data` spells, and the paths of keys that came twice (the last counts). Raises `BadRequest`."""
    try:
        found = orjson.loads(data)
        if data.count(b"{") + data.count(b"[") > DEEPEST:
            count_keys(found)
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    return found, _duplicates(data, found) if note else ()


def check_depth(value: Any) -> None:
    """Refuse what would be too deep to read again. Raises `BadRequest`."""
    try:
        count_keys(value)
    except TooDeepError as error:
        raise BadRequest(f"the object would be {error}") from None


def type_of(data: bytes) -> tuple[str, str]:
    """Version and kind of an object in JSON."""
    found = _TYPED.decode(data)
    return found.api_version, found.kind


def in_order(tree: Tree) -> Tree:
    """The same object with its type and metadata first."""
    return {"apiVersion": None, "kind": None, "metadata": None, **tree}


def line(data: bytes) -> bytes:
    """The same JSON as a body, which ends its line."""
    return data + b"\n"


def pieces(listing: Listing) -> Iterator[bytes]:
    """A listing as one body, piece by piece."""
    yield b'%b,"%b":[' % (encode(listing.head)[:-1], listing.array.encode())
    before = b""
    for element in listing.elements():
        yield before + element
        before = b","
    yield b"]}\n"


def indented(data: bytes) -> bytes:
    """The same JSON, two spaces deep."""
    return orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2)


def indented_pieces(listing: Listing) -> Iterator[bytes]:
    """A listing as one body two spaces deep, piece by piece."""
    yield b'%b,\n  "%b": [' % (indented(encode(listing.head)).removesuffix(b"\n}"), listing.array.encode())
    before, after = b"\n", b"]\n}"
    for element in listing.elements():
        yield before + indented(b"[[%b]]" % element)[len("[\n  [\n") : -len("\n  ]\n]")]
        before, after = b",\n", b"\n  ]\n}"
    yield after


def count_keys(value: Any, levels: int = DEEPEST) -> int:
    """How many keys all objects within `value` have together. Raises `TooDeepError` beyond `levels`."""
    if value.__class__ is dict:
        count, value = len(value), value.values()
    elif value.__class__ is list:
        count = 0
    else:
        return 0
    if levels == 0:
        raise TooDeepError(f"nested more than {DEEPEST} levels deep")
    for child in value:
        if child.__class__ is dict or child.__class__ is list:
            count += count_keys(child, levels - 1)
    return count


class Noted(dict[Any, Any]):
    """An object that remembers which of its keys came twice."""

    __slots__ = ("twice",)

    def __init__(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(pairs)
        self.twice: tuple[Any, ...] = _repeated(pairs) if len(self) != len(pairs) else ()


def walk_duplicates(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the keys that came twice in a value whose objects are `Noted`."""
    if isinstance(value, Noted):
        dot = f"{path}." if path else ""
        yield from (f"{dot}{key}" for key in value.twice)
        for key, child in value.items():
            yield from walk_duplicates(child, f"{dot}{key}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from walk_duplicates(child, f"{path}[{index}]")


def _duplicates(data: bytes, found: Any) -> tuple[str, ...]:
    if _is_complete(data, found):
        return ()
    return tuple(walk_duplicates(json.loads(data, object_pairs_hook=Noted)))


def _is_complete(data: bytes, found: Any) -> bool:
    """Whether no key was lost in decoding; in doubt it says no.

    A lost key takes a colon with it. Without any backslash, encoding again is the quickest way to count what is left:
    strings keep theirs. With one, keys are told by the quote before the colon, unless a backslash escapes it that is
    not escaped itself.
    """
    if b"\\" not in data:
        return data.count(b":") == orjson.dumps(found).count(b":")
    if any(space in data for space in _SPACES) and _SPACED_COLON.search(data) is not None:
        return False
    return data.count(b'":') - data.count(b'\\":') + data.count(b'\\\\":') == count_keys(found)


def _repeated(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    seen: set[Any] = set()
    repeated: dict[Any, None] = {}
    for key, _ in pairs:
        if key in seen:
            repeated[key] = None
        seen.add(key)
    return tuple(repeated)
