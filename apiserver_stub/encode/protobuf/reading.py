"""Objects read from protobuf: a whole one, or its fields each by itself."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import orjson

from apiserver_stub.encode.json import MOST_VALUES, Tree, check_depth, check_size, encode
from apiserver_stub.encode.protobuf.converters import CONVERTERS
from apiserver_stub.kinds.findings import Findings
from controller_manager.api.errors import BadRequest
from controller_manager.api.protobuf import MAGIC, MEDIA_TYPE
from controller_manager.api.protobuf.reader import FieldBudget, MessageReaders
from controller_manager.api.protobuf.table import table
from controller_manager.api.protobuf.wire import BYTES, fields


def decode(body: bytes, api_version: str, kind: str) -> Tree:
    """Decode the object in `body` into a JSON tree, of the type its envelope names, or of this one if it names none.

    Raises `BadRequest` or `RequestEntityTooLarge`.
    """
    budget = FieldBudget(MOST_VALUES)
    try:
        tree, message, data = _open(body, api_version, kind, budget)
        apart = _fields(message, data)
        if apart is None:
            _messages()[message].fill(tree, data, budget)
        else:
            tree.update((name, _value(name, *field, budget)) for name, field in apart.items())
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
        value = _value(name, *self.fields[name], FieldBudget(MOST_VALUES))
        check_depth(value)
        return value


def unread(body: bytes, api_version: str, kind: str) -> UnreadObject | None:
    """Return the object in `body`; None if it has to be decoded as a whole. Raises `ValueError` for what is none."""
    tree, message, data = _open(body, api_version, kind, FieldBudget(MOST_VALUES))
    found = _fields(message, data)
    return None if found is None else UnreadObject(tree["apiVersion"], tree["kind"], found)


def _fields(message: str, data: bytes) -> dict[str, tuple[str, bytes]] | None:
    """Return the fields of a message as messages, with their types; None unless each is one, and comes once."""
    described = _messages_in(message)
    if not described:
        return None
    found: dict[str, tuple[str, bytes]] = {}
    with suppress(ValueError):
        for tag, value in fields(data):
            name, kind = described.get(tag, ("", ""))
            if not isinstance(value, bytes) or name in found or not name:
                return None
            found[name] = kind, value
        return found
    return None


@cache
def _messages_in(message: str) -> Mapping[int, tuple[str, str]]:
    """Return name and type of each field by its tag; none of a message with other fields than single messages."""
    described = table().messages[message]
    if any(label or not name or "." not in kind for name, kind, *label in described.values()):
        return {}
    return {int(number) << 3 | BYTES: (name, kind) for number, (name, kind, *_) in described.items()}


class _Spec:
    """A spec that has come `times` often. Once that is more than once, `data` is its JSON, of so many `fields`."""

    __slots__ = ("data", "fields", "times")

    def __init__(self) -> None:
        self.times = self.fields = 0
        self.data = b""


_SPECS = Findings(_Spec, most=256)


def _value(name: str, message: str, data: bytes, budget: FieldBudget) -> Any:
    """Return the JSON value of a field of an object. Specs come again with each update, and are read once."""
    if name != "spec":
        return _messages()[message].read(data, budget)
    known = _SPECS.of(data, message)
    if known.data:
        budget.take(known.fields)
        return orjson.loads(known.data)
    before = budget.fields
    value = _messages()[message].read(data, budget)
    known.times += 1
    if known.times > 1:
        known.data, known.fields = encode(value), before - budget.fields
    return value


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
