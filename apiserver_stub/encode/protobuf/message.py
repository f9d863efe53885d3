"""Messages as a table describes them (`kinds/data/reduce_protobuf.py` has its terms), read into JSON values."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from apiserver_stub.encode.json import Tree
from apiserver_stub.encode.protobuf.forms import FORMS
from apiserver_stub.encode.protobuf.wire import BYTES, SCALARS, VARINT, fields, varints

_DEEPEST = 100
_KEY, _VALUE = 1 << 3 | BYTES, 2 << 3 | BYTES

Read = Callable[[Any, int], Any]
"""The JSON value of what was on the wire, this many messages deep."""
_Put = Callable[[Tree, Any, int], None]
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

    def read(self, data: bytes, depth: int = 0) -> Any:
        """The JSON value the message stands for. Raises `ValueError`."""
        tree: Tree = {}
        self.fill(tree, data, depth)
        return self.form(tree) if self.form else tree

    def fill(self, tree: Tree, data: bytes, depth: int = 0) -> None:
        """Lay the fields into an object; those nobody knows are passed over. Raises `ValueError`."""
        if depth > _DEEPEST:
            raise ValueError(f"messages are nested more than {_DEEPEST} levels deep")
        puts = self._puts
        for tag, value in fields(data):
            put = puts.get(tag)
            if put is not None:
                put(tree, value, depth + 1)
            elif str(tag >> 3) in self._described:
                raise ValueError(f"the field {self._described[str(tag >> 3)][0]} is written as another type")

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
    def put(tree: Tree, value: Any, depth: int) -> None:
        found = read(value, depth)
        if found:
            tree[name] = found

    return put


def _explicit(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, depth: int) -> None:
        found = read(value, depth)
        if found is not None:
            tree[name] = found

    return put


def _list(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, depth: int) -> None:
        tree.setdefault(name, []).append(read(value, depth))

    return put


def _packed(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, depth: int) -> None:
        tree.setdefault(name, []).extend(read(number, depth) for number in varints(value))

    return put


def _map(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, depth: int) -> None:
        entry: dict[int, Any] = dict(fields(value))
        tree.setdefault(name, {})[entry.get(_KEY, b"").decode()] = read(entry.get(_VALUE, b""), depth)

    return put


def _object(name: str, message: Message) -> _Put:
    """Parts of one message that come apart are one object; one without a name is part of the object around it."""

    def put(tree: Tree, value: Any, depth: int) -> None:
        message.fill(tree.setdefault(name, {}) if name else tree, value, depth)

    return put


_LABELS: Mapping[str, Callable[[str, Read], _Put]] = MappingProxyType(
    {"": _plain, "pointer": _explicit, "required": _explicit, "list": _list, "map": _map}
)
