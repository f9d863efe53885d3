"""Objects in protobuf (API concepts, Protobuf envelope): an envelope contains a type and a message.

The API server reads and writes it (`apiserver_stub/encode/protobuf`); clients send it with `body`.
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
"""The envelope field with the object; also the field of items in lists."""
SILENT = scalar(3, "string")("") + scalar(4, "string")("")
"""The end of an envelope without a content encoding."""


def knows(api_version: str, kind: str) -> bool:
    """Return whether a type has a protobuf message; also for lists and other response types."""
    return table().message_of(api_version, kind) is not None


def body(api_version: str, kind: str, data: bytes) -> bytes | None:
    """Return the JSON of an object as a protobuf body; None if the message cannot hold all of its fields."""
    if not fits(api_version, kind, data):
        return None
    return envelope(api_version, kind, object_writer(api_version, kind)(msgspec.json.decode(data)))


@lru_cache(maxsize=512)
def object_writer(api_version: str, kind: str) -> FieldWriter:
    """Return the function that writes an object (a tree) as a message in field 2, as envelopes and lists contain it.
    Raises `LookupError` for unknown types.
    """
    name = table().message_of(api_version, kind)
    if name is None:
        raise LookupError(f"{kind} of {api_version} has no message")
    return sized(RAW, writers()[name].message)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return a body with an object that `object_writer` has written."""
    return b"%b%b%b" % (begin(api_version, kind), raw, SILENT)


@lru_cache(maxsize=512)
def begin(api_version: str, kind: str) -> bytes:
    """Return the start of an envelope."""
    return MAGIC + sized(1, writers()["runtime.TypeMeta"].message)({"apiVersion": api_version, "kind": kind})


@cache
def writers() -> MessageWriters:
    """Return the writers of all messages."""
    return MessageWriters(table().messages)
