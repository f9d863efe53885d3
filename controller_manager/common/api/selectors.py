"""Label and field selectors: parsing and matching (label requirements are ANDed)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, Self

import msgspec

from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.model import Model

Operator = Literal["in", "notin", "exists", "!", "gt", "lt"]

_TOKEN = re.compile(r"\s*(==|!=|=|!|>|<|\(|\)|,|[^\s=!<>(),]+)\s*")
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")
_INTEGER = re.compile(r"[-+]?[0-9]{1,100}", re.ASCII)
_INTEGERS = range(-(1 << 63), 1 << 63)
_EMPTY: Mapping[str, str] = {}
_OPERATORS: Mapping[str, Operator] = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_NODE_OPERATORS: Mapping[str, Operator] = {**_OPERATORS, "Gt": "gt", "Lt": "lt"}
_FEW = 8  # number of values up to which a scan is as fast as a set
_LONGEST_KEPT = 1024  # characters of a cached selector
_TERMS = re.compile(
    r"""\s*+([^=!\\,\s][^=!\\,]*+)(!=|==|=)((?:\\[\\,=]|[^\\=,])*+)(?:,|\Z)|,|(.++)""", re.DOTALL
)  # each alternative consumes its match, so that no text is scanned twice
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SETS = re.compile(r"\([^()]*\)")  # in `in` and `notin` conditions

MOST_CONDITIONS = 500
"""Maximum conditions of a list or watch selector; a server checks each of them for every object."""
LONGEST_SELECTOR = 64 * 1024
"""Maximum characters of a selector, as for a request line."""


class Requirement(msgspec.Struct, frozen=True, dict=True):
    """A requirement for one label; `values` is sorted."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` match; `notin` also matches if the label is absent."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in (self.values if len(self.values) <= _FEW else self._members)
            case "notin":
                return value not in (self.values if len(self.values) <= _FEW else self._members)
            case "exists":
                return value is not None
            case "!":
                return value is None
        return value is not None and _compares(value, self.operator, self.values[0])

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "gt":
                return f"{self.key}>{self.values[0]}"
            case "lt":
                return f"{self.key}<{self.values[0]}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == 'in' else '!='}{self.values[0]}"
        return f"{self.key} {self.operator} ({','.join(self.values)})"


