"""Objects read from protobuf: a whole one, or its fields each by itself."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from apiserver_stub.encode.json import MOST_VALUES, Tree, check_depth, check_size
from apiserver_stub.encode.protobuf.converters import CONVERTERS
from controller_manager.api.errors import BadRequest
from controller_manager.api.protobuf import MAGIC, MEDIA_TYPE
from controller_manager.api.protobuf.reader import FieldBudget, MessageReaders
from controller_manager.api.protobuf.table import table
from controller_manager.api.protobuf.wire import fields


def decode(body: bytes, api_version: str, kind: str) -> Tree:
    """Decode the object in `body` into a JSON tree, of the type its envelope names, or of this one if it names none.

    Raises `BadRequest` or `RequestEntityTooLarge`.
    """
    budget = FieldBudget(MOST_VALUES)
    try:
        tree, message, data = _open(body, api_version, kind, budget)
        _messages()[message].fill(tree, data, budget)
    except ValueError as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from None
    check_depth(tree)
    if len(body) > MOST_VALUES:
        check_size(tree)  # nobody has counted what is JSON within a message
    return tree


class UnreadObject(msgspec.Struct, frozen=True):
    """An object of which nothing is read but its type: the messages of its `fields` by name, as type and bytes."""

    api_version: str
    kind: str
    fields: Mapping[str, tuple[str, bytes]]

    def read(self, name: str) -> Any:
        """Return the JSON value of a field. Raises `ValueError`, or the `ApiError` of what no body may have."""
        message, data = self.fields[name]
        value = _messages()[message].read(data, FieldBudget(MOST_VALUES))
        check_depth(value)
        return value


def unread(body: bytes, api_version: str, kind: str) -> UnreadObject:
    """Return the object in `body`, each of whose fields is a message that comes once. Raises `ValueError` for any other
    body.
    """
    tree, message, data = _open(body, api_version, kind, FieldBudget(MOST_VALUES))
    described = table().messages[message]
    found: dict[str, tuple[str, bytes]] = {}
    for tag, value in fields(data):
        name, kind_of, *_ = described.get(str(tag >> 3), ("", ""))
        if not isinstance(value, bytes) or name in found or "." not in kind_of:
            raise ValueError("not all of its fields are messages that come once")
        found[name] = kind_of, value
    return UnreadObject(tree["apiVersion"], tree["kind"], found)


def _open(body: bytes, api_version: str, kind: str, budget: FieldBudget) -> tuple[Tree, str, bytes]:
    """Return of what is in an envelope its type, as the beginning of its tree, and its message: which one, and its
    bytes. Raises `ValueError`.
    """
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin as an object in protobuf does")
    envelope = _messages()["runtime.Unknown"].read(body[len(MAGIC) :], budget)
    if "contentEncoding" in envelope or envelope.get("contentType", MEDIA_TYPE) != MEDIA_TYPE:
        raise ValueError("what is in the envelope is encoded in yet another way")
    found = {"apiVersion": api_version, "kind": kind, **envelope.get("typeMeta", {})}
    name = table().message_of(found["apiVersion"], found["kind"])
    if name is None:
        raise ValueError(f'there is no kind "{found["kind"]}" in version "{found["apiVersion"]}"')
    return found, name, envelope.get("raw", b"")


@cache
def _messages() -> MessageReaders:
    return MessageReaders(table().messages, CONVERTERS)
