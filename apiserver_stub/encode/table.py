"""Objects as a `Table` (meta.k8s.io): the columns people see, filled in by the server.

What is written of a row is kept in the cache of representations; to answer it is to fill in how long ago things were.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from apiserver_stub.encode.json import Tree, encode
from apiserver_stub.encode.representations import CachedRows
from apiserver_stub.encode.table_row import Ages, fill, write
from apiserver_stub.kinds.printer import Printer
from apiserver_stub.store.row import Row
from apiserver_stub.watch.event_encoder import INITIAL_EVENTS_END
from controller_manager.api.errors import BadRequest
from controller_manager.api.platform import GROUP_DOMAIN

META_VERSION = f"meta.{GROUP_DOMAIN}/v1"

_END = INITIAL_EVENTS_END.encode()

_Carry = Callable[[bytes, bytes, bytes], tuple[bytes, ...]]


class PrintedKind(Protocol):
    """A kind or a subresource, by the type of its bodies and how they become rows."""

    @property
    def group(self) -> str:
        """The group of the objects' bodies."""

    @property
    def version(self) -> str:
        """Their version."""

    @property
    def printer(self) -> Printer:
        """Their columns and cells."""


class Tabulator:
    """Makes the parts of tables of one kind at one time; `include_object` says what a row carries of its object."""

    def __init__(
        self, kind: PrintedKind, now: datetime, include_object: str = "Metadata", version: str = META_VERSION
    ) -> None:
        self._printer = kind.printer
        self.name = f"table {kind.group}/{kind.version}"
        """What rows are kept as; how old things are is filled in later."""
        self._version = version
        self._carry = _CARRIED[include_object]
        self._partial = b'{"kind":"PartialObjectMetadata","apiVersion":"%b","metadata":' % version.encode()
        self._ages = Ages(now)

    def head(self, metadata: Tree, headed: bool = True) -> Tree:
        """A table but for its rows; one that is not `headed` has no columns, where they are known already."""
        described = [
            {"name": name, "type": type_, "format": format_, "description": "", "priority": priority}
            for name, type_, format_, priority in self._printer.columns
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
        return self._filled(write(self._printer, data), data)

    def row_of(self, cached: CachedRows, row: Row, data: bytes) -> bytes:
        """The row of a stored object, whose JSON in the version that is told is `data`."""
        written = cached.get(row)
        if written is None:
            written = write(self._printer, data)
            cached.add(row, written)
        return self._filled(written, data)

    def one(self, data: bytes, headed: bool = True) -> bytes:
        """A table of one object, with the version of that."""
        return self._framed(self.row(data), _VERSIONED.decode(data).metadata.resource_version, headed)

    def one_of(self, cached: CachedRows, row: Row, data: bytes, headed: bool = True) -> bytes:
        """A table of one stored object, whose JSON in the version that is told is `data`."""
        return self._framed(self.row_of(cached, row, data), str(row.revision), headed)

    def _filled(self, written: bytes, data: bytes) -> bytes:
        pieces, metadata = fill(written, data, self._ages)
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


class _Version(msgspec.Struct, rename="camel", gc=False, frozen=True):
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Version = _Version()


_VERSIONED = msgspec.json.Decoder(_Versioned)


def _metadata(partial: bytes, metadata: bytes, _: bytes) -> tuple[bytes, ...]:
    return partial, metadata, b"}"


def _nothing(partial: bytes, metadata: bytes, _: bytes) -> tuple[bytes, ...]:
    """The mark that ends an initial state is told even to who wants no metadata."""
    return (partial, metadata, b"}") if _END in metadata else (b"null",)


def _whole(partial: bytes, metadata: bytes, data: bytes) -> tuple[bytes, ...]:
    return (data,)


_CARRIED: Mapping[str, _Carry] = {"": _metadata, "Metadata": _metadata, "None": _nothing, "Object": _whole}
