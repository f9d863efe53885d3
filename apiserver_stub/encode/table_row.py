"""The row of an object in a `Table`: written once for each state of the object, with a gap wherever it says how long
ago something was, and filled in whenever somebody looks.
"""

from datetime import datetime
from typing import Any, TypedDict

import msgspec
import orjson

from apiserver_stub.encode.json import Tree, encode
from apiserver_stub.kinds.printer import Printer
from apiserver_stub.kinds.printers.cells import Since, between

_GAP = b"\0"  # before and after a moment; JSON never has this byte
_METADATA = b'"metadata":'


class Ages(dict[bytes, bytes]):
    """How long ago moments were at one time, each found out once."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, moment: bytes) -> bytes:
        age = self[moment] = between(moment.decode(), self._now).encode()
        return age


class _Described(msgspec.Struct, gc=False):
    metadata: msgspec.Raw = msgspec.Raw()


class _Seen(TypedDict, total=False):
    """What printers look at of the metadata: the record of owners, which is most of them, takes long to read."""

    name: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


_DESCRIBED = msgspec.json.Decoder(_Described)
_SEEN = msgspec.json.Decoder(_Seen)


def metadata(data: bytes) -> bytes:
    """The metadata of an object, both as JSON."""
    return bytes(_DESCRIBED.decode(data).metadata) or b"{}"


def write(printer: Printer, data: bytes) -> bytes:
    """The row of an object, from its JSON, up to what it carries of the object, and where in there its metadata are."""
    start, end = _place(data)
    rest = orjson.loads(b"%b{}%b" % (data[:start], data[end:])) if end else orjson.loads(data)
    tree: Tree = {**rest, "metadata": _SEEN.decode(data[start:end] or b"{}")}
    row: Tree = {"cells": [_gap(cell) if cell.__class__ is Since else cell for cell in printer.cells(tree)]}
    if printer.conditions and (conditions := printer.conditions(tree)):
        row["conditions"] = conditions
    return b'%d\0%d\0%b,"object":' % (start, end, encode(row)[:-1])


def fill(written: bytes, data: bytes, ages: Ages) -> tuple[list[bytes], bytes]:
    """The pieces of a written row with its gaps filled in, and the metadata of its object, whose JSON is `data`."""
    start, end, *pieces = written.split(_GAP)
    pieces[1::2] = map(ages.__getitem__, pieces[1::2])
    return pieces, data[int(start) : int(end)] or b"{}"


def _place(data: bytes) -> tuple[int, int]:
    """Where the metadata begin and end; at 0 if there are none."""
    found = bytes(_DESCRIBED.decode(data).metadata)
    start = data.find(_METADATA) + len(_METADATA)
    if not data.startswith(found, start):  # which takes no time where they come first, as they do in the store
        start = data.find(found)
    return (start, start + len(found)) if found else (0, 0)


def _gap(since: Since) -> msgspec.Raw:
    before, after = encode(since.before)[:-1], encode(since.after)[1:]
    return msgspec.Raw(_GAP.join((before, since.moment.encode(), after)))
