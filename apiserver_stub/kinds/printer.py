"""How objects of a kind become rows of a `Table`: data of a kind, which `encode/table.py` writes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apiserver_stub.kinds.schema import Tree

Column = tuple[str, str, str, int]
"""Name, type, format and priority; columns of priority 1 are shown by `-o wide`."""


@dataclass(frozen=True, slots=True, eq=False)
class Printer:
    """The columns of a kind, and the cells of one object, as many as there are columns. What `conditions` returns is
    told of the row as a whole. Rows come in the order of the number at the path `order`, if it has one.
    """

    columns: tuple[Column, ...]
    cells: Callable[[Tree], list[Any]]
    conditions: Callable[[Tree], list[Tree]] | None = None
    order: str = ""


def _created(tree: Tree) -> list[Any]:
    metadata = tree.get("metadata") or {}
    return [str(metadata.get("name", "")), metadata.get("creationTimestamp")]


DEFAULT_PRINTER = Printer((("Name", "string", "name", 0), ("Created At", "date", "", 0)), _created)
"""The printer of kinds without columns of their own (API concepts, Receiving resources as Tables)."""
