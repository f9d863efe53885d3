"""The columns of custom resources: the name, and the values of JSONPaths."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.common.error_list import go_number
from apiserver_stub.kinds.printers.cells import CREATED, NAME, UNKNOWN, Since, name
from apiserver_stub.kinds.resource_info import Column, Printer
from apiserver_stub.kinds.values.jsonpath import MOST_VISITS, JSONPath, Visits
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.tree import Tree

# Returns the cell of an object.
_Cell = Callable[[Tree, Visits], Any]

_DEFAULT: tuple[Mapping[str, Any], ...] = (
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": CREATED},
)
_MOST_COST = 100
_CHARACTERS = 16  # characters of a cell that cost as much as one visited value
_COST_OF_ALL = 20  # the cost of a path that visits all values once
# Metadata fields that are available without decoding all metadata.
_KNOWN = re.compile(r"(?!\.metadata|.*\.\.).*|\.metadata\.(name|creationTimestamp|deletionTimestamp|labels\b.*)")


def printer_of(columns: Sequence[Mapping[str, Any]]) -> Printer:
    """Return the printer for `additionalPrinterColumns`. Without columns it shows the age."""
    columns = columns or _DEFAULT
    try:
        cells: list[_Cell] = [
            partial(_CELLS.get(column["type"], _nothing), JSONPath(column["jsonPath"])) for column in columns
        ]
    except ValueError:  # with an invalid path, only the name is shown
        return Printer((NAME,), lambda tree: [name(tree)])
    paths = [column["jsonPath"] for column in columns]
    whole = not all(map(_KNOWN.fullmatch, paths))
    costly = sum(map(_cost, paths)) > _MOST_COST
    return Printer((NAME, *map(_column, columns)), partial(_row, cells), whole=whole, costly=costly)


def _cost(path: str) -> int:
    """Return the cost of a path in a small object. It is 1 for a path that visits few values."""
    if "," in path or path.count("..") + ("[?" in path) > 1:  # visits values more than once
        return _MOST_COST + 1
    return _COST_OF_ALL if ".." in path else 1


def _column(column: Mapping[str, Any]) -> Column:
    description = column.get("description") or f"Found in custom resources at the JSONPath {column['jsonPath']}"
    return column["name"], column["type"], column.get("format") or "", column.get("priority") or 0, description


def _row(cells: list[_Cell], tree: Tree) -> list[Any]:
    visits = Visits(MOST_VISITS)
    return [name(tree), *(cell(tree, visits) for cell in cells)]


def _found(path: JSONPath, tree: Tree, visits: Visits) -> list[Any]:
    try:
        return path.find(tree, visits)
    except LookupError:
        return []


def _string(path: JSONPath, tree: Tree, visits: Visits) -> str | None:
    found = _found(path, tree, visits)
    if not found:
        return None
    text = _text(found[0])
    visits.spend(len(text) // _CHARACTERS)
    return text


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


def _integer(path: JSONPath, tree: Tree, visits: Visits) -> int | None:
    found = _found(path, tree, visits)
    return int(found[0]) if found and type(found[0]) in (int, float) else None


def _number(path: JSONPath, tree: Tree, visits: Visits) -> float | None:
    found = _found(path, tree, visits)
    return found[0] if found and type(found[0]) in (int, float) else None


def _boolean(path: JSONPath, tree: Tree, visits: Visits) -> bool | None:
    found = _found(path, tree, visits)
    return found[0] if found and type(found[0]) is bool else None


def _date(path: JSONPath, tree: Tree, visits: Visits) -> Since | str | None:
    found = _found(path, tree, visits)
    if not found or type(found[0]) is not str:
        return None
    if found[0] in ("", "null"):
        return UNKNOWN
    try:
        parse_time(found[0])
    except (ValueError, OverflowError):
        return "<invalid>"
    return Since(found[0])


def _nothing(_path: JSONPath, _tree: Tree, _visits: Visits) -> None:
    return None


_CELLS: Mapping[str, Callable[[JSONPath, Tree, Visits], Any]] = MappingProxyType({
    "string": _string, "integer": _integer, "number": _number, "boolean": _boolean, "date": _date,
})  # fmt: skip
