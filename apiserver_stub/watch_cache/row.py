"""The content of the cache: rows of bytes, and changes. Only selectors read the bytes, and only a few fields."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, overload

import msgspec

from apiserver_stub.storage.interface import ENCRYPTED, Record, StoredObject
from controller_manager.common.api.errors import Details, InternalError
from controller_manager.common.api.sharding import NAMESPACE, ShardSelector


class Row(StoredObject, gc=False, eq=False):
    """An object in the cache. `settled` is the serial of the kind that serves exactly these bytes; 0 if unknown."""

    settled: int = 0
    _labels: Mapping[str, str] | None = None
    _fields: tuple[str, ...] = ()  # path, value, path, value …: smaller than a dict
    _size: int = 0  # bytes of all pieces

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.key[self.key.find("/") + 1 :]

    @property
    def namespace(self) -> str:
        """`metadata.namespace`; empty if there is none."""
        return self.key[: max(0, self.key.find("/"))]

    def hold(self, pieces: tuple[bytes, ...]) -> None:
        """Store the same object in pieces."""
        self._size = self.size
        self._held = pieces

    def in_pieces(self) -> tuple[tuple[bytes, ...], int]:
        """Return the object in its stored pieces, and its size in bytes."""
        held = self._held
        return ((held,), len(held)) if isinstance(held, bytes) else (held, self._size)

    @property
    def size(self) -> int:
        """Return the number of readable bytes."""
        held = self._held
        return len(held) if isinstance(held, bytes) else self._size

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`, decoded on first use."""
        if self._labels is None:
            self._labels = _labels_of(bytes(_LABELLED.decode(self.data).metadata.labels))
        return self._labels

    def is_in(self, shard: ShardSelector) -> bool:
        """Return whether the object belongs to a shard."""
        return shard.has(self.namespace if shard.field == NAMESPACE else uid_of(self.data))

    def field(self, path: str) -> str:
        """Return the scalar at `path` (`spec.nodeName`) as text, or an empty string. Decoded on first use."""
        known = self._fields
        for at in range(0, len(known), 2):
            if known[at] == path:
                return known[at + 1]
        if path == "metadata.name":
            return self.name
        if path == "metadata.namespace":
            return self.namespace
        value = sys.intern(_scalar(self.data, path))
        self._fields = (*known, path, value)
        return value

    def read_field(self, path: str) -> str:
        """Return `field(path)` without caching it."""
        return self.field(path) if path in self._fields or path in _KEYED else _scalar(self.data, path)


class CorruptRow(Row, gc=False, eq=False):
    """A row whose bytes are not a valid object. `decode_error` says why; `uid` is `metadata.uid` if it can be read.
    Reading the bytes raises `Corrupt`.
    """

    decode_error: str = ""
    uid: str = ""

    @property
    def is_encrypted(self) -> bool:
        """Whether the bytes are encrypted and may be readable with another key."""
        held = self._held
        return isinstance(held, bytes) and held.startswith(ENCRYPTED)

    @property
    def size(self) -> int:
        """Always 0: there are no readable bytes."""
        return 0

    @property
    def data(self) -> bytes:
        """Raises `Corrupt`."""
        raise Corrupt(self)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """Raises `Corrupt`."""
        raise Corrupt(self)

    def in_pieces(self) -> tuple[tuple[bytes, ...], int]:
        """Raises `Corrupt`."""
        raise Corrupt(self)