class LabelSelector(msgspec.Struct, frozen=True):
    """A conjunction of requirements; without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`; raises `BadRequest` naming the invalid part."""
        return cls(_parsed(text) if len(text) > _LONGEST_KEPT else _kept(text))

    @classmethod
    def parse_bounded(cls, text: str) -> Self:
        """Parse a selector from a request. Raises `BadRequest` if it is malformed or too large."""
        _check_size(text, cls.count_conditions)
        return cls.parse(text)

    @staticmethod
    def count_conditions(text: str) -> int:
        """Return an upper bound of the number of conditions without parsing; a set of values is one condition."""
        return _SETS.sub("", text).count(",") + 1 if text else 0

    @property
    def empty(self) -> bool:
        """Return whether the selector matches everything."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether every requirement matches."""
        found = labels or _EMPTY
        return all(requirement.matches(found) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


class SelectorRequirement(Model):
    """`matchExpressions[]` of a label selector in an object, or of a term of a node selector, complete."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def requirement(self) -> Requirement | None:
        """Return the requirement, including `Gt` and `Lt`; None if it is invalid: an unknown operator, a wrong number
        of values, or an invalid label key or value.
        """
        operator = _NODE_OPERATORS.get(self.operator)
        if operator is None or not _LABEL_KEY.fullmatch(self.key):
            return None
        fits = {"in": len(self.values) > 0, "notin": len(self.values) > 0, "exists": not self.values}
        fits["!"] = fits["exists"]
        compared = len(self.values) == 1 and _is_integer(self.values[0])
        if not fits.get(operator, compared) or not all(map(_LABEL_VALUE.fullmatch, self.values)):
            return None
        return Requirement(self.key, operator, tuple(sorted(self.values)))


class LabelSelectorSpec(Model, dict=True, gc=True):
    """A label selector in an object, complete."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] = ()

    def selector(self) -> LabelSelector:
        """Return the compiled selector (cached). Raises `KeyError` for an unknown operator."""
        return self._selector

    @cached_property
    def _selector(self) -> LabelSelector:
        equal = [Requirement(key, "in", (value,)) for key, value in (self.match_labels or _EMPTY).items()]
        others = [
            Requirement(each.key, _OPERATORS[each.operator], tuple(sorted(each.values)))
            for each in self.match_expressions
        ]
        return LabelSelector((*equal, *others))


class Term(msgspec.Struct, frozen=True):
    """A condition on one field."""

    path: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of field conditions; the server knows which paths a resource supports."""

    terms: tuple[Term, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `metadata.name=a,status.phase!=Running` with `\\`, `\\,` and `\\=` escaped; raises `BadRequest`."""
        return cls(_terms(text) if len(text) > _LONGEST_KEPT else _kept_terms(text))

    @classmethod
    def parse_bounded(cls, text: str) -> Self:
        """Parse a selector from a request. Raises `BadRequest` if it is malformed or too large."""
        _check_size(text, cls.count_conditions)
        return cls.parse(text)

    @staticmethod
    def count_conditions(text: str) -> int:
        """Return an upper bound of the number of conditions without parsing."""
        return text.count(",") + 1 if text else 0

    @property
    def empty(self) -> bool:
        """Return whether the selector matches everything."""
        return not self.terms

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """Return whether every condition matches; `value_of(path)` returns a field as text, empty if absent."""
        return all((value_of(term.path) == term.value) is term.equal for term in self.terms)

    def exact(self, path: str) -> str | None:
        """Return the value that `path` must equal, or None."""
        return next((term.value for term in self.terms if term.equal and term.path == path), None)

    def __str__(self) -> str:
        return ",".join(f"{t.path}{'=' if t.equal else '!='}{_escape(t.value)}" for t in self.terms)


def _check_size(text: str, count_conditions: Callable[[str], int]) -> None:
    if len(text) > LONGEST_SELECTOR or count_conditions(text) > MOST_CONDITIONS:
        raise BadRequest(f"a selector has at most {MOST_CONDITIONS} conditions and {LONGEST_SELECTOR} characters")


def _compares(value: str, operator: Operator, bound: str) -> bool:
    if not (_is_integer(value) and _is_integer(bound)):
        return False
    return int(value) > int(bound) if operator == "gt" else int(value) < int(bound)


def _is_integer(text: str) -> bool:
    """Return whether a text is a 64-bit decimal integer in Go's syntax."""
    return _INTEGER.fullmatch(text) is not None and int(text) in _INTEGERS


@lru_cache(maxsize=1024)
def _kept(text: str) -> tuple[Requirement, ...]:
    return _parsed(text)


def _parsed(text: str) -> tuple[Requirement, ...]:
    tokens = _tokens(text)
    count = len(tokens)
    tokens += ("", "")  # so that each token has followers
    found: list[Requirement] = []
    position = 0
    while position < count:
        requirement, position = _requirement(tokens, position, text)
        found.append(requirement)
        if position < count:
            if tokens[position] != "," or position + 1 == count:
                raise _unparsable(text, f"found '{tokens[position]}', expected: ',' or the end")
            position += 1
    return tuple(found)


def _tokens(text: str) -> list[str]:
    """Return the tokens; 64 KB take some milliseconds, and a request may have that many."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) == "".join(text.split()):
        return tokens
    position = 0
    while (match := _TOKEN.match(text, position)) is not None:
        position = match.end()
    raise _unparsable(text, f"unexpected '{text[position : position + 1]}'")


def _requirement(tokens: Sequence[str], at: int, text: str) -> tuple[Requirement, int]:
    first, second = tokens[at], tokens[at + 1]
    if first == "!":
        return Requirement(_key(second, text), "!"), at + 2
    key = _key(first, text)
    if second in ("", ","):
        return Requirement(key, "exists"), at + 1
    third = tokens[at + 2]
    match second:
        case "=" | "==" | "!=":
            absent = third in ("", ",")
            found = _value("" if absent else third, text)
            return Requirement(key, "notin" if second == "!=" else "in", (found,)), at + (2 if absent else 3)
        case ">" | "<":
            if not re.fullmatch(r"-?\d+", third):
                raise _unparsable(text, f"'{second}' needs an integer")
            return Requirement(key, "gt" if second == ">" else "lt", (third,)), at + 3
        case "in" | "notin":
            values, end = _value_set(tokens, at + 2, text)
            return Requirement(key, "in" if second == "in" else "notin", values), end
    raise _unparsable(text, f"found '{second}', expected: in, notin, =, ==, !=, >, <")


def _value_set(tokens: Sequence[str], at: int, text: str) -> tuple[tuple[str, ...], int]:
    end = next((end for end in range(at, len(tokens)) if tokens[end] == ")"), 0)
    if not end or tokens[at] != "(":
        raise _unparsable(text, "a set of values is written (a,b)")
    values: list[str] = [""]
    for token in tokens[at + 1 : end]:
        if token == ",":  # noqa: S105 - a token of the grammar
            values.append("")
        elif values[-1]:
            raise _unparsable(text, f"found '{token}', expected: ',' or ')'")
        else:
            values[-1] = _value(token, text)
    return tuple(sorted(set(values))), end + 1


def _key(text: str, selector: str) -> str:
    if not _LABEL_KEY.fullmatch(text):
        raise _unparsable(selector, f"'{text}' is not a label key")
    return text


def _value(text: str, selector: str) -> str:
    if not _LABEL_VALUE.fullmatch(text):
        raise _unparsable(selector, f"'{text}' is not a label value")
    return text


def _unparsable(text: str, why: str) -> BadRequest:
    return BadRequest(f"unable to parse label selector {text!r}: {why}")


@lru_cache(maxsize=1024)
def _kept_terms(text: str) -> tuple[Term, ...]:
    return _terms(text)


def _terms(text: str) -> tuple[Term, ...]:
    """Parse a field selector in one pass; the last group of a match holds invalid text."""
    found: list[Term] = []
    for path, operator, value, wrong in _TERMS.findall(text):
        if wrong:
            raise BadRequest(f"invalid selector: {text!r}; a field selector is written path=value or path!=value")
        if path:
            plain = _ESCAPED.sub(r"\1", value) if "\\" in value else value
            found.append(Term(path.rstrip(), operator != "!=", plain))
    return tuple(found)


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)
