"""The media answers are written in, one row each; negotiation knows them by these rows only."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from apiserver_stub.encode import cbor, json, protobuf, yaml
from apiserver_stub.encode.listing import Listing
from apiserver_stub.encode.protobuf import rows
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.store.row import Row
from apiserver_stub.watch import event_encoder

_RowFrame = Callable[[str, Row], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Serializer:
    """How answers are written: `whole` one object from its JSON, `pieces` a listing, piece by piece and one at least
    for each object that takes time, of which `yield_every` are made before others may run.

    `watch_type` is the media type of a watch whose events `frame` sets down, empty when there is none; `row_frame` is
    what sets down those of rows that keep what they were written as, whole or only their metadata. `knows` tells
    whether objects of a version and kind can be written (None for all), `tables` whether a `Table` can.
    """

    media_type: str
    whole: Callable[[bytes], bytes]
    pieces: Callable[[Listing], Iterator[bytes]]
    yield_every: int
    watch_type: str = ""
    frame: Callable[[str, bytes], bytes] = event_encoder.encode
    row_frame: Callable[[ResourceInfo, bool], _RowFrame] | None = None
    knows: Callable[[str, str], bool] | None = None
    tables: bool = True


def _message(data: bytes) -> bytes:
    api_version, kind = json.type_of(data)
    return protobuf.envelope(api_version, kind, protobuf.raw(data, api_version, kind))


def _messages(listing: Listing) -> Iterator[bytes]:
    """Nothing at first for each object that has to be written: a list begins with its size."""
    shown, raws = _shown(listing.kind, listing.show is not None), []
    for row in listing.rows:
        raw = row.kept(shown.name)
        if raw is None:
            raw = shown.of(row)
            yield b""
        raws.append(raw)
    yield from protobuf.collection(shown.api_version, f"{shown.kind}List", listing.head["metadata"], raws)


def _message_frame(kind: str, data: bytes) -> bytes:
    return protobuf.frame(kind, _message(data))


def _message_row_frame(kind: ResourceInfo, partial: bool) -> _RowFrame:
    shown = _shown(kind, partial)
    return lambda event, row: protobuf.frame(event, protobuf.envelope(shown.api_version, shown.kind, shown.of(row)))


def _shown(kind: ResourceInfo, partial: bool) -> rows.Shown:
    return rows.partial() if partial else rows.whole(kind)


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
    _message_row_frame,
    protobuf.knows,
    tables=False,
)
CBOR = Serializer("application/cbor", cbor.dump, cbor.pieces, 32, "application/cbor-seq", cbor.event, tables=False)

MEDIA = (JSON, YAML, PROTOBUF)
"""What is offered always, the first when nobody asks for anything."""
