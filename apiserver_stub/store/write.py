"""A write as its author hands it in, and the stamp: where the revision that the store gives it stands in its bytes."""

import msgspec

_VERSION = b'"resourceVersion":"'


class Write(msgspec.Struct, frozen=True, gc=False):
    """The next state of a row, if it is at revision `expected` (0: if there is none); or its removal.

    `data` is JSON of an object with an empty `"resourceVersion":""` in its metadata, before anything else of that name;
    of a deletion the final state.
    """

    resource: str
    key: str
    expected: int
    data: bytes
    deleted: bool = False


def stamped(data: bytes, revision: int) -> bytes:
    """The bytes with `revision` for their resourceVersion, if they leave it empty."""
    at = data.find(_VERSION) + len(_VERSION)
    if at < len(_VERSION) or data[at : at + 1] != b'"':
        return data
    return b"%b%d%b" % (data[:at], revision, data[at:])