class RowObjects(Sequence[bytes]):
    """The objects of readable rows. Each is joined on access, so a long list takes the memory of one object."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[bytes]:
        return (row.data for row in self._rows)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        return [row.data for row in self._rows[at]] if isinstance(at, slice) else self._rows[at].data

    def in_pieces(self) -> Iterator[tuple[tuple[bytes, ...], int]]:
        """Yield each object in its stored pieces, with its size in bytes."""
        return (row.in_pieces() for row in self._rows)

    def sizes(self) -> Iterator[int]:
        """Yield the size of each object in bytes."""
        return (row.size for row in self._rows)


def in_pieces(objects: Sequence[bytes]) -> Iterator[tuple[tuple[bytes, ...], int]]:
    """Yield each of the objects in its stored pieces, with its size in bytes."""
    if isinstance(objects, RowObjects):
        return objects.in_pieces()
    return (((data,), len(data)) for data in objects)


def sizes_of(objects: Sequence[bytes]) -> Iterator[int]:
    """Yield the size of each object in bytes, without joining the pieces of rows."""
    return objects.sizes() if isinstance(objects, RowObjects) else map(len, objects)


class Corrupt(InternalError):
    """Raised for an object that cannot be read because its stored bytes are invalid."""

    def __init__(self, row: CorruptRow) -> None:
        plural, _, group = row.resource.partition(".")
        details = Details(name=row.name, group=group, kind=plural)
        where = f"{row.resource} {row.key!r} at revision {row.revision}"
        super().__init__(f"corrupt object: what the store holds of {where} cannot be read: {row.decode_error}", details)
        self.row = row


class Change(msgspec.Struct, gc=False, eq=False):
    """One durable event. `row` is the state after it (the final state for a deletion), `before` the state it
    replaced.
    """

    row: Row
    before: Row | None
    deleted: bool
    at: float

    @property
    def revision(self) -> int:
        """The revision of this change."""
        return self.row.revision


def row_of(record: Record) -> Row:
    """Return the row of a record."""
    revision, resource, key, data, _, _, _, decode_error = record
    if not decode_error:
        return Row(resource, key, revision, data)
    return CorruptRow(resource, key, revision, data, decode_error=decode_error, uid=uid_of(data))


def decode_error_of(data: bytes) -> str:
    """Return why the bytes are not a valid API object; empty if they are. Takes one or two microseconds."""
    try:
        _SOUND.decode(data)
        if not data.isascii():
            data.decode()  # msgspec does not validate strings that it skips
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return "it is encrypted, and no provider is configured for it" if data.startswith(ENCRYPTED) else str(error)
    return ""


def plain_error_of(data: bytes) -> str:
    """Return the same, except for encrypted bytes: another layer checks them."""
    return "" if data.startswith(ENCRYPTED) else decode_error_of(data)


def uid_of(data: bytes) -> str:
    """Return `metadata.uid` of possibly invalid bytes; empty if it cannot be read."""
    try:
        return _IDENTIFIED.decode(data).metadata.uid
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


class _Identity(msgspec.Struct, gc=False, frozen=True):
    uid: str


class _Identified(msgspec.Struct, gc=False, frozen=True):
    metadata: _Identity


class _Metadata(msgspec.Struct, gc=False, frozen=True):
    name: str
    uid: str
    labels: dict[str, str] | None = None


class _Sound(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    kind: str
    api_version: str
    metadata: _Metadata


class _Labels(msgspec.Struct, gc=False, frozen=True):
    labels: msgspec.Raw = msgspec.Raw(b"null")


class _Labelled(msgspec.Struct, gc=False, frozen=True):
    metadata: _Labels = _Labels()


_LABELLED = msgspec.json.Decoder(_Labelled)
_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_IDENTIFIED = msgspec.json.Decoder(_Identified)
_SOUND = msgspec.json.Decoder(_Sound)
_NO_LABELS: Mapping[str, str] = {}
_KEYED = frozenset({"metadata.name", "metadata.namespace"})  # paths that the key already contains


@lru_cache(maxsize=4096)
def _labels_of(raw: bytes) -> Mapping[str, str]:
    """Return cached labels, since many objects have the same ones. They must not be changed."""
    return _LABELS.decode(raw) or _NO_LABELS


def _scalar(data: bytes, path: str) -> str:
    try:
        found = _reader(path).decode(data)
    except msgspec.ValidationError:  # part of the path is not an object
        return ""
    for _ in range(path.count(".") + 1):
        if found is None:
            return ""
        found = found.at
    return _text(bytes(found))


def _text(raw: bytes) -> str:
    match raw[:1]:
        case b'"':
            return str(msgspec.json.decode(raw))
        case b"{" | b"[" | b"n":  # not a scalar
            return ""
    return raw.decode()


@lru_cache(maxsize=256)
def _reader(path: str) -> msgspec.json.Decoder[Any]:
    """Return a decoder that decodes only the value at `path`."""
    *steps, last = path.split(".")
    shape: Any = msgspec.defstruct("Last", [("at", msgspec.Raw, msgspec.Raw())], rename={"at": last}, gc=False)
    for step in reversed(steps):
        shape = msgspec.defstruct("Step", [("at", shape | None, None)], rename={"at": step}, gc=False)
    return msgspec.json.Decoder(shape)
