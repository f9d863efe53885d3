"""Objects written in protobuf (API concepts, Protobuf envelope): an envelope names a type, and holds its message.

The API server answers in it, and reads it (`apiserver_stub/encode/protobuf`); clients send it: `body`.
"""

from functools import cache, lru_cache

import msgspec

from controller_manager.common.api.platform import VENDOR
from controller_manager.common.api.protobuf.table import fits, table
from controller_manager.common.api.protobuf.wire import FieldWriter, MessageWriters, scalar, sized

__all__ = ["MAGIC", "MEDIA_TYPE", "RAW", "SILENT", "begin", "body", "envelope", "knows", "object_writer", "writers"]

MEDIA_TYPE = f"application/vnd.{VENDOR}.protobuf"
MAGIC = b"k8s\0"
RAW = 2
"""The field of an envelope that holds the object; in lists it is that of the items."""
SILENT = scalar(3, "string")("") + scalar(4, "string")("")
"""The end of an envelope that does not say how its content is encoded."""


def knows(api_version: str, kind: str) -> bool:
    """Tell whether objects of that type have a message; lists do, and whatever else is answered."""
    return table().message_of(api_version, kind) is not None


def body(api_version: str, kind: str, data: bytes) -> bytes | None:
    """Return the JSON of an object as a body; None where its message has no place for all of it."""
    if not fits(api_version, kind, data):
        return None
    return envelope(api_version, kind, object_writer(api_version, kind)(msgspec.json.decode(data)))


@lru_cache(maxsize=512)
def object_writer(api_version: str, kind: str) -> FieldWriter:
    """Return what writes an object (a tree) as a message, with the tag of field 2, as envelopes and lists hold it.
    Raises `LookupError` for types nobody knows.
    """
    name = table().message_of(api_version, kind)
    if name is None:
        raise LookupError(f"{kind} of {api_version} has no message")
    return sized(RAW, writers()[name].message)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return an object as a body, from what its `object_writer` made of it."""
    return b"%b%b%b" % (begin(api_version, kind), raw, SILENT)


@lru_cache(maxsize=512)
def begin(api_version: str, kind: str) -> bytes:
    """Return how an envelope begins."""
    return MAGIC + sized(1, writers()["runtime.TypeMeta"].message)({"apiVersion": api_version, "kind": kind})


@cache
def writers() -> MessageWriters:
    """Return the writers of all messages."""
    return MessageWriters(table().messages)
