"""Sets of fields, as in `managedFields[].fieldsV1`, and their operations (KEP-555). Nothing is changed in place.

A set is a tree of plain dicts whose keys are path steps: `f:name` is a field of an object, `k:{"name":"a"}` the list
element with these keys, `v:"a"` an element of a list of scalars, `i:0` an index. A field is in the set if the dict at
its step is empty or has the key `.`; otherwise only fields below it are. So an empty dict is the empty set at the root,
and a single field elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import orjson

Fields = dict[str, Any]
FieldSetPath = tuple[str, ...]

SELF = "."
LEAF: Fields = {}
"""The value of a step whose field alone is in the set. It is shared and must not be changed."""
_DEEPEST = 200  # steps of a path
SHORT = 64  # characters of a text that is cached


def is_member(inner: Fields) -> bool:
    """Return whether the field whose step leads to `inner` is in the set itself."""
    return not inner or SELF in inner


def as_member(inner: Fields) -> Fields:
    """Return `inner` with the field above it in the set."""
    return {SELF: LEAF, **inner} if inner else LEAF


def union(one: Fields, other: Fields) -> Fields:
    """Return the union."""
    joined = dict(one)
    for step, inner in other.items():
        known = joined.get(step)
        joined[step] = inner if known is None else _join(known, inner)
    return joined


def _join(one: Fields, other: Fields) -> Fields:
    joined = union(one, other)
    return as_member(joined) if is_member(one) or is_member(other) else joined


def gained(fields: Fields, more: Fields) -> Fields:
    """Return the union with the steps in order; `fields` must be in order. Unchanged parts are shared with `fields`."""
    joined, grows = fields, False
    for step, inner in more.items():
        known = fields.get(step)
        if known is None:
            both, grows = ordered(inner), True
        else:
            both = gained(known, inner)
            if not is_member(both) and (is_member(known) or is_member(inner)):
                both = as_member(both)
        if both is not known:
            if joined is fields:
                joined = fields.copy()
            joined[step] = both
    return {step: joined[step] for step in sorted(joined)} if grows else joined


def difference(one: Fields, other: Fields) -> Fields:
    """Return the fields of `one` that are not in `other`. A field and the fields below it are separate members. If
    nothing is removed, `one` itself is returned.
    """
    if SELF not in one and one.keys().isdisjoint(other):
        return one
    left: Fields = {}
    for step, inner in one.items():
        if step == SELF:
            continue
        taken = other.get(step)
        if taken is None:
            left[step] = inner
        elif inner or not is_member(taken):
            _put(left, step, difference(inner, taken), is_member(inner) and not is_member(taken))
    return left


def intersection(one: Fields, other: Fields) -> Fields:
    """Return the intersection."""
    shared: Fields = {}
    for step, inner in one.items():
        found = other.get(step)
        if found is not None and step != SELF:
            _put(shared, step, intersection(inner, found), is_member(inner) and is_member(found))
    return shared


def ordered(fields: Fields) -> Fields:
    """Return the set with its steps in order; some clients compare its text."""
    return {step: ordered(inner) if (inner := fields[step]) else LEAF for step in sorted(fields)}


def paths(fields: Fields, above: FieldSetPath = ()) -> Iterator[FieldSetPath]:
    """Yield the path of each field of a set; a field comes before those below it."""
    for step, inner in sorted(fields.items()):
        if step == SELF:
            continue
        path = (*above, step)
        if is_member(inner):
            yield path
        yield from paths(inner, path)


def of(*members: FieldSetPath) -> Fields:
    """Return the set of the given paths."""
    found: Fields = {}
    for path in members:
        inner = LEAF
        for step in reversed(path[1:]):
            inner = {step: inner}
        found = union(found, {path[0]: inner})
    return found


def render(path: FieldSetPath) -> str:
    """Return a path as error messages show it: `.spec.containers[name="web"].image`."""
    return "".join(_SHOWN[step[0]](step[2:]) for step in path)


def to_field(name: str) -> str:
    """Return the step of an object's field."""
    return "f:" + name


def to_keyed(keys: Fields) -> str:
    """Return the step of the list element with these keys."""
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def to_value(value: Any) -> str:
    """Return the step of an element of a list of scalars."""
    return "v:" + spelt(value)


def spelt(value: Any) -> str:
    """Return a value as steps spell it."""
    return _spelt_text(value) if type(value) is str and len(value) <= SHORT else orjson.dumps(value).decode()


@lru_cache(maxsize=8192)
def _spelt_text(text: str) -> str:
    """Return a short text as steps spell it. The result is cached, since many objects use the same names."""
    return orjson.dumps(text).decode()


def parse(value: object, levels: int = _DEEPEST) -> Fields:
    """Return the set in JSON from a client, with normalized steps. Steps of unknown kinds are dropped. Raises
    `ValueError`.
    """
    if not isinstance(value, dict) or levels == 0:
        raise ValueError("a set of fields is made of objects, of bounded depth")
    found: Fields = {}
    for step, inner in value.items():
        if step == SELF:
            found[SELF] = LEAF
            continue
        if step[1:2] != ":":
            raise ValueError(f"{step!r} is not a path element")
        spell = _SPELT.get(step[0])
        if spell is not None:
            step, inner = spell(step[2:]), parse(inner, levels - 1)
            found[step] = _join(found[step], inner) if step in found else inner
    return LEAF if found.keys() <= {SELF} else found


def _put(fields: Fields, step: str, inner: Fields, member: bool) -> None:
    if member:
        fields[step] = as_member(inner)
    elif inner:
        fields[step] = inner


def _spell_keys(text: str) -> str:
    keys = orjson.loads(text)
    if not isinstance(keys, dict) or not keys:
        raise ValueError(f"{text!r} names no keys")
    return to_keyed(keys)


def _show_keys(text: str) -> str:
    return "[" + ",".join(f"{name}={spelt(value)}" for name, value in orjson.loads(text).items()) + "]"


_SPELT: Mapping[str, Callable[[str], str]] = MappingProxyType({
    "f": to_field,
    "k": _spell_keys,
    "v": lambda text: to_value(orjson.loads(text)),
    "i": lambda text: f"i:{int(text)}",
})  # fmt: skip
_SHOWN: Mapping[str, Callable[[str], str]] = MappingProxyType({
    "f": lambda name: f".{name}",
    "k": _show_keys,
    "v": lambda text: f"[={text}]",
    "i": lambda text: f"[{text}]",
})  # fmt: skip
