"""YAML, limited to what JSON can express, with limits on size and depth."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson
import yaml

from apiserver_stub.common.error_list import shortened
from apiserver_stub.encode.json import DEEPEST, MOST_DUPLICATES, MOST_VALUES, TooDeepError, count_keys, encode
from apiserver_stub.encode.representations import ListDocument
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.tree import Tree

_MOST_DIRECTIVES = 100  # libyaml compares each directive with all others

_TAG = "tag:yaml.org,2002:"
_OF_TEXTS, _OF_OTHERS = frozenset({None, "!", f"{_TAG}str"}), frozenset({None, "!"})
_MERGE = "<<"

_WORDS: Mapping[str, bool | None] = MappingProxyType({
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
})  # fmt: skip
"""Plain words that YAML 1.1 does not read as strings."""
_BEGIN_NUMBERS = frozenset("-+.0123456789")
# Dates and base-60 numbers are not supported, and a float needs no point.
_INT = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def read(text: str) -> tuple[Any, tuple[str, ...]]:
    """Decode the single document in `text`. Returns the value and messages about duplicate keys.

    Raises `ValueError`, `OverflowError` or `yaml.YAMLError`.
    """
    if text.count("%TAG") > _MOST_DIRECTIVES:
        raise ValueError("it declares too many tags")
    events: Iterator[yaml.Event] = yaml.parse(text, yaml.CSafeLoader)
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        return None, ()
    reader = _Reader(events)
    found = reader.value(next(events), 0)
    next(events)
    if not isinstance(next(events), yaml.StreamEndEvent):
        raise ValueError("there is more than one document")
    return found, tuple(reader.duplicates)


class _Reader:
    """Builds values from `events`. `duplicates` are messages about the first duplicate keys, with their lines."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self.duplicates: list[str] = []

    def value(self, event: Any, depth: int) -> Any:
        """Return the value that begins with an event."""
        before = self._count
        self._add(1)
        kind = type(event)
        if kind is yaml.ScalarEvent:
            found = _read_scalar(event)
        elif kind is yaml.AliasEvent:
            return self._alias(event.anchor, depth)
        else:
            if depth >= DEEPEST:
                raise TooDeepError(f"nested more than {DEEPEST} levels deep")
            _check_tag(event.tag, _OF_OTHERS)
            inside = self._object if kind is yaml.MappingStartEvent else self._array
            found = inside(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = found, self._count - before
        return found

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > MOST_VALUES:  # nested aliases can expand to very many values
            raise TooDeepError("it stands for too many values")

    def _alias(self, name: str, depth: int) -> Any:
        """Return a copy of an anchored value, since a change of one must not change the other."""
        if name not in self._anchors:
            raise ValueError(f"nothing before is called {name!r}")
        known, size = self._anchors[name]
        self._add(size)
        count_keys(known, DEEPEST - depth)
        return deep_copy(known)

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while type(event := next(self._events)) is not yaml.SequenceEndEvent:
            found.append(self.value(event, depth))
        return found

    def _object(self, depth: int) -> Tree:
        """Return an object. Its own keys override those of merged objects; of several merged objects the first wins."""
        found: Tree = {}
        merged: Tree = {}
        while type(event := next(self._events)) is not yaml.MappingEndEvent:
            if type(event) is yaml.ScalarEvent and event.value == _MERGE and event.implicit[0]:
                merged.update(self._merged(depth))
                continue
            key = _read_key(self.value(event, depth))
            if key in found:
                self._note(event, key)
            found[key] = self.value(next(self._events), depth)
        return {**merged, **found} if merged else found

    def _merged(self, depth: int) -> Tree:
        found = self.value(next(self._events), depth)
        merged: Tree = {}
        for one in reversed(found) if isinstance(found, list) else (found,):
            if not isinstance(one, dict):
                raise ValueError("only objects can be merged")
            merged.update(one)
        return merged

    def _note(self, event: Any, key: str) -> None:
        if len(self.duplicates) < MOST_DUPLICATES:
            self.duplicates.append(f'line {event.start_mark.line + 1}: key "{shortened(key)}" already set in map')


def is_word(text: str) -> bool:
    """Return whether a plain word is not read as a string."""
    return text in _WORDS


def _read_scalar(event: Any) -> Any:
    _check_tag(event.tag, _OF_TEXTS)
    plain = event.tag is None and event.implicit[0]
    return _resolved(event.value) if plain else event.value


def _check_tag(tag: str | None, known: frozenset[str | None]) -> None:
    if tag not in known:
        raise ValueError(f"JSON has nothing for the tag {tag}")


def _resolved(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _BEGIN_NUMBERS:
        return text
    return next((make(text) for form, make in _NUMBERS if form.fullmatch(text)), text)


def _int(text: str) -> int | float:
    digits = text.replace("_", "")
    sign, digits = -1 if digits[0] == "-" else 1, digits.lstrip("+-")
    octal = digits[0] == "0" and digits.isdigit()
    found = sign * int(digits, 8 if octal else 0)
    return found if -(1 << 63) <= found < 1 << 64 else float(found)


def _read_float(text: str) -> float:
    found = float(text.replace("_", ""))
    return found if math.isfinite(found) else _infinite(text)


def _infinite(_: str) -> float:
    raise ValueError("JSON has no infinite number")


_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...] = (
    (_INT, _int), (_FLOAT, _read_float), (_INFINITE, _infinite),
)  # fmt: skip


def _read_key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise ValueError("a key is not a text")


_LONGEST_KEY = 500  # characters of a key: readers search 1024 bytes for its colon, as the standard requires
_PLAIN = re.compile(r"[A-Za-z_/][-A-Za-z0-9_./@+]*(?:[ :][-A-Za-z0-9_./@+]+)*", re.ASCII)
_MORE_WORDS = frozenset({"y", "Y", "n", "N"})  # booleans for some readers
_LINES = re.compile(r"[ -~\u00a1-\u2027\u202a-\ud7ff\n]+")
_UNSEEN = re.compile(r"[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")  # allowed unescaped in JSON, not in YAML


def load(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """Decode `data`. Returns the value and messages about duplicate keys. Raises `BadRequest`."""
    try:
        return read(data.decode())
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise BadRequest(f"the body is not valid YAML: {' '.join(str(error).split())}") from None


def dump(data: bytes) -> bytes:
    """Return JSON bytes as YAML in block style, in the same order."""
    return _write(orjson.loads(data)).encode()


def pieces(document: ListDocument) -> Iterator[bytes]:
    """Yield a list as one document in pieces. An object takes many times as long as its JSON."""
    empty = dump(encode({**document.head, document.array: []}))
    yield empty if not document.objects else empty.removesuffix(b" []\n") + b"\n"
    for element in document.elements():
        yield dump(b"[%b]" % element)


def _write(value: Any) -> str:
    """Return a JSON value in block style, about as fast as JSON is decoded. Every string that could be read as
    something else is quoted.
    """
    lines: list[str] = []
    if not value or not isinstance(value, dict | list):
        return f"{_scalar(value, '')}\n"
    _block(value, "", lines)
    return "\n".join((*lines, ""))


def _block(value: Any, indent: str, lines: list[str]) -> None:
    """Append the lines of an object or array that is not empty."""
    if isinstance(value, list):
        for item in value:
            _item(item, indent, lines)
        return
    for key, child in value.items():
        if len(key) > _LONGEST_KEY:
            lines.append(f"{indent}? {_quoted(key)}")
            name = f"{indent}:"
        else:
            name = f"{indent}{_key(key)}:"
        if child and (child.__class__ is dict or child.__class__ is list):
            lines.append(name)
            _block(child, indent if child.__class__ is list else f"{indent}  ", lines)
        else:
            lines.append(f"{name} {_scalar(child, f'{indent}  ')}")


def _item(item: Any, indent: str, lines: list[str]) -> None:
    inner = f"{indent}  "
    if not item or not (item.__class__ is dict or item.__class__ is list):
        lines.append(f"{indent}- {_scalar(item, inner)}")
        return
    first = len(lines)
    _block(item, inner, lines)
    lines[first] = f"{indent}- {lines[first][len(inner) :]}"


def _key(key: str) -> str:
    return key if _is_plain(key) else _quoted(key)


def _scalar(value: Any, indent: str) -> str:
    if value.__class__ is float:
        return _float(value)
    if value.__class__ is not str:
        return orjson.dumps(value).decode()
    if _is_plain(value):
        return str(value)
    if "\n" in value and value[0] not in " \n" and _LINES.fullmatch(value):
        return _lines(value, indent)
    return _quoted(value)


def _float(value: float) -> str:
    """Return a number with a point; some readers need it for a float."""
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and not is_word(text) and text not in _MORE_WORDS


def _lines(text: str, indent: str) -> str:
    """Return a text as a block scalar; its indicator defines how the text ends."""
    bare = text.rstrip("\n")
    mark = {0: "|-", 1: "|"}.get(len(text) - len(bare), "|+")
    ends = text[: -1 if mark == "|+" else None] if mark == "|+" else bare
    return "\n".join((mark, *(f"{indent}{line}" if line else "" for line in ends.split("\n"))))


def _quoted(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", orjson.dumps(text).decode())
