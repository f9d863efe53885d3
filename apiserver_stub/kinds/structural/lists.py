"""Duplicate elements in lists of type set and map (KEP-555)."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.structural.schema import StructuralSchema

# Reports the duplicates in a value.
Report = Callable[[Any, FieldPath, ErrorList], None]


def report_duplicates(value: Any, schema: StructuralSchema, errors: ErrorList, at: FieldPath = None) -> None:
    """Report each element that occurs more than once in a set or map list, at its second position."""
    reporter(schema)(value, at, errors)


def reporter(schema: StructuralSchema) -> Report:
    """Return the function that reports duplicates in values of a schema. It is `nothing` without such lists."""
    return schema.derived(_reporter)


def nothing(_value: Any, _at: FieldPath, _errors: ErrorList) -> None:
    """Report nothing (for a schema without such lists)."""


def _reporter(schema: StructuralSchema) -> Report:
    named = {name: reporter(child) for name, child in schema.properties.items() if reporter(child) is not nothing}
    if named:
        return lambda value, at, errors: _of_fields(named, value, at, errors)
    if schema.additional is not None and (inner := reporter(schema.additional)) is not nothing:
        return lambda value, at, errors: _of_entries(inner, value, at, errors)
    items = nothing if schema.items is None else reporter(schema.items)
    if schema.list_type in ("set", "map"):
        return lambda value, at, errors: _of_list(schema, items, value, at, errors)
    return nothing if items is nothing else lambda value, at, errors: _of_elements(items, value, at, errors)


def _of_fields(named: dict[str, Report], value: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(value) is dict:
        for name, report in named.items():
            if name in value:
                report(value[name], (at, name), errors)


def _of_entries(report: Report, value: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(value) is dict:
        for name, inner in value.items():
            report(inner, (at, key(name)), errors)


def _of_elements(report: Report, value: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(value) is list:
        for index, item in enumerate(value):
            report(item, (at, index), errors)


def _of_list(schema: StructuralSchema, items: Report, value: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(value) is not list:
        return
    if schema.list_type == "map":
        _of_map(schema, value, at, errors)
    else:
        for index in _repeated(value):
            errors.duplicate((at, index), value[index])
    if items is not nothing:
        _of_elements(items, value, at, errors)


def _of_map(schema: StructuralSchema, value: list[Any], at: FieldPath, errors: ErrorList) -> None:
    for index, item in enumerate(value):
        if item is not None and type(item) is not dict:
            errors.invalid((at, index), item, "must be an object for an array of list-type map")
            return
    if _differ(value, schema.list_map_keys):
        return
    keys = [{name: item[name] for name in schema.list_map_keys if name in item} if item else {} for item in value]
    for index in _repeated(keys):
        errors.duplicate((at, index), keys[index])


def _differ(items: list[Any], names: Sequence[str]) -> bool:
    """Return whether all objects are sure to differ in the values of these names. If False, a full check is needed."""
    try:
        return len({tuple(map(item.get, names)) for item in items}) == len(items)
    except (AttributeError, TypeError):  # null, or a key that is not a scalar
        return False


def _repeated(values: list[Any]) -> list[int]:
    """Return the indexes at which values occur for the second time."""
    seen: dict[bytes, int] = {}
    found = []
    for index, value in enumerate(values):
        text = msgspec.json.encode(value, order="sorted")
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            found.append(index)
    return found
