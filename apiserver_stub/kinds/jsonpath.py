"""JSONPath as columns of custom resources have it: fields, indexes, slices, wildcards, filters, recursive descent.

A path that finds nothing finds nothing; one that cannot be taken in a value raises `LookupError`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from operator import eq, ge, gt, le, lt, ne
from typing import Any

# Returns all that is found from each of some values.
_Step = Callable[[list[Any]], list[Any]]

_NAME = re.compile(r"(?:\\.|[^\s.,\[\]$@{}\\])*")
_SLICE = re.compile(r"(-?\d*)(?::(-?\d*))?(?::(-?\d*))?")
_FILTER = re.compile(r"\[\?\((.*?)(?:(==|!=|<=|>=|<|>)(.*?))?\)\]", re.DOTALL)
_OPERATORS = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_LONGEST = 4096


class JSONPath:
    """A path, compiled. Raises ValueError for a text that is none."""

    def __init__(self, path: str) -> None:
        if len(path) > _LONGEST:
            raise ValueError(f"a path has at most {_LONGEST} characters")
        self._steps = tuple(_parse(path))

    def find(self, value: Any) -> list[Any]:
        """Return all that the path leads to, in order. Raises `LookupError`."""
        found = [value]
        for step in self._steps:
            found = step(found)
        return found


def _parse(text: str) -> Iterator[_Step]:
    at = 0
    while at < len(text):
        if text.startswith("[?(", at):
            found = _FILTER.match(text, at)
            if found is None:
                raise ValueError(f"unterminated filter in {text!r}")
            yield _filter(found[1], found[2], found[3])
            at = found.end()
        elif text.startswith("..", at):
            yield _descend
            at += 2 if text.startswith("..[", at) else 1
        elif text[at] == "[":
            end = text.find("]", at)
            if end < 0:
                raise ValueError(f"unterminated array in {text!r}")
            yield _bracket(text[at + 1 : end])
            at = end + 1
        elif text[at] == ".":
            found = _NAME.match(text, at + 1)
            assert found is not None
            yield _field(re.sub(r"\\(.)", r"\1", found[0]))
            at = found.end()
        elif text[at] in " @$":
            at += 1
        else:
            raise ValueError(f"unrecognized character in {text!r} at {at}")


def _field(name: str) -> _Step:
    if name == "*":
        return _wildcard
    return lambda values: [value[name] for value in values if type(value) is dict and name in value]


def _wildcard(values: Iterable[Any]) -> list[Any]:
    return [inner for value in values for inner in _inside(value)]


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value if type(value) is list else ()


def _descend(values: list[Any]) -> list[Any]:
    """Return all values that have others inside, from the outside in."""
    found: list[Any] = []
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        inside = list(_inside(value))
        if inside:
            found.append(value)
            waiting.extend(reversed(inside))
    return found


def _bracket(text: str) -> _Step:
    if "," in text:
        parts = [_bracket(part.strip()) for part in text.split(",")]
        return lambda values: [one for part in parts for one in part(values)]
    if len(text) > 1 and text[0] == text[-1] == "'":
        steps = tuple(_parse(f".{text[1:-1]}"))
        return lambda values: _through(steps, values)
    found = _SLICE.fullmatch(":" if text == "*" else text)
    if found is None:
        raise ValueError(f"invalid array index {text}")
    start, end, step = (int(part) if part else None for part in found.groups())
    if ":" not in text and text != "*":
        if start is None:
            raise ValueError(f"invalid array index {text}")
        return lambda values: [_item(value, start) for value in values if value is not None]
    return lambda values: [one for value in values if value is not None for one in _part(value, start, end, step)]


def _through(steps: Iterable[_Step], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


def _item(value: Any, index: int) -> Any:
    if type(value) is not list:
        raise LookupError("what is indexed is no array")
    return value[index]


def _part(value: Any, start: int | None, end: int | None, step: int | None) -> list[Any]:
    if type(value) is not list:
        raise LookupError("what is indexed is no array")
    first = start or 0
    if value and not -len(value) <= first < len(value):
        raise LookupError("array index out of bounds")
    return value[first : end or None : max(1, step or 1)]


def _filter(left: str, operator: str | None, right: str | None) -> _Step:
    of_left = _operand(left)
    if operator is None:
        return lambda values: [item for value in values for item in _items(value) if of_left(item)]
    of_right, compare = _operand(right or ""), _OPERATORS[operator]

    def holds(item: Any) -> bool:
        ones, others = of_left(item), of_right(item)
        if len(ones) > 1 or len(others) > 1:
            raise LookupError("can only compare one element at a time")
        try:
            return bool(ones and others and compare(ones[0], others[0]))
        except TypeError:
            raise LookupError("values of different types have no order") from None

    return lambda values: [item for value in values for item in _items(value) if holds(item)]


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise LookupError("what is filtered is no array")
    return value


def _operand(text: str) -> Callable[[Any], list[Any]]:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return lambda _item: [text[1:-1]]
    if text in ("true", "false"):
        return lambda _item: [text == "true"]
    if re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
        number = float(text) if "." in text else int(text)
        return lambda _item: [number]
    return JSONPath(text).find
