"""Objects in protobuf (document 1, Protobuf envelope): an envelope names a type, and holds a message of that type."""

from functools import cache

from apiserver_stub.encode.json import Tree, check_depth
from apiserver_stub.encode.protobuf.message import Messages
from apiserver_stub.kinds.data import load
from controller_manager.api.errors import BadRequest
from controller_manager.api.platform import VENDOR

MEDIA_TYPE = f"application/vnd.{VENDOR}.protobuf"

_MAGIC = b"k8s\0"


def knows(api_version: str, kind: str) -> bool:
    """Whether objects of that type can be read."""
    return _table().of(api_version, kind) is not None


def decode(body: bytes, api_version: str, kind: str) -> Tree:
    """The object in `body` as JSON would spell it, of the type the envelope names, or of this one when it is silent.

    Raises `BadRequest`.
    """
    if not body.startswith(_MAGIC):
        raise BadRequest("the body does not begin as an object in protobuf does")
    try:
        tree = _open(body[len(_MAGIC) :], api_version, kind)
    except ValueError as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from None
    check_depth(tree)
    return tree


def _open(data: bytes, api_version: str, kind: str) -> Tree:
    envelope = _table()["runtime.Unknown"].read(data)
    if "contentEncoding" in envelope or envelope.get("contentType", MEDIA_TYPE) != MEDIA_TYPE:
        raise ValueError("what is in the envelope is encoded in yet another way")
    found = {"apiVersion": api_version, "kind": kind, **envelope.get("typeMeta", {})}
    message = _table().of(found["apiVersion"], found["kind"])
    if message is None:
        raise ValueError(f'there is no kind "{found["kind"]}" in version "{found["apiVersion"]}"')
    message.fill(found, envelope.get("raw", b""))
    return found


@cache
def _table() -> Messages:
    return Messages(load("protobuf.json"))
