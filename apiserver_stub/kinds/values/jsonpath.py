"""JSONPath as columns of custom resources use it: fields, indexes, slices, wildcards, filters, recursive descent.

A path without a match returns nothing. `LookupError` is raised if a step cannot be applied to a value, or if too many
values are visited: nested recursive descent takes exponential time.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any

MOST_VISITS = 250_000
"""The maximum number of values in one object that all column paths of a table may visit."""


class Visits:
    """The remaining number of values that one or several paths may visit."""

    def __init__(self, left: int) -> None:
        self._left = left

    def count(self, visited: int) -> None:
        """Count visited values. Raises `LookupError` if there are too many."""
        self.spend(visited)
        if self._left < 0:
            raise LookupError("too many values")

    def spend(self, cost: int) -> None:
        """Reduce the number that later paths may visit."""
        self._left -= cost


# Returns all matches, given the values matched so far.
_Step = Callable[[list[Any], Visits], list[Any]]

_PLAIN = re.compile(r"(?:\.[\w-]+)*")
_NAME = re.compile(r"(?:\\.|[^\s.,\[\]$@{}\\])*")
_SLICE = re.compile(r"(-?\d*)(?::(-?\d*))?(?::(-?\d*))?")
_FILTER = re.compile(r"\[\?\((.*?)(?:(==|!=|<=|>=|<|>)(.*?))?\)\]", re.DOTALL)
_OPERATORS = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_LONGEST = 4096


class JSONPath:
    """A compiled path. Raises ValueError for invalid text."""

    def __init__(self, path: str) -> None:
        if len(path) > _LONGEST:
            raise ValueError(f"path is longer than {_LONGEST} characters")
        self._steps = _steps(path.split(".")[1:] if _PLAIN.fullmatch(path) else _parse(path))

    def find(self, value: Any, visits: Visits | None = None) -> list[Any]:
        """Return all matches in order. `visits` limits the work. Raises `LookupError`."""
        return _through(self._steps, [value], visits or Visits(MOST_VISITS))


def _steps(parts: Iterable[str | _Step]) -> tuple[_Step, ...]:
    """Return the steps of a path from its parts, which are steps or field names. Consecutive names become one step."""
    found: list[_Step] = []
    names: list[str] = []
    for part in parts:
        if isinstance(part, str):
            if not names:
                found.append(partial(_fields, names))
            names.append(part)
        else:
            found.append(part)
            names = []
    return tuple(found)


def _parse(text: str) -> Iterator[str | _Step]:
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
            yield _wildcard if found[0] == "*" else re.sub(r"\\(.)", r"\1", found[0])
            at = found.end()
        elif text[at] in " @$":
            at += 1
        else:
            raise ValueError(f"unrecognized character in {text!r} at {at}")


def _fields(names: Sequence[str], values: list[Any], visits: Visits) -> list[Any]:
    for name in names:
        visits.count(len(values))
        values = [value[name] for value in values if type(value) is dict and name in value]
        if not values:
            break
    return values


def _wildcard(values: list[Any], visits: Visits) -> list[Any]:
    found: list[Any] = []
    for value in values:
        inside = _inside(value)
        visits.count(len(inside))
        found += inside
    return found


def _inside(value: Any) -> Collection[Any]:
    return value.values() if type(value) is dict else value if type(value) is list else ()


def _descend(values: list[Any], visits: Visits) -> list[Any]:
    """Return all values that contain others, outermost first."""
    found: list[Any] = []
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        inside = _inside(value)
        if inside:
            visits.count(len(inside))
            found.append(value)
            waiting.extend(reversed([*inside]))
    return found


def _bracket(text: str) -> _Step:
    if "," in text:
        return _union([_bracket(part.strip()) for part in text.split(",")])
    if len(text) > 1 and text[0] == text[-1] == "'":
        return partial(_through, _steps(_parse(f".{text[1:-1]}")))
    found = _SLICE.fullmatch(":" if text == "*" else text)
    if found is None:
        raise ValueError(f"invalid array index {text}")
    start, end, step = (int(part) if part else None for part in found.groups())
    if ":" not in text and text != "*":
        if start is None:
            raise ValueError(f"invalid array index {text}")
        return lambda values, _: [_item(value, start) for value in values if value is not None]
    return _slice(start, end, step)


def _union(parts: Sequence[_Step]) -> _Step:
    def find(values: list[Any], visits: Visits) -> list[Any]:
        found: list[Any] = []
        for part in parts:
            visits.count(len(values))
            found += part(values, visits)
        return found

    return find


def _slice(start: int | None, end: int | None, step: int | None) -> _Step:
    def find(values: list[Any], visits: Visits) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if value is not None:
                inside = _part(value, start, end, step)
                visits.count(len(inside))
                found += inside
        return found

    return find


def _through(steps: Iterable[_Step], values: list[Any], visits: Visits) -> list[Any]:
    """Return the matches after all steps."""
    for step in steps:
        if not values:
            break
        visits.count(len(values))
        values = step(values, visits)
    return values


def _item(value: Any, index: int) -> Any:
    if type(value) is not list:
        raise LookupError("cannot index a value that is not an array")
    return value[index]


def _part(value: Any, start: int | None, end: int | None, step: int | None) -> list[Any]:
    if type(value) is not list:
        raise LookupError("cannot index a value that is not an array")
    first = start or 0
    if value and not -len(value) <= first < len(value):
        raise LookupError("array index out of bounds")
    return value[first : end or None : max(1, step or 1)]


def _filter(left: str, operator: str | None, right: str | None) -> _Step:
    of_left = _operand(left)
    if operator is None:
        return _selection(lambda item, visits: bool(of_left(item, visits)))
    of_right, compare = _operand(right or ""), _OPERATORS[operator]

    def holds(item: Any, visits: Visits) -> bool:
        ones, others = of_left(item, visits), of_right(item, visits)
        if len(ones) > 1 or len(others) > 1:
            raise LookupError("can only compare one element at a time")
        try:
            return bool(ones and others and compare(ones[0], others[0]))
        except TypeError:
            raise LookupError("cannot order values of different types") from None

    return _selection(holds)


def _selection(holds: Callable[[Any, Visits], bool]) -> _Step:
    def find(values: list[Any], visits: Visits) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if type(value) is not list:
                raise LookupError("cannot filter a value that is not an array")
            visits.count(len(value))
            found += [item for item in value if holds(item, visits)]
        return found

    return find


def _operand(text: str) -> Callable[[Any, Visits], list[Any]]:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return lambda *_: [text[1:-1]]
    if text in ("true", "false"):
        return lambda *_: [text == "true"]
    if re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
        number = float(text) if "." in text else int(text)
        return lambda *_: [number]
    return JSONPath(text).find
