"""The media types of responses, one row each. Negotiation depends on these rows only."""

from collections.abc import Callable, Iterator

import msgspec
import orjson

from apiserver_stub.encode import cbor, json, protobuf, yaml
from apiserver_stub.encode.protobuf import envelope, frame, object_writer
from apiserver_stub.encode.representations import CachedRows, ListDocument
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache import event_encoder
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree

_PARTIAL = f"meta.{GROUP_DOMAIN}/v1", "PartialObjectMetadata"


class RowEncoder(msgspec.Struct, frozen=True):
    """Encodes rows as messages of one type (see `raw`). Results are cached under `name`."""

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
        """Return a row as a response body."""
        return envelope(self.api_version, self.kind, self.raw(row, cached))

    def event(self, type_: str, row: Row, cached: CachedRows) -> bytes:
        """Return a watch event of a row."""
        return frame(type_, self.whole(row, cached))


def row_encoder(kind: ResourceInfo, partial: bool) -> RowEncoder:
    """Return the encoder for objects of a kind in its version, or for their metadata only."""
    if partial:
        write = object_writer(*_PARTIAL)
        return RowEncoder(*_PARTIAL, "protobuf metadata", lambda data: write(orjson.loads(data)))
    write, convert = object_writer(kind.api_version, kind.kind), kind.from_storage

    def encode(data: bytes) -> bytes:
        tree: Tree = orjson.loads(data)
        return write(convert(tree) if convert else tree)

    return RowEncoder(kind.api_version, kind.kind, f"protobuf {kind.api_version}", encode)


class Serializer(msgspec.Struct, frozen=True, eq=False):
    """Writes responses in a media type. `whole` writes one object from its JSON. `pieces` writes a list, with at least
    one piece per object that takes time; other requests run after `yield_every` pieces.

    `watch_type` is the media type of watches, empty if they are not supported; `frame` writes their events. `rows`
    returns the cached encoder for rows of a kind or for their metadata; None if only JSON is stored. `knows` returns
    whether a version and kind can be written (None: all can; otherwise only published kinds). `tables` is whether a
    `Table` can be written.
    """

    media_type: str
    whole: Callable[[bytes], bytes]
    pieces: Callable[[ListDocument], Iterator[bytes]]
    yield_every: int
    watch_type: str = ""
    frame: Callable[[str, bytes], bytes] = event_encoder.encode
    rows: Callable[[ResourceInfo, bool], RowEncoder] | None = None
    knows: Callable[[str, str], bool] | None = None
    tables: bool = True


def _message(data: bytes) -> bytes:
    api_version, kind = json.type_of(data)
    return protobuf.envelope(api_version, kind, protobuf.raw(data, api_version, kind))


def _messages(document: ListDocument) -> Iterator[bytes]:
    """Yield empty pieces while objects are encoded, then the list, which begins with its size."""
    encoder, cached, raws = row_encoder(document.kind, document.show is not None), document.cached, []
    for row in document.rows:
        raw = cached.get(row)
        if raw is None:
            raw = encoder.raw(row, cached)
            yield b""
        raws.append(raw)
    yield from protobuf.collection(encoder.api_version, f"{encoder.kind}List", document.head["metadata"], raws)


def _message_frame(kind: str, data: bytes) -> bytes:
    return protobuf.frame(kind, _message(data))


JSON = Serializer("application/json", json.line, json.pieces, 50, "application/json")
PRETTY = Serializer("application/json", json.indented, json.indented_pieces, 20)
YAML = Serializer("application/yaml", yaml.dump, yaml.pieces, 1)
PROTOBUF = Serializer(
    protobuf.MEDIA_TYPE,
    _message,
    _messages,
    16,
    f"{protobuf.MEDIA_TYPE};stream=watch",
    _message_frame,
    row_encoder,
    protobuf.knows,
    tables=False,
)
CBOR = Serializer("application/cbor", cbor.dump, cbor.pieces, 32, "application/cbor-seq", cbor.event, tables=False)

MEDIA = (JSON, YAML, PROTOBUF)
"""The media types that every server offers; the first is the default."""
