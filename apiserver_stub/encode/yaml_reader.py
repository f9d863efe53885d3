"""A reader of YAML, in one pass over its events: of the part that JSON has too, within bounds known beforehand."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from apiserver_stub.encode.json import DEEPEST, MOST_DUPLICATES, MOST_VALUES, TooDeepError, count_keys, path_of
from apiserver_stub.kinds.error_list import FieldPath
from apiserver_stub.kinds.trees import deep_copy

Tree = dict[str, Any]

_MOST_DIRECTIVES = 100  # libyaml compares each of them with all others

_TAG = "tag:yaml.org,2002:"
_OF_TEXTS, _OF_OTHERS = frozenset({None, "!", f"{_TAG}str"}), frozenset({None, "!"})
_MERGE = "<<"

_WORDS: Mapping[str, bool | None] = MappingProxyType({
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
})  # fmt: skip
"""Plain words that are no texts, as YAML 1.1 has them."""
_BEGIN_NUMBERS = frozenset("-+.0123456789")
# There are no dates and no numbers to the base 60, and a float needs no point.
_INT = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def read(text: str) -> tuple[Any, tuple[str, ...]]:
    """Decode the one document in `text`; returns the value and the paths of duplicate keys.

    Raises `ValueError`, `OverflowError` or `yaml.YAMLError`.
    """
    if text.count("%TAG") > _MOST_DIRECTIVES:
        raise ValueError("it declares too many tags")
    events: Iterator[yaml.Event] = yaml.parse(text, yaml.CSafeLoader)
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        return None, ()
    reader = _Reader(events)
    found = reader.value(next(events), None, 0)
    next(events)
    if not isinstance(next(events), yaml.StreamEndEvent):
        raise ValueError("there is more than one document")
    return found, tuple(reader.duplicates)


class _Reader:
    """Builds values from `events`; `duplicates` are the paths of duplicate keys, the first of them."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self.duplicates: list[str] = []

    def value(self, event: Any, at: FieldPath, depth: int) -> Any:
        """Return the value that begins with an event."""
        before = self._count
        self._add(1)
        kind = type(event)
        if kind is yaml.ScalarEvent:
            found = _scalar(event)
        elif kind is yaml.AliasEvent:
            return self._alias(event.anchor, depth)
        else:
            if depth >= DEEPEST:
                raise TooDeepError(f"nested more than {DEEPEST} levels deep")
            _check_tag(event.tag, _OF_OTHERS)
            inside = self._object if kind is yaml.MappingStartEvent else self._array
            found = inside(at, depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = found, self._count - before
        return found

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > MOST_VALUES:  # an alias may stand for many, again and again
            raise TooDeepError("it stands for too many values")

    def _alias(self, name: str, depth: int) -> Any:
        """Return a copy of what was written before: whoever changes one of them does not mean the other."""
        if name not in self._anchors:
            raise ValueError(f"nothing before is called {name!r}")
        known, size = self._anchors[name]
        self._add(size)
        count_keys(known, DEEPEST - depth)
        return deep_copy(known)

    def _array(self, at: FieldPath, depth: int) -> list[Any]:
        found: list[Any] = []
        while type(event := next(self._events)) is not yaml.SequenceEndEvent:
            found.append(self.value(event, (at, len(found)), depth))
        return found

    def _object(self, at: FieldPath, depth: int) -> Tree:
        """Return an object; its own keys win over those of merged objects, of which the first in a list wins."""
        found: Tree = {}
        merged: Tree = {}
        while type(event := next(self._events)) is not yaml.MappingEndEvent:
            if type(event) is yaml.ScalarEvent and event.value == _MERGE and event.implicit[0]:
                merged.update(self._merged(at, depth))
                continue
            key = _key(self.value(event, at, depth))
            if key in found:
                self._note(at, key)
            found[key] = self.value(next(self._events), (at, key), depth)
        return {**merged, **found} if merged else found

    def _merged(self, at: FieldPath, depth: int) -> Tree:
        found = self.value(next(self._events), at, depth)
        merged: Tree = {}
        for one in reversed(found) if isinstance(found, list) else (found,):
            if not isinstance(one, dict):
                raise ValueError("only objects can be merged")
            merged.update(one)
        return merged

    def _note(self, at: FieldPath, key: str) -> None:
        if len(self.duplicates) < MOST_DUPLICATES and (path := path_of((at, key))) not in self.duplicates:
            self.duplicates.append(path)


def is_word(text: str) -> bool:
    """Tell whether a plain text of letters is read as something else."""
    return text in _WORDS


def _scalar(event: Any) -> Any:
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


def _float(text: str) -> float:
    found = float(text.replace("_", ""))
    return found if math.isfinite(found) else _infinite(text)


def _infinite(_: str) -> float:
    raise ValueError("JSON has no infinite number")


_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...] = (
    (_INT, _int), (_FLOAT, _float), (_INFINITE, _infinite),
)  # fmt: skip


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise ValueError("a key is not a text")
