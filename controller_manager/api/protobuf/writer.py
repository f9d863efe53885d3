"""Messages as a table describes them (`table` has its terms), written from JSON values."""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from controller_manager.api.protobuf.parts import PARTS
from controller_manager.api.protobuf.wire import Write, scalar, sized

_ZEROS: Mapping[str, Any] = MappingProxyType({"string": "", "bool": False, "int": 0, "double": 0.0})
_ABSENT = frozenset({"pointer", "list", "map"})


class Writers:
    """What writes each message, made when first asked for."""

    def __init__(self, fields: Mapping[str, Mapping[str, list[str]]]) -> None:
        self._fields = fields
        self._made: dict[str, Writer] = {}

    def __getitem__(self, name: str) -> "Writer":
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = Writer(name, self._fields[name], self)
        return found


class Writer:
    """Writes one message, its fields in the order of their numbers; what is no pointer is written even when absent."""

    def __init__(self, name: str, described: Mapping[str, list[str]], writers: Writers) -> None:
        self._described = described
        self._writers = writers
        self._parts = PARTS.get(name)

    def message(self, value: Any) -> bytes:
        """The message of a JSON value; fields nobody knows are passed over, and null is absence."""
        tree = value if self._parts is None else self._parts(value)
        puts = self._puts
        found = self._absent.copy()
        for name, part in tree.items():
            put = puts.get(name)
            if put is not None and part is not None:
                found[name] = put(part)
        if self._embedded is not None:
            found[""] = self._embedded(tree)
        return b"".join(found.values())

    @cached_property
    def empty(self) -> bytes:
        """The message of a value that nobody gave."""
        return self.message({} if self._parts is None else None)

    @cached_property
    def _puts(self) -> Mapping[str, Write]:
        return {
            name: _LABELS.get("".join(label), _one)(int(number), kind, self._writers)
            for number, (name, kind, *label) in self._described.items()
            if name
        }

    @cached_property
    def _embedded(self) -> Write | None:
        for number, (name, kind, *_) in self._described.items():
            if not name:
                return _one(int(number), kind, self._writers)
        return None

    @cached_property
    def _absent(self) -> dict[str, bytes]:
        """By name, in order, what stands for each field until it is known."""
        return {field[0]: self._zero(int(number), *field[1:]) for number, field in self._described.items()}

    def _zero(self, number: int, kind: str, label: str = "") -> bytes:
        if label in _ABSENT:
            return b""
        if "." in kind:
            return sized(number, bytes)(self._writers[kind].empty)
        return scalar(number, kind)(_ZEROS[kind]) if kind in _ZEROS else b""


def _one(number: int, kind: str, writers: Writers) -> Write:
    return sized(number, writers[kind].message) if "." in kind else scalar(number, kind)


def _list(number: int, kind: str, writers: Writers) -> Write:
    put = _one(number, kind, writers)
    return lambda values: b"".join(map(put, values))


def _map(number: int, kind: str, writers: Writers) -> Write:
    key, value = scalar(1, "string"), _one(2, kind, writers)
    put = sized(number, lambda item: key(item[0]) + value(item[1]))
    return lambda values: b"".join(map(put, sorted(values.items())))


_LABELS: Mapping[str, Callable[[int, str, Writers], Write]] = MappingProxyType({"list": _list, "map": _map})
