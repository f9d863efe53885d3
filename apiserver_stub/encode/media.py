"""The media answers are written in, one row each; negotiation knows them by these rows only."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from apiserver_stub.encode import cbor, json, protobuf, yaml
from apiserver_stub.encode.listing import Listing
from apiserver_stub.watch import lines


@dataclass(frozen=True, slots=True, eq=False)
class Medium:
    """How answers are written: `whole` one object from its JSON, `pieces` a listing, piece by piece and one at least
    for each object, of which `breath` are made before others may run.

    `watch_type` is the media type of a watch whose events `frame` sets down, empty when there is none. `knows` tells
    whether objects of a version and kind can be written (None for all), `tables` whether a `Table` can.
    """

    media_type: str
    whole: Callable[[bytes], bytes]
    pieces: Callable[[Listing], Iterator[bytes]]
    breath: int
    watch_type: str = ""
    frame: Callable[[str, bytes], bytes] = lines.encode
    knows: Callable[[str, str], bool] | None = None
    tables: bool = True


class _Typed(msgspec.Struct, rename="camel", gc=False):
    kind: str = ""
    api_version: str = ""


_TYPED = msgspec.json.Decoder(_Typed)
_OF_EACH = 16  # messages made at once


def _message(data: bytes) -> bytes:
    about = _TYPED.decode(data)
    raw = protobuf.raw(data, about.api_version, about.kind)
    return protobuf.envelope(about.api_version, about.kind, raw)


def _messages(listing: Listing) -> Iterator[bytes]:
    """Nothing for each object at first: a message begins with its size."""
    raws = []
    for data in listing.elements():
        raws.append(protobuf.raw(data, *listing.element))
        yield b""
    head = listing.head
    yield from protobuf.collection(head["apiVersion"], head["kind"], head["metadata"], raws)


def _message_frame(kind: str, data: bytes) -> bytes:
    return protobuf.frame(kind, _message(data))


JSON = Medium("application/json", json.line, json.pieces, 50, "application/json")
PRETTY = Medium("application/json", json.indented, json.indented_pieces, 20)
YAML = Medium("application/yaml", yaml.dump, yaml.pieces, 1)
PROTOBUF = Medium(
    protobuf.MEDIA_TYPE,
    _message,
    _messages,
    16,
    f"{protobuf.MEDIA_TYPE};stream=watch",
    _message_frame,
    protobuf.knows,
    tables=False,
)
CBOR = Medium("application/cbor", cbor.dump, cbor.pieces, 32, "application/cbor-seq", cbor.event, tables=False)

MEDIA = (JSON, YAML, PROTOBUF)
"""What is offered always, the first when nobody asks for anything."""
