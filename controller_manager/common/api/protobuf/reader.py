"""Readers of protobuf messages, built from a table."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from controller_manager.common.api.errors import RequestEntityTooLarge
from controller_manager.common.api.protobuf.wire import BYTES, SCALARS, VARINT, fields, varints
from controller_manager.common.api.tree import Tree

_DEEPEST = 100
_KEY, _VALUE = 1 << 3 | BYTES, 2 << 3 | BYTES


class FieldBudget:
    """The limits of one body: `most` is the remaining number of fields; the nesting depth is tracked as
    well.
    """

    __slots__ = ("depth", "fields", "most")

    def __init__(self, most: int) -> None:
        self.depth = 0
        self.fields = self.most = most

    def take(self, count: int) -> None:
        """Count fields. Raises `RequestEntityTooLarge`."""
        self.fields -= count
        if self.fields < 0:
            raise RequestEntityTooLarge(f"the object has more than {self.most} fields")


Read = Callable[[Any, FieldBudget], Any]
"""Returns the JSON value of a wire value."""
_Put = Callable[[Tree, Any, FieldBudget], None]
"""Sets a field of an object."""
Convert = Callable[[Tree], Any]
"""Returns the JSON value of a message that is not an object in JSON, from its fields; None for no value."""
_NONE: Mapping[str, Convert] = MappingProxyType({})


class MessageReaders:
    """The readers of all messages, created on demand; `converters` by message."""

    def __init__(
        self, fields: Mapping[str, Mapping[str, list[str]]], converters: Mapping[str, Convert] = _NONE
    ) -> None:
        self._fields = fields
        self._converters = converters
        self._made: dict[str, MessageReader] = {}

    def __getitem__(self, name: str) -> "MessageReader":
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = MessageReader(self._fields[name], self, self._converters.get(name))
        return found


class MessageReader:
    """The reader of one message: a setter for each tag. A tag is a field's number and
    wire type.
    """

    def __init__(
        self, described: Mapping[str, list[str]], messages: MessageReaders, convert: Convert | None = None
    ) -> None:
        self._described = described
        self._messages = messages
        self.convert = convert

    def read(self, data: bytes, budget: FieldBudget) -> Any:
        """Return the JSON value of a message. Raises like `fill`."""
        tree: Tree = {}
        self.fill(tree, data, budget)
        return self.convert(tree) if self.convert else tree

    def fill(self, tree: Tree, data: bytes, budget: FieldBudget) -> None:
        """Set the fields of an object from a message; unknown fields are skipped.

        Raises `ValueError`, or `RequestEntityTooLarge` if there are too many fields.
        """
        budget.depth += 1
        if budget.depth > _DEEPEST:
            raise ValueError(f"messages are nested more than {_DEEPEST} levels deep")
        puts = self._puts
        for tag, value in fields(data):
            budget.fields -= 1
            put = puts.get(tag)
            if put is not None:
                put(tree, value, budget)
            elif str(tag >> 3) in self._described:
                raise ValueError(f"the field {self._described[str(tag >> 3)][0]} is written as another type")
            if budget.fields < 0:
                budget.take(0)
        budget.depth -= 1

    @cached_property
    def _puts(self) -> Mapping[int, _Put]:
        found: dict[int, _Put] = {}
        for number, field in self._described.items():
            found.update({int(number) << 3 | written: put for written, put in self._fields_on_wire(*field)})
        return found

    def _fields_on_wire(self, name: str, kind: str, label: str = "") -> Iterator[tuple[int, _Put]]:
        """Yield the allowed wire types of a field, with setters."""
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
            yield BYTES, _explicit(name, message.read) if message.convert else _object(name, message)


def _plain(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, budget: FieldBudget) -> None:
        found = read(value, budget)
        if found:
            tree[name] = found

    return put


def _explicit(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, budget: FieldBudget) -> None:
        found = read(value, budget)
        if found is not None:
            tree[name] = found

    return put


def _list(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, budget: FieldBudget) -> None:
        tree.setdefault(name, []).append(read(value, budget))

    return put


def _packed(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, budget: FieldBudget) -> None:
        budget.take(len(value))
        tree.setdefault(name, []).extend(read(number, budget) for number in varints(value))

    return put


def _map(name: str, read: Read) -> _Put:
    def put(tree: Tree, value: Any, budget: FieldBudget) -> None:
        entry: dict[int, Any] = dict(fields(value))
        tree.setdefault(name, {})[entry.get(_KEY, b"").decode()] = read(entry.get(_VALUE, b""), budget)

    return put


def _object(name: str, message: MessageReader) -> _Put:
    """Return the setter of an embedded message: repeated ones are merged; one without a name is inlined."""

    def put(tree: Tree, value: Any, budget: FieldBudget) -> None:
        message.fill(tree.setdefault(name, {}) if name else tree, value, budget)

    return put


_LABELS: Mapping[str, Callable[[str, Read], _Put]] = MappingProxyType(
    {"": _plain, "pointer": _explicit, "required": _explicit, "list": _list, "map": _map}
)
