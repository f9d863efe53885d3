"""Objects as a `Table` (meta.k8s.io) with the columns for people.

A row is encoded once per state of its object, with a gap for each age, and cached. Each request fills the gaps with the
current ages.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import msgspec
import orjson

from apiserver_stub.encode.json import encode
from apiserver_stub.encode.representations import CachedRows
from apiserver_stub.kinds.printers.cells import Since, between
from apiserver_stub.kinds.resource_info import Printer
from apiserver_stub.watch_cache.event_encoder import INITIAL_EVENTS_END
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree

META_VERSION = f"meta.{GROUP_DOMAIN}/v1"

_END = INITIAL_EVENTS_END.encode()
_GAP = b"\0"  # around a timestamp; valid JSON never contains this byte
_METADATA = b'"metadata":'

_Carry = Callable[[bytes, bytes, bytes], tuple[bytes, ...]]


class Tabulator:
    """Encodes tables of one kind at a fixed time. `include_object` selects what a row has of its object."""

    def __init__(
        self, printer: Printer, now: datetime, include_object: str = "Metadata", version: str = META_VERSION
    ) -> None:
        self._printer = printer
        self._version = version
        self._carry = _CARRIED[include_object]
        self._partial = b'{"kind":"PartialObjectMetadata","apiVersion":"%b","metadata":' % version.encode()
        self._ages = _Ages(now)

    def head(self, metadata: Tree, headed: bool = True) -> Tree:
        """Return a table without rows; with column definitions if it is `headed`."""
        described = [
            {"name": name, "type": type_, "format": format_, "description": "".join(description), "priority": priority}
            for name, type_, format_, priority, *description in self._printer.columns
        ]
        return {
            "kind": "Table",
            "apiVersion": self._version,
            "metadata": metadata,
            "columnDefinitions": described if headed else None,
        }

    def in_order(self, rows: Sequence[Row], objects: Sequence[bytes]) -> tuple[Sequence[Row], Sequence[bytes]]:
        """Return rows and their JSON in the order of the kind's table."""
        order = self._printer.order
        if not order:
            return rows, objects
        pairs = sorted(zip(rows, objects, strict=True), key=lambda pair: int(pair[0].field(order) or 0))
        return [row for row, _ in pairs], [data for _, data in pairs]

    def row(self, data: bytes) -> bytes:
        """Encode the row of an object from its JSON."""
        return self._filled(_write(self._printer, data), data)

    def row_of(self, cached: CachedRows, row: Row, data: bytes) -> bytes:
        """Encode the row of a stored object; `data` is its JSON in the requested version."""
        written = cached.get(row)
        if written is None:
            written = _write(self._printer, data)
            cached.add(row, written)
        return self._filled(written, data)

    def one(self, data: bytes, headed: bool = True) -> bytes:
        """Encode a table of one object, with its resourceVersion."""
        return self._framed(self.row(data), _VERSIONED.decode(data).metadata.resource_version, headed)

    def one_of(self, cached: CachedRows, row: Row, data: bytes, headed: bool = True) -> bytes:
        """Encode a table of one stored object; `data` is its JSON in the requested version."""
        return self._framed(self.row_of(cached, row, data), str(row.revision), headed)

    def _filled(self, written: bytes, data: bytes) -> bytes:
        pieces, metadata = _fill(written, data, self._ages)
        return b"".join((*pieces, *self._carry(self._partial, metadata, data), b"}"))

    def _framed(self, row: bytes, revision: str, headed: bool) -> bytes:
        return b'%b,"rows":[%b]}' % (
            encode(self.head({"resourceVersion": revision} if revision else {}, headed))[:-1],
            row,
        )


def check_include(include_object: str) -> None:
    """Raises `BadRequest` for an unknown value of `includeObject`."""
    if include_object not in _CARRIED:
        known = "must be 'Metadata', 'Object', 'None', or empty"
        raise BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": {known}'
        )


class _Version(msgspec.Struct, rename="camel", gc=False, frozen=True):
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Version = _Version()


_VERSIONED = msgspec.json.Decoder(_Versioned)


def _metadata(partial: bytes, metadata: bytes, _: bytes) -> tuple[bytes, ...]:
    return partial, metadata, b"}"


def _nothing(partial: bytes, metadata: bytes, _: bytes) -> tuple[bytes, ...]:
    """Return null. Metadata that mark the end of the initial state are sent in any case."""
    return (partial, metadata, b"}") if _END in metadata else (b"null",)


def _whole(partial: bytes, metadata: bytes, data: bytes) -> tuple[bytes, ...]:
    return (data,)


_CARRIED: Mapping[str, _Carry] = {"": _metadata, "Metadata": _metadata, "None": _nothing, "Object": _whole}


class _Ages(dict[bytes, bytes]):
    """Ages by timestamp, relative to a fixed time."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, moment: bytes) -> bytes:
        age = self[moment] = between(moment.decode(), self._now).encode()
        return age


class _Described(msgspec.Struct, gc=False):
    metadata: msgspec.Raw = msgspec.Raw()


class _Seen(TypedDict, total=False):
    """The fields of metadata that printers read. `managedFields`, the largest part, is not decoded, since that is
    slow.
    """

    name: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


_DESCRIBED = msgspec.json.Decoder(_Described)
_SEEN = msgspec.json.Decoder(_Seen)


def metadata_of(data: bytes) -> bytes:
    """Return the metadata of an object as JSON."""
    return bytes(_DESCRIBED.decode(data).metadata) or b"{}"


def _write(printer: Printer, data: bytes) -> bytes:
    """Encode the row of an object (JSON) up to its part of the object; the position of the metadata is appended."""
    start, end = _place(data)
    if printer.whole or not end:
        tree: Tree = orjson.loads(data)
    else:
        rest = orjson.loads(b"%b{}%b" % (data[:start], data[end:]))
        tree = {**rest, "metadata": _SEEN.decode(data[start:end])}
    row: Tree = {"cells": [_gap(cell) if cell.__class__ is Since else cell for cell in printer.cells(tree)]}
    if printer.conditions and (conditions := printer.conditions(tree)):
        row["conditions"] = conditions
    return b'%d\0%d\0%b,"object":' % (start, end, encode(row)[:-1])


def _fill(written: bytes, data: bytes, ages: _Ages) -> tuple[list[bytes], bytes]:
    """Fill the gaps of an encoded row. Returns its pieces and the metadata of its object, whose JSON is `data`."""
    start, end, *pieces = written.split(_GAP)
    pieces[1::2] = map(ages.__getitem__, pieces[1::2])
    return pieces, data[int(start) : int(end)] or b"{}"


def _place(data: bytes) -> tuple[int, int]:
    """Return the start and end of the metadata; 0 if there are none."""
    found = bytes(_DESCRIBED.decode(data).metadata)
    start = data.find(_METADATA) + len(_METADATA)
    if not data.startswith(found, start):  # free if metadata comes first, as in stored objects
        start = data.find(found)
    return (start, start + len(found)) if found else (0, 0)


def _gap(since: Since) -> msgspec.Raw:
    before, after = encode(since.before)[:-1], encode(since.after)[1:]
    return msgspec.Raw(_GAP.join((before, since.moment.encode(), after)))
