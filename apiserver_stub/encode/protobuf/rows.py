"""Rows of the store in protobuf: encoded when first asked for, then kept for every list, get and watch."""

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from apiserver_stub.encode.json import Tree
from apiserver_stub.encode.protobuf import envelope, frame, object_writer
from apiserver_stub.encode.representations import CachedRows
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.row import Row
from controller_manager.api.platform import GROUP_DOMAIN

_PARTIAL = f"meta.{GROUP_DOMAIN}/v1", "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """Encodes rows as messages of one type (see `raw`), which are kept under that name."""

    api_version: str
    kind: str
    name: str
    encode: Callable[[bytes], bytes]

    def raw(self, row: Row, cached: CachedRows) -> bytes:
        """Return the message of a row."""
        found = cached.get(row)
        if found is None:
            found = self.encode(row.data)
            cached.add(row, found)
        return found

    def whole(self, row: Row, cached: CachedRows) -> bytes:
        """Return a row as an answer."""
        return envelope(self.api_version, self.kind, self.raw(row, cached))

    def event(self, type_: str, row: Row, cached: CachedRows) -> bytes:
        """Return an event of a watch that tells of a row."""
        return frame(type_, self.whole(row, cached))


def row_encoder(kind: ResourceInfo, partial: bool) -> RowEncoder:
    """Return the encoder of objects of a kind in its version, or only of their metadata."""
    if partial:
        write = object_writer(*_PARTIAL)
        return RowEncoder(*_PARTIAL, "protobuf metadata", lambda data: write(orjson.loads(data)))
    write, convert = object_writer(kind.api_version, kind.kind), kind.from_storage

    def encode(data: bytes) -> bytes:
        tree: Tree = orjson.loads(data)
        return write(convert(tree) if convert else tree)

    return RowEncoder(kind.api_version, kind.kind, f"protobuf {kind.api_version}", encode)
