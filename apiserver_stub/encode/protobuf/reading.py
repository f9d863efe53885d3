"""Decode objects from protobuf into JSON trees."""

from functools import cache

from apiserver_stub.encode.json import MOST_VALUES, check_depth, check_size
from apiserver_stub.encode.protobuf.converters import CONVERTERS
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.protobuf import MAGIC, MEDIA_TYPE
from controller_manager.common.api.protobuf.reader import FieldBudget, MessageReaders
from controller_manager.common.api.protobuf.table import table
from controller_manager.common.api.tree import Tree


def decode(body: bytes, api_version: str, kind: str) -> Tree:
    """Decode the object in `body`. Its type is that of the envelope, or the given one if the envelope has none.

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
        check_size(tree)  # the budget does not include JSON embedded in a message
    return tree


def _open(body: bytes, api_version: str, kind: str, budget: FieldBudget) -> tuple[Tree, str, bytes]:
    """Return the type of the enveloped object as the start of its tree, the name of its message, and the message's
    bytes. Raises `ValueError`.
    """
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin with the prefix of an object in protobuf")
    envelope = _messages()["runtime.Unknown"].read(body[len(MAGIC) :], budget)
    if "contentEncoding" in envelope or envelope.get("contentType", MEDIA_TYPE) != MEDIA_TYPE:
        raise ValueError("the envelope contains another encoding than protobuf")
    found = {"apiVersion": api_version, "kind": kind, **envelope.get("typeMeta", {})}
    name = table().message_of(found["apiVersion"], found["kind"])
    if name is None:
        raise ValueError(f'there is no kind "{found["kind"]}" in version "{found["apiVersion"]}"')
    return found, name, envelope.get("raw", b"")


@cache
def _messages() -> MessageReaders:
    return MessageReaders(table().messages, CONVERTERS)
