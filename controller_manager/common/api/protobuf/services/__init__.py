"""The gRPC services that this project speaks to: their methods and messages, as data.

There is a file for each service, written by `reduce.py`: `methods` has by name the path of a method and the messages
of its request and its answer, `messages` is a table as of objects (`api/protobuf/table.py`). Messages are plain
dictionaries: bytes are bytes, enumerations are numbers, a field that is absent or zero may be missing, and of a `oneof`
there is one field. What is there is written even if it is zero.
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

_MOST_FIELDS = 1_000_000  # of a message that was received


class Message(NamedTuple):
    """A message: what writes it, and what reads it or raises `ValueError`."""

    write: Callable[[Tree], bytes]
    read: Callable[[bytes], Tree]


class Method(NamedTuple):
    """A method of a service: its path, and the messages of requests and answers."""

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
    """Return a service: `etcd`, `external_jwt`, `kms_v2` or `konnectivity`. Raises `FileNotFoundError` for others."""
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
