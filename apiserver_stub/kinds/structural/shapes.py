"""msgspec types made from a structural schema. They accept a valid value within microseconds (see
`schema/schema_types.py`).

An accepted value has no unknown fields, no nulls to remove, and breaks no rule of its schema. A rejected value may be
valid: the caller then checks it with the slow code.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from apiserver_stub.kinds.published import OBJECT_META, schemas
from apiserver_stub.kinds.schema import schema_types as shapes
from apiserver_stub.kinds.schema.schema import Raw
from apiserver_stub.kinds.schema.schema_types import Shape
from apiserver_stub.kinds.structural.formats import format_of
from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.structural.values import check
from controller_manager.common.base.regex import compile_regex

# Returns whether a value satisfies a rule.
_Check = Callable[[Any], bool]

_ANYTHING: Shape = dict | list | str | int | float | bool
_INTEGERS: Mapping[str, tuple[int, int]] = MappingProxyType({"int32": (-(2**31), 2**31 - 1)})
_INT64 = (-(2**63), 2**63 - 1)
_NUMBERS: Mapping[bool, tuple[type, ...]] = MappingProxyType({True: (int,), False: (int, float)})
# Keywords that msgspec types cannot express. The slow code checks them.
_JUDGED = ("allOf", "anyOf", "oneOf", "not", "multipleOf", "uniqueItems")
_SIZES = ("minProperties", "maxProperties")
_UNJUDGED = frozenset({"type", "description"})
_LITERAL: Any = Literal
_MOST_FIELDS = 10_000  # of an object: creating a type with more blocks in C for long


class _Checked:
    """Base of types whose values are accepted by a function."""

    check: _Check


def takes(schema: StructuralSchema, value: Any) -> bool:
    """Return whether a value is surely valid. If not, it may still be valid."""
    return _is(value, schema.derived(_shape))


def _judge(kind: type[Any], value: Any) -> Any:
    if not kind.check(value):
        raise TypeError
    return kind.value


def _checked(holds: _Check) -> Shape:
    kind: Any = type("Checked", (_Checked,), {"check": staticmethod(holds)})
    kind.value = kind()
    return kind


def _shape(schema: StructuralSchema) -> Shape:
    plain = _plain(schema)
    raw = schema.raw
    if any(raw.get(name) for name in _JUDGED) or _needs_check(schema):
        plain = _checked(_both(plain, raw))
    return _checked(_or_null(plain)) if schema.nullable and not check(None, raw) else plain


def _is(value: Any, shape: Shape) -> bool:
    try:
        msgspec.convert(value, shape, dec_hook=_judge)
    except msgspec.ValidationError:
        return False
    return True


def _both(plain: Shape, raw: Raw) -> _Check:
    return lambda value: _is(value, plain) and not check(value, raw)


def _or_null(plain: Shape) -> _Check:
    return lambda value: value is None or _is(value, plain)


def _needs_check(schema: StructuralSchema) -> bool:
    """Return whether the schema requires fields that it does not declare, or has an enum with values other than
    strings.
    """
    required, enum = schema.raw.get("required") or (), schema.raw.get("enum") or ()
    return any(name not in schema.properties for name in required) or any(type(one) is not str for one in enum)


def _plain(schema: StructuralSchema) -> Shape:
    raw = schema.raw
    if schema.int_or_string:
        return int | str if not any(raw.get(name) is not None for name in _BOUNDS) else _checked(_both(int | str, raw))
    match raw.get("type"):
        case "object":
            return _object(schema)
        case "array":
            items = _ANYTHING if schema.items is None else schema.items.derived(_shape)
            bounds = _bounds(raw, "minItems", "maxItems")
            return Annotated[GenericAlias(list, (items,)), bounds, _UNHASHABLE]
        case "string":
            return _string(raw)
        case "integer" | "number":
            return _number(raw)
        case "boolean":
            return bool
    return _ANYTHING if schema.preserve else msgspec.UnsetType


_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "pattern", "format", "enum")
# `typing` caches types with hashable arguments. This makes them unhashable, so a shape is freed with its schema.
_UNHASHABLE: list[None] = []


def _object(schema: StructuralSchema) -> Shape:
    if bool(schema.raw.get("additionalProperties")) and not schema.properties:
        values = str | int | float | bool if schema.additional is None else schema.additional.derived(_shape)
        return Annotated[GenericAlias(dict, (str, values)), _bounds(schema.raw, *_SIZES), _UNHASHABLE]
    if schema.preserve and not schema.properties and not schema.resource:
        return Annotated[dict, _bounds(schema.raw, *_SIZES)]
    named = _named(schema)
    return _checked(_sized(named, schema.raw)) if any(schema.raw.get(name) is not None for name in _SIZES) else named


def _named(schema: StructuralSchema) -> Shape:
    if len(schema.properties) > _MOST_FIELDS:
        return _checked(_never)
    kind = msgspec.defstruct(
        "Shape",
        [*_members(schema)],
        kw_only=True,
        forbid_unknown_fields=not (schema.preserve or bool(schema.raw.get("additionalProperties"))),
        gc=False,
    )
    _is({}, kind)  # make msgspec compile this type now: all nested types at once would block for long
    return kind


def _never(_value: Any) -> bool:
    return False


def _members(schema: StructuralSchema) -> Iterator[tuple[str, Shape, Any]]:
    required = frozenset(schema.raw.get("required") or ())
    shaped = {name: child.derived(_shape) for name, child in schema.properties.items()}
    if schema.resource:
        shaped |= _of_all(schema)
    for index, (name, shape) in enumerate(shaped.items()):
        needed = name in required
        field = msgspec.field(name=name) if needed else msgspec.field(name=name, default=None)
        yield f"f{index}", shape, field


def _of_all(schema: StructuralSchema) -> dict[str, Shape]:
    """Return the shapes of the fields of every resource, restricted by the schema."""
    found = {"apiVersion": str, "kind": str, "metadata": shapes.fitting(schemas().node(OBJECT_META))}
    for name, plain in found.items():
        child = schema.properties.get(name)
        if child is not None and not _UNJUDGED.issuperset(child.raw):
            found[name] = _checked(_both(plain, child.raw))
    return found


def _sized(plain: Shape, raw: Raw) -> _Check:
    least, most = (raw.get(name) for name in _SIZES)
    return lambda value: (
        _is(value, plain) and (least is None or len(value) >= least) and (most is None or len(value) <= most)
    )


def _bounds(raw: Raw, least: str, most: str) -> Meta:
    low, high = raw.get(least), raw.get(most)
    return Meta(min_length=max(0, low or 0), max_length=None if high is None else max(0, high))


def _string(raw: Raw) -> Shape:
    enum = raw.get("enum")
    texts = tuple(one for one in enum or () if type(one) is str)
    plain = _LITERAL[texts] if texts else Annotated[str, _bounds(raw, "minLength", "maxLength")]
    rules = [*_rules_of_text(raw)]
    if texts and (rules or any(raw.get(name) is not None for name in ("minLength", "maxLength"))):
        return _checked(_both(plain, raw))
    return _checked(_keeps(raw, rules)) if rules else plain


def _rules_of_text(raw: Raw) -> Iterator[_Check]:
    if raw.get("pattern"):
        yield compile_regex(raw["pattern"]).matches
    is_of = format_of(raw.get("format") or "")
    if is_of is not None:
        yield is_of


def _keeps(raw: Raw, rules: list[_Check]) -> _Check:
    """Return a check for texts that satisfy these rules and the length limits."""
    least, most = raw.get("minLength") or 0, raw.get("maxLength")
    if least <= 0 and most is None and len(rules) == 1:
        return lambda value: type(value) is str and rules[0](value)
    longest = sys.maxsize if most is None else most

    def check(value: Any) -> bool:
        return type(value) is str and least <= len(value) <= longest and all(rule(value) for rule in rules)

    return check


def _number(raw: Raw) -> Shape:
    is_integer, form = raw["type"] == "integer", raw.get("format") or ""
    bounds = [bound for bound in (raw.get("minimum"), raw.get("maximum")) if bound is not None]
    if raw.get("enum") or form == "float" or not all(float(bound).is_integer() for bound in bounds):
        return _checked(lambda value: type(value) in _NUMBERS[is_integer] and not check(value, raw))
    least, most = _INTEGERS.get(form, _INT64)
    limits: dict[str, Any] = {"ge": least, "le": most} if is_integer else {}
    for word, inclusive, exclusive in (("minimum", "ge", "gt"), ("maximum", "le", "lt")):
        bound = raw.get(word)
        if bound is not None and (not is_integer or least <= bound <= most):
            limits.pop(inclusive, None)
            limits[exclusive if raw.get(f"exclusive{word.capitalize()}") else inclusive] = int(bound)
    meta = Meta(**limits)
    return Annotated[int, meta] if is_integer else Annotated[int, meta] | Annotated[float, meta]
