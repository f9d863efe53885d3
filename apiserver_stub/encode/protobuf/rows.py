"""Rows of the store in protobuf: written when first asked for, then kept with the row for every list and watch."""

from collections.abc import Callable
from typing import NamedTuple

import orjson

from apiserver_stub.encode.json import Tree
from apiserver_stub.encode.protobuf import object_writer
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.store.row import Row
from controller_manager.api.platform import GROUP_DOMAIN

_PARTIAL = f"meta.{GROUP_DOMAIN}/v1", "PartialObjectMetadata"


class Shown(NamedTuple):
    """What rows are shown as: a type, the name their bytes are kept under, and what makes them (see `raw`)."""

    api_version: str
    kind: str
    name: str
    make: Callable[[bytes], bytes]

    def of(self, row: Row) -> bytes:
        """The `raw` of a row."""
        found = row.kept(self.name)
        if found is None:
            found = self.make(row.data)
            row.keep(self.name, found)
        return found


def whole(kind: ResourceInfo) -> Shown:
    """Objects of a kind, in its version."""
    write, convert = object_writer(kind.api_version, kind.kind), kind.from_storage

    def make(data: bytes) -> bytes:
        tree: Tree = orjson.loads(data)
        return write(convert(tree) if convert else tree)

    return Shown(kind.api_version, kind.kind, f"protobuf {kind.api_version}", make)


def partial() -> Shown:
    """Only their metadata."""
    write = object_writer(*_PARTIAL)
    return Shown(*_PARTIAL, "protobuf metadata", lambda data: write(orjson.loads(data)))
