"""Objects as a `Table` (meta.k8s.io): the columns people see, filled in by the server."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

import orjson

from apiserver_stub.encode.json import encode
from apiserver_stub.encode.printers import columns, printer
from apiserver_stub.encode.printers.cells import Tree, part
from apiserver_stub.watch.lines import INITIAL_EVENTS_END
from controller_manager.api.errors import BadRequest
from controller_manager.api.platform import GROUP_DOMAIN

META_VERSION = f"meta.{GROUP_DOMAIN}/v1"

_Carried = Callable[[Tree, str], Tree | None]


class Named(Protocol):
    """What is told of the objects: the group and kind of their bodies (a kind's or a subresource's)."""

    @property
    def group(self) -> str:
        """The group of the objects' bodies."""

    @property
    def kind(self) -> str:
        """Their kind."""


class Tabulator:
    """Makes the parts of tables of one kind at one time; `include_object` says what a row carries of its object."""

    def __init__(
        self, kind: Named, now: datetime, include_object: str = "Metadata", version: str = META_VERSION
    ) -> None:
        self._printer = printer(kind.group, kind.kind)
        self._now = now
        self._version = version
        self._carried = _CARRIED[include_object]

    def head(self, metadata: Tree, headed: bool = True) -> Tree:
        """A table but for its rows; one that is not `headed` has no columns, where they are known already."""
        described = [
            {"name": name, "type": type_, "format": format_, "description": "", "priority": priority}
            for name, type_, format_, priority in columns(self._printer)
        ]
        return {
            "kind": "Table",
            "apiVersion": self._version,
            "metadata": metadata,
            "columnDefinitions": described if headed else None,
        }

    def row(self, data: bytes) -> bytes:
        """The row of an object, from its JSON to that of the row."""
        # No more of the tree than is carried stays in memory: thousands of whole trees cost ten times their decoding.
        return encode(self._row(orjson.loads(data)))

    def one(self, data: bytes, headed: bool = True) -> bytes:
        """A table of one object, with the version of that."""
        tree = orjson.loads(data)
        metadata = {"resourceVersion": part(tree, "metadata").get("resourceVersion", "")}
        return encode({**self.head(metadata, headed), "rows": [self._row(tree)]})

    def _row(self, tree: Tree) -> Tree:
        return {"cells": self._printer.cells(tree, self._now), "object": self._carried(tree, self._version)}


def check_include(include_object: str) -> None:
    """Raises `BadRequest` for anything that rows cannot carry."""
    if include_object not in _CARRIED:
        known = "must be 'Metadata', 'Object', 'None', or empty"
        raise BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": {known}'
        )


def _metadata(tree: Tree, version: str) -> Tree:
    return {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": part(tree, "metadata")}


def _nothing(tree: Tree, version: str) -> Tree | None:
    """The mark that ends an initial state is told even to who wants no metadata."""
    ends = INITIAL_EVENTS_END in (part(tree, "metadata").get("annotations") or ())
    return _metadata(tree, version) if ends else None


_CARRIED: Mapping[str, _Carried] = {
    "": _metadata,
    "Metadata": _metadata,
    "None": _nothing,
    "Object": lambda tree, _: tree,
}
