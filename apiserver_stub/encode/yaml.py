"""YAML as the server reads and writes it: the part of the language that JSON has too, aliases bounded."""

import math
import re
from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from apiserver_stub.encode.json import DEEPEST, Noted, TooDeepError, count_keys, encode, walk_duplicates
from apiserver_stub.encode.listing import Listing
from controller_manager.api.errors import BadRequest

_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset({None, "!", f"{_TAG}str"})
_MOST_VALUES = 100_000  # reading so many holds everybody up for a second; an alias may stand for many, again and again

_TOO_DEEP = f"nested more than {DEEPEST} levels deep"
_TOO_MANY = "it stands for too many values"

# YAML 1.1 as the ecosystem reads it: no dates, no numbers to the base 60, and a float needs no point.
_PLAIN: tuple[tuple[str, str, list[str]], ...] = (
    ("bool", r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", list("yYnNtTfFoO")),
    ("int", r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$", list("-+0123456789.")),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", list("-+.")),
    ("merge", r"<<$", ["<"]),
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
)


class _Loader(yaml.CSafeLoader):
    """Builds JSON values; objects note repeated keys."""


class _Dumper(yaml.CSafeDumper):
    """Writes without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def load(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """The JSON value `data` spells, and the paths of keys that came twice. Raises `BadRequest`."""
    try:
        text = data.decode()
        _check_events(text)
        found = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
        if _expanded(found, {}, 0) > _MOST_VALUES:
            raise TooDeepError(_TOO_MANY)
        plain = _plain(found)
        count_keys(plain)
        return plain, tuple(walk_duplicates(found))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"the body is not valid YAML: {' '.join(str(error).split())}") from None


def dump(data: bytes) -> bytes:
    """The YAML of JSON bytes, in block style and the same order."""
    found: bytes = yaml.dump(
        orjson.loads(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, encoding="utf-8", width=1 << 20
    )
    return found


def pieces(listing: Listing) -> Iterator[bytes]:
    """A listing as one document, piece by piece: writing one object takes a hundred times as long as its JSON."""
    empty = dump(encode({**listing.head, listing.array: []}))
    yield empty if not listing.objects else empty.removesuffix(b" []\n") + b"\n"
    for element in listing.elements():
        yield dump(b"[%b]" % element)


def _check_events(text: str) -> None:
    """Refuse deep nesting, tags and masses before composing: the composer is slow, and a line of dashes crashes it."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, yaml.CSafeLoader)):
        if count > 2 * _MOST_VALUES:
            raise TooDeepError(_TOO_MANY)
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise TooDeepError(_TOO_DEEP)
        tag = getattr(event, "tag", None)
        if tag not in _TAGS:
            raise ValueError(f"JSON has nothing for the tag {tag}")


def _expanded(value: Any, known: dict[int, int], depth: int) -> int:
    """How many values `value` has when every alias is spelt out; linear in what was written."""
    if not isinstance(value, dict | list):
        return 1
    if depth > DEEPEST:
        raise TooDeepError(_TOO_DEEP)
    found = known.get(id(value))
    if found is None:
        children = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_expanded(child, known, depth + 1) for child in children)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return value


def _object(loader: _Loader, node: yaml.MappingNode) -> Iterator[Noted]:
    found = Noted(())
    yield found
    written = {id(key) for key, _ in node.value if key.tag != f"{_TAG}merge"}
    loader.flatten_mapping(node)
    pairs = [(_key(loader.construct_object(key, deep=True)), loader.construct_object(v), key) for key, v in node.value]
    found.update((key, value) for key, value, _ in pairs)
    found.twice = Noted([(key, None) for key, _, n in pairs if id(n) in written]).twice


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise ValueError("a key is not a text")


def _int(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    digits = str(loader.construct_scalar(node)).replace("_", "")
    sign, digits = -1 if digits[0] == "-" else 1, digits.lstrip("+-")
    octal = digits[0] == "0" and digits.isdigit()
    found = sign * int(digits, 8 if octal else 0)
    return found if -(1 << 63) <= found < 1 << 64 else float(found)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    found = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(found):
        raise ValueError("JSON has no infinite number")
    return found


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _PLAIN:
    for _one in (_Loader, _Dumper):  # which puts in quotes what would be read as another type
        _one.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)
_Loader.add_constructor(f"{_TAG}map", _object)
_Loader.add_constructor(f"{_TAG}int", _int)
_Loader.add_constructor(f"{_TAG}float", _float)
