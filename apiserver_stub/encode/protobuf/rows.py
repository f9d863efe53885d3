"""Rows of the store in protobuf: written when first asked for, then kept with the row for every list and watch."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple

import orjson

from apiserver_stub.encode.json import Tree
from apiserver_stub.encode.protobuf import collection, writer
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.store.row import Row
from controller_manager.api.platform import GROUP_DOMAIN

_BREATH = 250  # rows written before others may run
_PARTIAL = f"meta.{GROUP_DOMAIN}/v1", "PartialObjectMetadata"


class Shown(NamedTuple):
    """What rows are shown as: a type, the name their bytes are kept under, and what makes them (see `raw`)."""

    api_version: str
    kind: str
    name: str
    make: Callable[[bytes], bytes]

    def of(self, row: Row) -> bytes:
        """The `raw` of a row."""
        return row.form(self.name, self.make)


def whole(kind: Kind) -> Shown:
    """Objects of a kind, in its version."""
    write, convert = writer(kind.api_version, kind.kind), kind.from_storage

    def make(data: bytes) -> bytes:
        tree: Tree = orjson.loads(data)
        return write(convert(tree) if convert else tree)

    return Shown(kind.api_version, kind.kind, f"protobuf {kind.api_version}", make)


def partial() -> Shown:
    """Only their metadata."""
    write = writer(*_PARTIAL)
    return Shown(*_PARTIAL, "protobuf metadata", lambda data: write(orjson.loads(data)))


def listed(shown: Shown, metadata: Tree, rows: Sequence[Row]) -> bytes | AsyncIterator[bytes]:
    """A list of rows as a body, in one piece when they are few, otherwise in chunks."""
    if len(rows) <= _BREATH:
        return b"".join(_pieces(shown, metadata, list(map(shown.of, rows))))
    return _chunks(shown, metadata, rows)


async def _chunks(shown: Shown, metadata: Tree, rows: Sequence[Row]) -> AsyncIterator[bytes]:
    """The size of everything comes first, so all rows are written before anything is sent."""
    raws: list[bytes] = []
    for start in range(0, len(rows), _BREATH):
        raws.extend(map(shown.of, rows[start : start + _BREATH]))
        await asyncio.sleep(0)
    for piece in _pieces(shown, metadata, raws):
        yield piece


def _pieces(shown: Shown, metadata: Tree, raws: Sequence[bytes]) -> Iterator[bytes]:
    return collection(shown.api_version, f"{shown.kind}List", metadata, raws)
