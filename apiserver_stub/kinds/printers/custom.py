"""The columns of custom resources: the name, and what JSONPaths find in an object."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.kinds.error_list import go_number
from apiserver_stub.kinds.jsonpath import JSONPath
from apiserver_stub.kinds.printers.cells import CREATED, NAME, UNKNOWN, Since, name
from apiserver_stub.kinds.resource_info import Column, Printer
from apiserver_stub.kinds.schema import Tree
from controller_manager.api.timestamps import parse_time

# Returns the cell of an object.
_Cell = Callable[[Tree], Any]

_DEFAULT: tuple[Mapping[str, Any], ...] = (
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": CREATED},
)
# What of the metadata is known without reading them all.
_KNOWN = re.compile(r"(?!\.metadata|.*\.\.).*|\.metadata\.(name|creationTimestamp|deletionTimestamp|labels\b.*)")


def printer_of(columns: Sequence[Mapping[str, Any]]) -> Printer:
    """Return the printer of `additionalPrinterColumns`; where there are none, it shows the age."""
    columns = columns or _DEFAULT
    try:
        cells: list[_Cell] = [
            partial(_CELLS.get(column["type"], _nothing), JSONPath(column["jsonPath"])) for column in columns
        ]
    except ValueError:  # one path that is none leaves the name alone
        return Printer((NAME,), lambda tree: [name(tree)])
    whole = not all(_KNOWN.fullmatch(column["jsonPath"]) for column in columns)
    return Printer((NAME, *map(_column, columns)), partial(_row, cells), whole=whole)


def _column(column: Mapping[str, Any]) -> Column:
    told = column.get("description") or f"Found in custom resources at the JSONPath {column['jsonPath']}"
    return column["name"], column["type"], column.get("format") or "", column.get("priority") or 0, told


def _row(cells: list[_Cell], tree: Tree) -> list[Any]:
    return [name(tree), *(cell(tree) for cell in cells)]


def _found(path: JSONPath, tree: Tree) -> list[Any]:
    try:
        return path.find(tree)
    except LookupError:
        return []


def _string(path: JSONPath, tree: Tree) -> str | None:
    found = _found(path, tree)
    return _text(found[0]) if found else None


def _text(value: Any) -> str:
    match value:
        case None:
            return "<no value>"
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return go_number(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _integer(path: JSONPath, tree: Tree) -> int | None:
    found = _found(path, tree)
    return int(found[0]) if found and type(found[0]) in (int, float) else None


def _number(path: JSONPath, tree: Tree) -> float | None:
    found = _found(path, tree)
    return found[0] if found and type(found[0]) in (int, float) else None


def _boolean(path: JSONPath, tree: Tree) -> bool | None:
    found = _found(path, tree)
    return found[0] if found and type(found[0]) is bool else None


def _date(path: JSONPath, tree: Tree) -> Since | str | None:
    found = _found(path, tree)
    if not found or type(found[0]) is not str:
        return None
    if found[0] in ("", "null"):
        return UNKNOWN
    try:
        parse_time(found[0])
    except (ValueError, OverflowError):
        return "<invalid>"
    return Since(found[0])


def _nothing(_path: JSONPath, _tree: Tree) -> None:
    return None


_CELLS: Mapping[str, Callable[[JSONPath, Tree], Any]] = MappingProxyType({
    "string": _string, "integer": _integer, "number": _number, "boolean": _boolean, "date": _date,
})  # fmt: skip
