"""Messages as a table describes them (`api/protobuf/table.py` has its terms), read into JSON values."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from apiserver_stub.encode.json import MOST_VALUES, Tree
from apiserver_stub.encode.protobuf.forms import FORMS
from controller_manager.api.errors import RequestEntityTooLarge
from controller_manager.api.protobuf.wire import BYTES, SCALARS, VARINT, fields, varints

_DEEPEST = 100
_KEY, _VALUE = 1 << 3 | BYTES, 2 << 3 | BYTES


class Room:
    """How many fields may still come in all messages of one body, and how deep in them the reader is."""

    __slots__ = ("depth", "fields")

    def __init__(self) -> None:
        self.depth = 0
        self.fields = MOST_VALUES

    def take(self, count: int) -> None:
        """So many more have come. Raises `RequestEntityTooLarge`."""
        self.fields -= count
        if self.fields < 0:
            raise RequestEntityTooLarge(f"the object has more than {MOST_VALUES} fields")


Read = Callable[[Any, Room], Any]
"""The JSON value of what was on the wire."""
_Put = Callable[[Tree, Any, Room], None]
"""Lays a field into an object."""


class Messages:
    """Every message there is, made when first asked for."""

    def __init__(self, fields: Mapping[str, Mapping[str, list[str]]]) -> None:
        self._fields = fields
        self._made: dict[str, Message] = {}

    def __getitem__(self, name: str) -> "Message":
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = Message(name, self._fields[name], self)
        return found


class Message:
    """One message: by tag, what becomes of its fields. A tag tells the number of a field and how it is written."""

    def __init__(self, name: str, described: Mapping[str, list[str]], messages: Messages) -> None:
        self._described = described
        self._messages = messages
        self.form = FORMS.get(name)

    def read(self, data: bytes, room: Room) -> Any:
        """The JSON value the message stands for. Raises as `fill`."""
        tree: Tree = {}
        self.fill(tree, data, room)
        return self.form(tree) if self.form else tree

    def fill(self, tree: Tree, data: bytes, room: Room) -> None:
        """Lay the fields into an object; those nobody knows are passed over.

        Raises `ValueError`, or `RequestEntityTooLarge` when there are more than room is for.
        """
        room.depth += 1
        if room.depth > _DEEPEST:
            raise ValueError(f"messages are nested more than {_DEEPEST} levels deep")
        puts = self._puts
        for tag, value in fields(data):
            room.fields -= 1
            put = puts.get(tag)
            if put is not None:
                put(tree, value, room)
            elif str(tag >> 3) in self._described:
                raise ValueError(f"the field {self._described[str(tag >> 3)][0]} is written as another type")
            if room.fields < 0:
                room.take(0)
        room.depth -= 1

    @cached_property
    def _puts(self) -> Mapping[int, _Put]:
        found: dict[int, _Put] = {}
        for number, field in self._described.items():
            found.update({int(number) << 3 | written: put for written, put in self._ways(*field)})
        return found

    def _ways(self, name: str, kind: str, label: str = "") -> Iterator[tuple[int, _Put]]:
        """The wire types a field may have, and how it is laid into an object."""
        if kind in SCALARS:
            written, read = SCALARS[kind]
            yield written, _LABELS[label](name, read)
            if label == "list" and written == VARINT:
                yield BYTES, _packed(name, read)
            return
        message = self._messages[kind]
        if label in ("list", "map"):
            yield BYTES, _LABELS[label](name, message.read)
        else:
            yield BYTES, _explicit(name, message.read) if message.form else _object(name, message)


def _plain(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, room: Room) -> None:
        found = read(value, room)
        if found:
            tree[name] = found

    return put


def _explicit(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, room: Room) -> None:
        found = read(value, room)
        if found is not None:
            tree[name] = found

    return put


def _list(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, room: Room) -> None:
        tree.setdefault(name, []).append(read(value, room))

    return put


def _packed(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, room: Room) -> None:
        room.take(len(value))
        tree.setdefault(name, []).extend(read(number, room) for number in varints(value))

    return put


def _map(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, room: Room) -> None:
        entry: dict[int, Any] = dict(fields(value))
        tree.setdefault(name, {})[entry.get(_KEY, b"").decode()] = read(entry.get(_VALUE, b""), room)

    return put


def _object(name: str, message: Message) -> _Put:
    """Parts of one message that come apart are one object; one without a name is part of the object around it."""

    def put(tree: Tree, value: Any, room: Room) -> None:
        message.fill(tree.setdefault(name, {}) if name else tree, value, room)

    return put


_LABELS: Mapping[str, Callable[[str, Read], _Put]] = MappingProxyType(
    {"": _plain, "pointer": _explicit, "required": _explicit, "list": _list, "map": _map}
)
