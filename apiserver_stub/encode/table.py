"""Objects as a `Table` (meta.k8s.io): the columns people see, filled in by the server.

A row is written once for each state of an object, with a gap wherever it says how long ago something was, and kept
with the stored object; answering it is filling in the gaps.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypedDict

import msgspec
import orjson

from apiserver_stub.encode.json import Tree, encode
from apiserver_stub.encode.printers import Printer, columns, printer
from apiserver_stub.encode.printers.cells import Since, between
from apiserver_stub.store.row import Row
from apiserver_stub.watch.lines import INITIAL_EVENTS_END
from controller_manager.api.errors import BadRequest
from controller_manager.api.platform import GROUP_DOMAIN

META_VERSION = f"meta.{GROUP_DOMAIN}/v1"

_GAP = b"\0"  # before and after a moment; JSON never has this byte
_METADATA = b'"metadata":'
_END = INITIAL_EVENTS_END.encode()

_Carry = Callable[[bytes, bytes, bytes], tuple[bytes, ...]]


class Named(Protocol):
    """What is told of the objects: the type of their bodies (a kind's or a subresource's)."""

    @property
    def group(self) -> str:
        """The group of the objects' bodies."""

    @property
    def version(self) -> str:
        """Their version."""

    @property
    def kind(self) -> str:
        """Their kind."""


class Tabulator:
    """Makes the parts of tables of one kind at one time; `include_object` says what a row carries of its object."""

    def __init__(
        self, kind: Named, now: datetime, include_object: str = "Metadata", version: str = META_VERSION
    ) -> None:
        self._printer = printer(kind.group, kind.kind)
        self._kept_as = f"table {kind.group}/{kind.version}"
        self._version = version
        self._carry = _CARRIED[include_object]
        self._partial = b'{"kind":"PartialObjectMetadata","apiVersion":"%b","metadata":' % version.encode()
        self._ages = _Ages(now)

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

    def in_order(self, rows: Sequence[Row], objects: Sequence[bytes]) -> tuple[Sequence[Row], Sequence[bytes]]:
        """Stored objects as people want to read them, and their JSON."""
        order = self._printer.order
        if not order:
            return rows, objects
        pairs = sorted(zip(rows, objects, strict=True), key=lambda pair: int(pair[0].field(order) or 0))
        return [row for row, _ in pairs], [data for _, data in pairs]

    def row(self, data: bytes) -> bytes:
        """The row of an object, from its JSON to that of the row."""
        return self._filled(_written(self._printer, data), data)

    def row_of(self, row: Row, data: bytes) -> bytes:
        """The row of a stored object, whose JSON in the version that is told is `data`."""
        kept = row.kept(self._kept_as)
        if kept is None:
            kept = _written(self._printer, data)
            row.keep(self._kept_as, kept)
        return self._filled(kept, data)

    def one(self, data: bytes, headed: bool = True) -> bytes:
        """A table of one object, with the version of that."""
        return self._framed(self.row(data), _VERSIONED.decode(data).metadata.resource_version, headed)

    def one_of(self, row: Row, headed: bool = True) -> bytes:
        """A table of one stored object."""
        return self._framed(self.row_of(row, row.data), str(row.revision), headed)

    def _filled(self, written: bytes, data: bytes) -> bytes:
        start, end, *pieces = written.split(_GAP)
        pieces[1::2] = map(self._ages.__getitem__, pieces[1::2])
        metadata = data[int(start) : int(end)] or b"{}"
        return b"".join((*pieces, *self._carry(self._partial, metadata, data), b"}"))

    def _framed(self, row: bytes, revision: str, headed: bool) -> bytes:
        return b'%b,"rows":[%b]}' % (encode(self.head({"resourceVersion": revision}, headed))[:-1], row)


def check_include(include_object: str) -> None:
    """Raises `BadRequest` for anything that rows cannot carry."""
    if include_object not in _CARRIED:
        known = "must be 'Metadata', 'Object', 'None', or empty"
        raise BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": {known}'
        )


class _Ages(dict[bytes, bytes]):
    """How long ago moments were, each found out once."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, moment: bytes) -> bytes:
        age = self[moment] = between(moment.decode(), self._now).encode()
        return age


class _Described(msgspec.Struct, gc=False):
    metadata: msgspec.Raw = msgspec.Raw()


class _Seen(TypedDict, total=False):
    """What printers look at of the metadata: the record of owners, which is most of them, takes long to read."""

    name: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


class _Version(msgspec.Struct, rename="camel", gc=False, frozen=True):
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Version = _Version()


_DESCRIBED = msgspec.json.Decoder(_Described)
_SEEN = msgspec.json.Decoder(_Seen)
_VERSIONED = msgspec.json.Decoder(_Versioned)


def _written(printer: Printer, data: bytes) -> bytes:
    """A row up to the object it carries, with gaps; before it, where in the object's JSON the metadata are."""
    start, end = _metadata_of(data)
    rest = orjson.loads(b"%b{}%b" % (data[:start], data[end:])) if end else orjson.loads(data)
    tree: Tree = {**rest, "metadata": _SEEN.decode(data[start:end] or b"{}")}
    row: Tree = {"cells": [_gap(cell) if cell.__class__ is Since else cell for cell in printer.cells(tree)]}
    if printer.conditions and (conditions := printer.conditions(tree)):
        row["conditions"] = conditions
    return b'%d\0%d\0%b,"object":' % (start, end, encode(row)[:-1])


def _metadata_of(data: bytes) -> tuple[int, int]:
    """Where the metadata begin and end; at 0 if there are none."""
    metadata = bytes(_DESCRIBED.decode(data).metadata)
    start = data.find(_METADATA) + len(_METADATA)
    if not data.startswith(metadata, start):  # which takes no time if they come first, as in the store
        start = data.find(metadata)
    return (start, start + len(metadata)) if metadata else (0, 0)


def _gap(since: Since) -> msgspec.Raw:
    before, after = encode(since.before)[:-1], encode(since.after)[1:]
    return msgspec.Raw(_GAP.join((before, since.moment.encode(), after)))


def _metadata(partial: bytes, metadata: bytes, _: bytes) -> tuple[bytes, ...]:
    return partial, metadata, b"}"


def _nothing(partial: bytes, metadata: bytes, _: bytes) -> tuple[bytes, ...]:
    """The mark that ends an initial state is told even to who wants no metadata."""
    return (partial, metadata, b"}") if _END in metadata else (b"null",)


def _whole(partial: bytes, metadata: bytes, data: bytes) -> tuple[bytes, ...]:
    return (data,)


_CARRIED: Mapping[str, _Carry] = {"": _metadata, "Metadata": _metadata, "None": _nothing, "Object": _whole}
