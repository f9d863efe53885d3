"""Fit a decoded tree to its schema in one pass and report what did not fit. Values are not validated here."""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

from apiserver_stub.common.error_list import FieldPath, render, shortened
from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.kinds.schema.schema_types import Shape, fitting, takes
from apiserver_stub.kinds.schema.zero_values import fill
from controller_manager.common.api.quantity import canonical
from controller_manager.common.api.timestamps import format_micro, format_time, parse_time
from controller_manager.common.api.tree import Tree

DEEPEST = 150
_WORDS = MappingProxyType({dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"})
_BOUNDS = MappingProxyType({"int32": 2**31, "int64": 2**63})
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_MICROSECONDS = re.compile(r":\d\d\.\d{6}(?!\d)")
_FRACTION = re.compile(r"(\.\d{6})\d+")
_NO_MICRO_TIME = "0001-01-01T00:00:00.000000Z"
_NO_TIME = "0001-01-01T00:00:00Z"  # written by clients that have a time field without a value
# The value that replaces a null in an array or a map. Objects and arrays get a new one each time.
_EMPTY: Mapping[str, Any] = MappingProxyType({
    "string": "", "bytes": "", "boolean": False, "integer": 0, "number": 0, "int-or-string": 0, "quantity": "0",
})  # fmt: skip
_CONTAINERS: Mapping[str, Callable[[], Any]] = MappingProxyType({"object": dict, "array": list})

MOST_REPORTED = 200
"""The maximum number of unknown fields, and of wrong values, in a report."""


@dataclass(frozen=True, slots=True)
class Report:
    """The fields that did not fit: the paths of `unknown` fields (removed) and a sentence for each `wrong` value (left
    alone). Both are cut to a maximum number.
    """

    unknown: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


_FITS = Report()
_INNER = frozenset({dict, list})


class _WrongError(Exception):
    """A value has the wrong type. The message says which type was expected."""


class _Kind(Protocol):
    @property
    def schema(self) -> Schema: ...


def clean(tree: Tree, kind: _Kind) -> Report:
    """Fit an object to its kind, in place. See `clean_tree`."""
    return clean_tree(tree, kind.schema)


def clean_tree(tree: Tree, node: Schema) -> Report:
    """Fit `tree` to `node`, in place.

    Unknown fields, nulls and empty values with no meaning are removed, fields that are always present get their empty
    value, times and quantities get their canonical form. A second call changes nothing.
    """
    report = _FITS if takes(fitting(node), tree) else _swept(tree, node, takes)
    if not report.wrong:
        fill(node, tree)
    return report


def sweep(tree: Tree, node: Schema) -> Report:
    """Fit a tree as `clean_tree` does, but check every value one by one and do not add absent fields."""
    return _swept(tree, node, lambda _shape, _value: False)


def _swept(tree: Tree, node: Schema, is_right: Callable[[Shape, Any], bool]) -> Report:
    found = _Sweep(is_right)
    found.object(tree, node, None, 0)
    return Report(tuple(found.unknown), tuple(found.wrong))


class _Sweep:
    """One pass over one tree. It skips the parts for which `is_right` says that they match their shape."""

    __slots__ = ("_is_right", "unknown", "wrong")

    def __init__(self, is_right: Callable[[Shape, Any], bool]) -> None:
        self._is_right = is_right
        self.unknown: list[str] = []
        self.wrong: list[str] = []

    def value(self, value: Any, node: Schema, where: FieldPath, depth: int) -> Any:
        """Return the value to keep, None for a zero time. Report values that cannot be kept."""
        if type(value) in _INNER and self._is_right(fitting(node), value):
            return value
        if type(value) is dict and node.type == "object":
            if depth > DEEPEST:
                self._complain(where, "nested too deeply")
            elif node.is_map:
                self._map(value, node, where, depth + 1)
            else:
                self.object(value, node, where, depth + 1)
        elif type(value) is list and node.type == "array":
            self._array(value, node, where, depth + 1)
        elif node.embeds is not None:
            return self._embedded(value, node, node.embeds, where, depth)
        else:
            try:
                return _LEAVES[node.type](value, node)
            except _WrongError as error:
                self._complain(where, error)
        return value

    def _embedded(self, value: Any, node: Schema, inner: Schema, where: FieldPath, depth: int) -> Any:
        """Fit objects inside values of any type. Their unknown fields are not reported, because Go decodes them
        separately. With the format `boolean` a boolean may replace the object, with `array` an array of objects. Other
        values are invalid.
        """
        sweep = _Sweep(self._is_right)
        if type(value) is dict:
            sweep.value(value, inner, where, depth)
        elif node.format == "boolean":
            if type(value) is not bool:
                self._complain(where, "boolean or JSON schema expected")
        elif type(value) is list:
            for index, item in enumerate(value):
                if type(item) is dict:
                    sweep.value(item, inner, (where, index), depth + 1)
                elif node.format:
                    self._complain((where, index), _expected("object", item))
        self.wrong += sweep.wrong[: MOST_REPORTED - len(self.wrong)]
        is_empty = node.format == "array" and type(value) is not dict and not (value and type(value) is list)
        return None if is_empty else value

    def _complain(self, where: FieldPath, why: object) -> None:
        if len(self.wrong) < MOST_REPORTED:
            self.wrong.append(f"{render(where, _step)}: {why}")

    def object(self, tree: Tree, node: Schema, where: FieldPath, depth: int) -> None:
        """Keep the fields of an object that fit."""
        fields = node.fields
        gone: list[str] = []
        for name, value in tree.items():
            field = fields.get(name)
            if field is None:
                if not node.preserve:
                    gone.append(name)
                    if len(self.unknown) < MOST_REPORTED:
                        self.unknown.append(render((where, name), _step))
            elif type(value) is field.exact and (value or not field.omits):
                continue
            else:
                kept = None if value is None else self.value(value, field, (where, name), depth)
                if field.null_when_absent and (kept is None or kept == []):
                    tree[name] = None
                elif kept is None or (not kept and type(kept) in field.omits):
                    gone.append(name)
                else:
                    tree[name] = kept
        for name in gone:
            del tree[name]

    def _map(self, tree: Tree, map_node: Schema, where: FieldPath, depth: int) -> None:
        node = map_node.values or ANYTHING
        for name, value in tree.items():
            if value is None:
                tree[name] = empty(node)
            elif type(value) is not node.exact:
                tree[name] = self.value(value, node, (where, name), depth)

    def _array(self, items: list[Any], node: Schema, where: FieldPath, depth: int) -> None:
        item = node.items
        if item is None:
            return
        for index, value in enumerate(items):
            if value is None:
                items[index] = empty(item)
            elif type(value) is not item.exact:
                items[index] = self.value(value, item, (where, index), depth)


def empty(node: Schema) -> Any:
    """Return the value that a null in a map or an array means. None if null is an ordinary value there."""
    container = _CONTAINERS.get(node.type)
    return container() if container else _EMPTY.get(node.type)


def _step(name: str) -> str:
    """Return a name as report paths show it: `metadata.labels[app.kubernetes.io/name]`."""
    short = shortened(name)
    return f"[{short}]" if "." in short or "/" in short else f".{short}"


def _expected(word: str, value: Any) -> _WrongError:
    return _WrongError(f"expected {word}, got {_WORDS.get(type(value), 'number')}")


def _same(value: Any, _node: Schema) -> Any:
    return value


def _string(value: Any, _node: Schema) -> Any:
    if type(value) is not str:
        raise _expected("string", value)
    return value


def _boolean(value: Any, _node: Schema) -> Any:
    if type(value) is not bool:
        raise _expected("boolean", value)
    return value


def _integer(value: Any, node: Schema) -> Any:
    if type(value) is not int:
        raise _expected("integer", value)
    bound = _BOUNDS.get(node.format, 2**63)
    if not -bound <= value < bound:
        raise _WrongError(f"{value} does not fit {node.format or 'int64'}")
    return value


def _number(value: Any, _node: Schema) -> Any:
    if type(value) not in (int, float):
        raise _expected("number", value)
    return value


def _int_or_string(value: Any, _node: Schema) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise _expected("integer or string", value)
    return value


def _quantity(value: Any, node: Schema) -> Any:
    if type(value) in (int, float):
        value = repr(value)
    if type(value) is not str:
        raise _expected("quantity", value)
    if takes(fitting(node), value):
        return value
    try:
        return canonical(value.strip(), 3 if node.format == "milli" else 9)
    except ValueError as error:
        raise _WrongError(str(error)) from None


def _bytes(value: Any, _node: Schema) -> Any:
    if type(value) is not str:
        raise _expected("string", value)
    text = value.replace("\n", "").replace("\r", "")
    try:
        a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        raise _WrongError("expected base64 text") from None
    return text


def _time(value: Any, node: Schema) -> Any:
    if takes(fitting(node), value):
        return value
    if type(value) is str and _PLAIN_TIME.fullmatch(value):
        return None if value == _NO_TIME else _plain(value)
    return format_time(_moment(value))


def _plain(text: str) -> str:
    _moment(text)
    return text


def _micro_time(value: Any, _node: Schema) -> Any:
    if value == _NO_MICRO_TIME:
        return None
    moment = _moment(value)
    if not _MICROSECONDS.search(value):
        raise _WrongError(f"{value!r} must have six fractional digits")
    return format_micro(moment)


def _moment(value: Any) -> datetime:
    if type(value) is not str:
        raise _expected("time", value)
    if not _TIME.fullmatch(value):
        raise _WrongError(f"{value!r} is no RFC 3339 time")
    try:
        return parse_time(_FRACTION.sub(r"\1", value)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _WrongError(f"{value!r} is no RFC 3339 time") from None


def _container(value: Any, node: Schema) -> Any:
    raise _expected(node.type, value)


_LEAVES: Mapping[str, Callable[[Any, Schema], Any]] = MappingProxyType({
    "any": _same, "string": _string, "boolean": _boolean, "integer": _integer, "number": _number,
    "int-or-string": _int_or_string, "quantity": _quantity, "bytes": _bytes, "time": _time,
    "micro-time": _micro_time, "object": _container, "array": _container,
})  # fmt: skip
