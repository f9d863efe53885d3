"""Set the defaults of a structural schema, with functions generated from it that skip values without defaults."""

from collections.abc import Callable
from functools import partial
from typing import Any

from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.values.trees import deep_copy

# Sets the defaults below a value, in place. Returns whether any were missing.
Fill = Callable[[Any], bool]


def fill_defaults(value: Any, schema: StructuralSchema) -> bool:
    """Set all defaults below a value, in place. They replace absent fields, and nulls if the field is not nullable.
    Return whether any were missing.
    """
    return filler(schema)(value)


def filler(schema: StructuralSchema) -> Fill:
    """Return the function that sets the defaults below a value. It is `leave` if there are none."""
    return schema.derived(_filler)


def leave(_value: Any) -> bool:
    """Do nothing (for a schema without defaults)."""
    return False


def _filler(schema: StructuralSchema) -> Fill:
    given = tuple(
        (name, child.default_value, child.nullable)
        for name, child in schema.properties.items()
        if child.default_value is not None
    )
    inner = {name: filler(child) for name, child in schema.properties.items() if filler(child) is not leave}
    if given or inner:
        return partial(_fill_fields, given, inner)
    elements = schema.additional or schema.items
    if elements is None:
        return leave
    below = filler(elements)
    if below is leave and elements.default_value is None:
        return leave
    return partial(_fill_elements, elements.default_value, elements.nullable, below)


def _fill_fields(given: tuple[tuple[str, Any, bool], ...], inner: dict[str, Fill], value: Any) -> bool:
    if type(value) is not dict:
        return False
    filled = False
    for name, default, nullable in given:
        if value.get(name) is None and not (nullable and name in value):
            value[name] = deep_copy(default)
            filled = True
    for name, fill in inner.items():
        if name in value:
            filled |= fill(value[name])
    return filled


def _fill_elements(default: Any, nullable: bool, below: Fill, value: Any) -> bool:
    places: Any = value if type(value) is dict else range(len(value)) if type(value) is list else ()
    filled = False
    for place in places:
        if value[place] is None and default is not None and not nullable:
            value[place] = deep_copy(default)
            filled = True
        filled |= below(value[place])
    return filled
