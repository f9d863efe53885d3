"""Types of CEL: what the checker reasons with, with the bounds that static cost estimates need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from enum import Enum
from typing import Any

import msgspec


class Kind(Enum):
    """The general category of a type."""

    DYN = "dyn"
    ANY = "any"
    BOOL = "bool"
    BYTES = "bytes"
    DOUBLE = "double"
    DURATION = "duration"
    ERROR = "!error!"
    INT = "int"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    OPAQUE = "opaque"
    STRING = "string"
    STRUCT = "struct"
    TIMESTAMP = "timestamp"
    TYPE = "type"
    TYPE_PARAM = "type_param"
    UINT = "uint"


class Type:
    """A type with its parameters; two types are equal if kind, name and parameters are.

    `max_elements` bounds characters, bytes, items or entries of values, for estimates only; None is unbounded.
    `reader` makes values of the type out of what stands for them in JSON; None where that is the value itself.
    A type is also the value of `type(x)`, and prints as the name it has at run time.
    """

    __slots__ = ("_hash", "kind", "max_elements", "name", "parameters", "reader")

    def __init__(
        self,
        kind: Kind,
        name: str,
        parameters: tuple[Type, ...] = (),
        max_elements: int | None = None,
        reader: Callable[[Any], Any] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.max_elements = max_elements
        self.reader = reader
        self._hash = hash((kind, name, parameters))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self.kind is other.kind
            and self.name == other.name
            and self.parameters == other.parameters
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        """Return the type as messages of the checker show it."""
        if self.kind in _SHOWN_AS_KIND:
            return self.kind.value
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    __repr__ = __str__

    def bounded(self, max_elements: int, reader: Callable[[Any], Any] | None = None) -> Type:
        """Return the type of values that have at most `max_elements` elements, and are read from JSON so."""
        return Type(self.kind, self.name, self.parameters, max_elements, reader)


_SHOWN_AS_KIND = frozenset({Kind.ANY, Kind.DURATION, Kind.ERROR, Kind.NULL, Kind.TIMESTAMP})


class ListType(Type):
    """A list of elements of one type."""

    __slots__ = ()

    def __init__(
        self, element: Type, max_elements: int | None = None, reader: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__(Kind.LIST, "list", (element,), max_elements, reader)


class MapType(Type):
    """A map from keys of one type to values of one type."""

    __slots__ = ()

    def __init__(
        self,
        key: Type,
        value: Type,
        max_elements: int | None = None,
        reader: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(Kind.MAP, "map", (key, value), max_elements, reader)


class Field(msgspec.Struct, frozen=True):
    """A field of an object: its type, and the name of the property in JSON, which may differ from that in CEL."""

    type: Type
    property: str


class ObjectType(Type):
    """An object with declared fields; the name says which type it is, and no two of one environment share one.

    `fields` are by their names in CEL. An object without declared fields has none that an expression may select.
    Fields are read from JSON when they are selected; `tree_reader` reads a whole object, where that differs.
    `make` makes a value of the fields that an expression gives; without it, they are the value.
    """

    __slots__ = ("fields", "make", "tree_reader")

    def __init__(
        self,
        name: str,
        fields: Mapping[str, Type | Field],
        max_elements: int | None = None,
        make: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        super().__init__(Kind.STRUCT, name, (), max_elements)
        self.make = make
        self.fields: dict[str, Field] = {
            key: value if isinstance(value, Field) else Field(value, key) for key, value in fields.items()
        }
        readers = {one.property: reader for one in self.fields.values() if (reader := _field_reader(one.type))}
        self.tree_reader = _object_reader(readers) if readers else None

    def field(self, name: str) -> Field | None:
        """Return the declaration of a field, if there is one."""
        return self.fields.get(name)


def object_reader(one: Type) -> Callable[[Any], Any] | None:
    """Return what reads the objects within a value of a type, which else are trees; None where that is the same."""
    if isinstance(one, ObjectType):
        return one.tree_reader
    below = object_reader(one.parameters[-1]) if one.kind in (Kind.LIST, Kind.MAP) else None
    return None if below is None else _container_reader(below)


def _field_reader(one: Type) -> Callable[[Any], Any] | None:
    """Return what reads all of a field from JSON; None where that is the tree itself."""
    own, within = one.reader, object_reader(one)
    if own is None or within is None:
        return own or within
    return lambda tree: within(own(tree))


def _object_reader(readers: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(tree: Any) -> Any:
        if type(tree) is not dict:
            return tree
        found = {key: readers[key](value) for key, value in tree.items() if key in readers and value is not None}
        return {**tree, **found} if found else tree

    return read


def _container_reader(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, list):
            made = copy(value)
            made[:] = [reader(item) for item in value]
            return made
        return {key: reader(item) for key, item in value.items()} if type(value) is dict else value

    return read


class OpaqueType(Type):
    """A type of a library, known by its name, possibly with parameters."""

    __slots__ = ()

    def __init__(self, name: str, *parameters: Type) -> None:
        super().__init__(Kind.OPAQUE, name, parameters)


class OptionalType(OpaqueType):
    """A value that may be absent."""

    __slots__ = ()

    def __init__(self, value: Type) -> None:
        super().__init__("optional_type", value)


class WrapperType(Type):
    """A scalar that may be null, and is the scalar's type otherwise."""

    __slots__ = ()

    def __init__(self, of: Type) -> None:
        super().__init__(of.kind, of.name)

    def __str__(self) -> str:
        return f"wrapper({self.name})"


class TypeParameter(Type):
    """A type variable of the signature of a function: its overload holds for any type in its place."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(Kind.TYPE_PARAM, name)


class TypeType(Type):
    """The type of values that are types themselves."""

    __slots__ = ()

    def __init__(self, *of: Type) -> None:
        super().__init__(Kind.TYPE, "type", of)


DYN = Type(Kind.DYN, "dyn")
ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
ERROR = Type(Kind.ERROR, "error")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
UINT = Type(Kind.UINT, "uint")

LIST = ListType(DYN)
MAP = MapType(DYN, DYN)
OPTIONAL = OptionalType(DYN)
TYPE = TypeType()

_SCALARS = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})


def runtime_name(of: Type) -> str:
    """Return a type by the names that types have at run time."""
    return f"{of.name}({', '.join(map(runtime_name, of.parameters))})" if of.parameters else of.name


def is_dyn(checked: Type) -> bool:
    """Return true for types whose values are known at run time only."""
    return checked.kind is Kind.DYN or checked.kind is Kind.ANY


def is_optional(checked: Type) -> bool:
    """Return true for optional values of any type."""
    return checked.kind is Kind.OPAQUE and checked.name == "optional_type"


def is_scalar(checked: Type) -> bool:
    """Return true for types whose values have the size 1 whatever they are."""
    return checked.kind in _SCALARS or (is_optional(checked) and is_scalar(checked.parameters[0]))
