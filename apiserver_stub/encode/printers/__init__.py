"""The printers of the built-in kinds: which columns a kind has and how an object fills them, one file per subject."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.encode.printers import cluster, core, network, pods, storage, workloads
from apiserver_stub.encode.printers.cells import Column, Printer, Tree, name, part

__all__ = ["Printer", "columns", "printer"]


def printer(group: str, kind: str) -> Printer:
    """The printer of a kind; those that have none of their own show name and time of creation (the API concepts)."""
    return _PRINTERS.get((group, kind), _DEFAULT)


def columns(found: Printer) -> tuple[Column, ...]:
    """The columns of a printer."""
    return _columns()[found.columns] if isinstance(found.columns, str) else found.columns


def _created(tree: Tree) -> list[Any]:
    return [name(tree), part(tree, "metadata").get("creationTimestamp")]


@cache
def _columns() -> Mapping[str, tuple[Column, ...]]:
    data = resources.files("apiserver_stub.kinds.data").joinpath("columns.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, tuple[Column, ...]])


_DEFAULT = Printer((("Name", "string", "name", 0), ("Created At", "date", "", 0)), _created)
_PRINTERS: Mapping[tuple[str, str], Printer] = MappingProxyType(
    {
        **cluster.PRINTERS,
        **core.PRINTERS,
        **network.PRINTERS,
        **pods.PRINTERS,
        **storage.PRINTERS,
        **workloads.PRINTERS,
    }
)
