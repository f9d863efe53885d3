"""Objects as a `Table` (meta.k8s.io/v1): the columns people see, filled in by the server."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import orjson

from apiserver_stub.encode.printers import Printer, columns, printer
from apiserver_stub.encode.printers.cells import Tree, part
from controller_manager.api.errors import BadRequest
from controller_manager.api.platform import GROUP_DOMAIN

Carried = Callable[[Tree], Tree | None]

_META_VERSION = f"meta.{GROUP_DOMAIN}/v1"


class Named(Protocol):
    """What is told of the objects: the group and kind of their bodies (a kind's or a subresource's)."""

    @property
    def group(self) -> str:
        """The group of the objects' bodies."""

    @property
    def kind(self) -> str:
        """Their kind."""


def table(
    kind: Named,
    objects: Sequence[bytes],
    now: datetime,
    include_object: str = "Metadata",
    metadata: Tree | None = None,
) -> Tree:
    """The table of `objects`, each the JSON of an object of `kind`.

    `include_object` says what a row carries: `Metadata`, `Object` or `None`; anything else is a `BadRequest`.
    `metadata` is that of the list; without it the table has the version of its only object, as get and watch want.
    """
    carried = _CARRIED.get(include_object)
    if carried is None:
        raise BadRequest(f"includeObject is one of {', '.join(sorted(_CARRIED))}, not {include_object!r}")
    found = printer(kind.group, kind.kind)
    return {
        "kind": "Table",
        "apiVersion": _META_VERSION,
        "metadata": _version(objects) if metadata is None else metadata,
        "columnDefinitions": [
            {"name": name, "type": type_, "format": format_, "description": "", "priority": priority}
            for name, type_, format_, priority in columns(found)
        ],
        "rows": [_row(found, orjson.loads(data), now, carried) for data in objects],
    }


def _row(found: Printer, tree: Tree, now: datetime, carried: Carried) -> Tree:
    # No more of the tree than is carried stays in memory: thousands of whole trees cost ten times their decoding.
    return {"cells": found.cells(tree, now), "object": carried(tree)}


def _version(objects: Sequence[bytes]) -> Tree:
    if len(objects) != 1:
        return {}
    return {"resourceVersion": part(orjson.loads(objects[0]), "metadata").get("resourceVersion", "")}


def _metadata(tree: Tree) -> Tree:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_VERSION, "metadata": part(tree, "metadata")}


_CARRIED: Mapping[str, Carried] = {
    "Metadata": _metadata,
    "None": lambda tree: None,
    "Object": lambda tree: tree,
}
