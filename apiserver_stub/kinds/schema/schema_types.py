"""msgspec types made from a schema. They accept a valid tree within microseconds but do not explain a rejection.

After a rejection, plain code checks the tree again and words the error. It may find that nothing is wrong. A type must
therefore never accept what that code would reject or change, but may reject more.
"""

from collections.abc import Iterable, Mapping
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from apiserver_stub.kinds.schema.schema import Schema

# A shape is a type, but no type checker can follow it.
Shape = Any

# Match only canonical quantities; some canonical ones do not match.
_COUNT = r"-?[1-9][0-9]{0,17}(?<!000)"
_BINARY = (
    r"-?((?!(1024|2048|3072|4096|5120|6144|7168|8192|9216)[KMGT]i)[1-9][0-9]{0,3}[KMGT]i|[1-9][0-9]{0,2}Pi|[1-7]Ei)"
)
_DAY = r"(?!02-(29|3)|(04|06|09|11)-31)(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_MOMENT = rf"\A2[0-9]{{3}}-{_DAY}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"


class Nothing:
    """A type without values. It ends the recursion of a recursive schema."""


class _Yes:
    """The boolean true. msgspec types cannot express it otherwise."""


_CONTAINERS = frozenset({"object", "array"})  # other types are cheap to make and by far the most frequent
_LITERAL: Any = Literal
_YES = _Yes()
_NOT_TEXT: Shape = dict | list | int | float | bool
_FILLED = Meta(min_length=1)
_PRESENT: Shape = _NOT_TEXT | Annotated[str, _FILLED]
_INTEGERS: Mapping[str, Shape] = MappingProxyType({
    "int32": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "int64": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
})  # fmt: skip
_POSITIVE: Mapping[str, Shape] = MappingProxyType({
    "int32": Annotated[int, Meta(ge=1, le=2**31 - 1)],
    "int64": Annotated[int, Meta(ge=1, le=2**63 - 1)],
})  # fmt: skip
_FITTING: Mapping[str, Shape] = MappingProxyType({
    "any": _NOT_TEXT | str, "string": str, "boolean": bool, "number": int | float, "bytes": bytes,
    "int-or-string": _INTEGERS["int32"] | str,
    "quantity": Annotated[str, Meta(pattern=rf"\A(0|{_COUNT}[numkMGTPE]?|{_BINARY})\Z")],
    "time": Annotated[str, Meta(pattern=rf"{_MOMENT}Z\Z")],
    "micro-time": Annotated[str, Meta(pattern=rf"{_MOMENT}\.[0-9]{{6}}Z\Z")],
})  # fmt: skip
# `typing` caches types with hashable arguments. This makes them unhashable, so a shape is freed with its schema.
_UNHASHABLE: list[None] = []
_MILLI: Shape = Annotated[str, Meta(pattern=rf"\A(0|{_COUNT}[mkMGTPE]?|{_BINARY})\Z")]


def takes(shape: Shape, value: Any) -> bool:
    """Return whether a value matches a shape and is therefore valid. A value that does not match may still be valid."""
    try:
        msgspec.convert(value, shape, dec_hook=_only_yes)
    except msgspec.ValidationError:
        return False
    return True


def _only_yes(_type: type, value: Any) -> Any:
    if value is not True:
        raise TypeError
    return _YES


def fitting(schema: Schema) -> Shape:
    """Return the shape of values that need no cleaning.

    Their types and forms are right. They have no unknown fields, no empty values that equal absent ones, and nulls only
    in fields that are always present.
    """
    return schema.derived(_fitting, Nothing) if schema.type in _CONTAINERS else _fitting(schema)


def _fitting(node: Schema) -> Shape:
    if node.values is not None:
        return _full(node, GenericAlias(dict, (str, fitting(node.values))))
    if node.type == "object":
        fields = ((name, fitting(field), False) for name, field in node.fields.items())
        return _struct(fields, closed=not node.preserve)
    if node.type == "array":
        return _or_null(node, _full(node, list if node.items is None else GenericAlias(list, (fitting(node.items),))))
    if node.type == "integer":
        bounded = _POSITIVE if node.omits else _INTEGERS
        return bounded.get(node.format, bounded["int64"])
    if node.type == "quantity":
        return _MILLI if node.format == "milli" else _FITTING["quantity"]
    if node.embeds is not None:
        return bool if node.format == "boolean" else Nothing
    if node.type == "boolean" and node.omits:
        return _Yes
    return _or_null(node, _full(node, _FITTING[node.type]))


def _or_null(node: Schema, shape: Shape) -> Shape:
    return shape | None if node.null_when_absent else shape


def _full(node: Schema, shape: Shape) -> Shape:
    """Return the shape without the empty values that the field omits, and without empty lists that it shows as null."""
    if node.null_when_absent and node.type == "array":
        return Annotated[shape, _FILLED]  # part of a union, whose members must be hashable
    return Annotated[shape, _FILLED, _UNHASHABLE] if node.omits else shape


def complete(schema: Schema) -> Shape:
    """Return the shape of values with all required fields and only allowed values. Any if nothing is required."""
    return schema.derived(_complete, Nothing) if schema.type in _CONTAINERS else _complete(schema)


def _complete(node: Schema) -> Shape:
    if node.enum:
        return _LITERAL[node.enum]
    if node.values is not None:
        return _of(complete(node.values), dict, str)
    if node.items is not None:
        return _of(complete(node.items), list)
    fields = {name: complete(field) for name, field in node.fields.items()}
    demanding = {name: (shape, False) for name, shape in fields.items() if shape is not Any}
    demanded = {name: (_present(node.fields.get(name)), True) for name in node.required}
    if not demanding and not demanded:
        return Any
    return _struct((name, *demand) for name, demand in (demanding | demanded).items())


def _present(node: Schema | None) -> Shape:
    if node is None or complete(node) is Any:
        return _PRESENT
    return _LITERAL[node.enum] if node.enum else complete(node)


def _of(shape: Shape, container: type, *key: type) -> Shape:
    return Any if shape is Any else GenericAlias(container, (*key, shape))


def _struct(fields: Iterable[tuple[str, Shape, bool]], *, closed: bool = False) -> Shape:
    """Return the shape of an object from (name, shape, whether it is required). A closed one rejects other fields."""
    members = [
        (f"f{index}", shape, msgspec.field(name=name) if required else msgspec.field(name=name, default=None))
        for index, (name, shape, required) in enumerate(fields)
    ]
    return msgspec.defstruct("Shape", members, kw_only=True, forbid_unknown_fields=closed, gc=False)
