"""YAML as the server reads and writes it: the part of the language that JSON has too."""

from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from apiserver_stub.encode.json import encode
from apiserver_stub.encode.listing import Listing
from apiserver_stub.encode.yaml_reader import read
from apiserver_stub.encode.yaml_writer import write
from controller_manager.api.errors import BadRequest


def load(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """The JSON value `data` spells, and the paths of keys that came twice. Raises `BadRequest`."""
    try:
        return read(data.decode())
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise BadRequest(f"the body is not valid YAML: {' '.join(str(error).split())}") from None


def dump(data: bytes) -> bytes:
    """The YAML of JSON bytes, in block style and the same order."""
    return write(orjson.loads(data)).encode()


def pieces(listing: Listing) -> Iterator[bytes]:
    """A listing as one document, piece by piece: writing one object takes many times as long as its JSON."""
    empty = dump(encode({**listing.head, listing.array: []}))
    yield empty if not listing.objects else empty.removesuffix(b" []\n") + b"\n"
    for element in listing.elements():
        yield dump(b"[%b]" % element)
