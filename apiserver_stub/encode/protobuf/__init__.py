"""Objects in protobuf (API concepts, Protobuf envelope): an envelope names a type, and holds a message of that type.

Responses are composed of encoded objects: `raw` encodes an object as a message with the tag of field 2. Both envelopes
and lists use this field, so cached bytes can be joined:

- one object: `envelope(api_version, kind, raw(data, api_version, kind))`
- a collection: `collection(api_version, list_kind, metadata, raws)`, in chunks
- an event of a watch: `frame("ADDED", envelope(…))`; the object of a bookmark and the `Status` of an error likewise
- only the metadata of an object: the same with `raw(data, "meta.k8s.io/v1", "PartialObjectMetadata")`
- a row of the store, encoded once for all readers: `rows.RowEncoder`
"""

from collections.abc import Iterator, Sequence

import orjson

from apiserver_stub.encode.protobuf.reading import decode
from apiserver_stub.encode.representations import chunk_bounds
from controller_manager.common.api.protobuf import (
    MEDIA_TYPE,
    RAW,
    SILENT,
    begin,
    envelope,
    knows,
    object_writer,
    writers,
)
from controller_manager.common.api.protobuf.wire import head, scalar, sized
from controller_manager.common.api.tree import Tree

__all__ = [
    "MEDIA_TYPE",
    "collection",
    "decode",
    "envelope",
    "frame",
    "knows",
    "object_writer",
    "raw",
]

_EVENT_TYPE = scalar(1, "string")
_EVENT_OBJECT = sized(2, sized(1, bytes))  # raw JSON elsewhere, a body here


def raw(data: bytes, api_version: str, kind: str) -> bytes:
    """Encode an object (JSON) of a known type as a message with the tag of field 2."""
    return object_writer(api_version, kind)(orjson.loads(data))


def collection(api_version: str, list_kind: str, metadata: Tree, raws: Sequence[bytes]) -> Iterator[bytes]:
    """Yield a list of encoded objects as a body, in chunks. Each object is copied once."""
    about = sized(1, writers()["meta.v1.ListMeta"].message)(metadata)
    size = len(about) + sum(map(len, raws))
    yield b"%b%b%b" % (begin(api_version, list_kind), head(RAW, size), about)
    for start, end in chunk_bounds(raws):
        yield b"".join(raws[start:end])
    yield SILENT


def frame(event_type: str, object_: bytes) -> bytes:
    """Return a watch event around an enveloped object: four bytes of size, then a message without an envelope."""
    event = _EVENT_TYPE(event_type) + _EVENT_OBJECT(object_)
    return len(event).to_bytes(4, "big") + event
