"""Stamp the revision of an object into its bytes, which are handed to the storage without it."""

from collections.abc import Mapping

import msgspec

_VERSION = b'"resourceVersion":"'
_EMPTY = b'"resourceVersion":""'
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def stamped(data: bytes, revision: int) -> bytes:
    """Return the bytes with `revision` for their resourceVersion, if they leave it empty."""
    if not data.startswith(_EMPTY, data.find(_VERSION)):
        return data
    return data.replace(_EMPTY, b'"resourceVersion":"%d"' % revision, 1)


def as_of(data: bytes, revision: int | str) -> bytes:
    """Return the same object with another `metadata.resourceVersion`, which may be empty."""
    parts: Mapping[str, msgspec.Raw] = _PARTS.decode(data)
    metadata = {**_PARTS.decode(parts.get("metadata", b"{}")), "resourceVersion": str(revision)}
    return msgspec.json.encode({**parts, "metadata": metadata})
