"""The gRPC services that this project calls: methods and messages as data.

`reduce.py` writes a file per service: `methods` holds by name the path of a method and its request and response
messages, `messages` is a table like that of objects (`api/protobuf/table.py`). Messages are plain dictionaries: bytes
are bytes, enums are numbers, absent or zero fields may be missing, and at most one field of a `oneof` is set. Fields
that are present are written even if they are zero.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

import msgspec

from controller_manager.common.api.errors import RequestEntityTooLarge
from controller_manager.common.api.protobuf.reader import FieldBudget, MessageReader, MessageReaders
from controller_manager.common.api.protobuf.wire import MessageWriters
from controller_manager.common.api.tree import Tree

__all__ = ["Message", "Method", "Service", "service"]

_MOST_FIELDS = 1_000_000  # fields of a received message


class Message(NamedTuple):
    """The writer and the reader of a message; the reader raises `ValueError`."""

    write: Callable[[Tree], bytes]
    read: Callable[[bytes], Tree]


class Method(NamedTuple):
    """A method of a service: its path, and its request and response messages."""

    path: str
    request: Message
    answer: Message


Service = Mapping[str, Method]
"""The methods of a service by name."""


class _Described(msgspec.Struct, frozen=True):
    methods: dict[str, tuple[str, str, str]]
    messages: dict[str, dict[str, list[str]]]


@cache
def service(name: str) -> Service:
    """Return a service: `etcd`, `external_jwt`, `kms_v2` or `konnectivity`. Raises `FileNotFoundError` otherwise."""
    found = msgspec.json.decode(files(__package__).joinpath(f"{name}.json").read_bytes(), type=_Described)
    writers, readers = MessageWriters(found.messages), MessageReaders(found.messages)

    def message(name: str) -> Message:
        return Message(writers[name].message, partial(_read, readers[name]))

    return {
        method: Method(path, message(request), message(answer))
        for method, (path, request, answer) in found.methods.items()
    }


def _read(reader: MessageReader, data: bytes) -> Tree:
    found: Tree = {}
    try:
        reader.fill(found, data, FieldBudget(_MOST_FIELDS))
    except RequestEntityTooLarge as error:
        raise ValueError(error.message) from None
    return found
