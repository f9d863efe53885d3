"""Check that an applied configuration matches its schema, with the errors of structured-merge-diff."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.structural.shapes import takes
from apiserver_stub.patch.field_set import render, to_keyed, to_value
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.tree import Tree

_MOST = 50  # problems in one error
_LONGEST_STEP = 256  # characters
_NO_SCALAR = "expected any scalar, got &{{{}}}"
_CONSTANTS: Mapping[bool | None, str] = {None: "<nil>", True: "true", False: "false"}
_GO_TYPES: Mapping[type, str] = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}


class NotJSON:
    """A value that JSON cannot express: as Go prints it, its Go type, and as Go source."""

    __slots__ = ("go_type", "literal", "text")

    def __init__(self, text: str, go_type: str, literal: str = "") -> None:
        self.text = text
        self.go_type = go_type
        self.literal = literal or text


def check_typed(tree: Tree, schema: Schema, what: str = "") -> None:
    """Raises `UnknownError` if an object has unknown fields or wrong types. The message begins with `what`."""
    found = []
    for path, why in _misfits(tree, schema, "", again=False):
        found.append(f"{path}: {why}")
        if len(found) == _MOST:
            break
    if found:
        listed = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
        raise UnknownError(f"{what}: {listed}" if what else listed)


def is_typed(tree: Tree, schema: Schema) -> bool:
    """Return whether an object has the fields and types of its schema. Duplicate list elements are allowed."""
    if isinstance(schema, StructuralSchema) and takes(schema, tree):
        return True
    return next(_misfits(tree, schema, "", again=True), None) is None


def _misfits(value: Any, schema: Schema, path: str, *, again: bool) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    match schema.type:
        case "object":
            yield from _object(value, schema, path, again=again)
        case "array":
            yield from _array(value, schema, path, again=again)
        case "integer" | "number" if type(value) not in (int, float):
            yield path, f"expected numeric (int or float), got {_go_type(value)}"
        case "boolean" if type(value) is not bool:
            yield path, f"expected boolean, got &{{{_text(value)}}}"
        case "int-or-string" | "quantity" | "time" | "micro-time" if isinstance(value, NotJSON):
            yield path, _NO_SCALAR.format(value.text)
        case "string" | "time" | "micro-time" | "bytes" if type(value) is not str:
            yield path, f"expected string, got &value.valueUnstructured{{Value:{_literal(value)}}}"


def _go_type(value: Any) -> str:
    return value.go_type if isinstance(value, NotJSON) else _GO_TYPES.get(type(value), "map[string]interface {}")


def _text(value: Any) -> str:
    """Return a value as Go prints it."""
    if isinstance(value, NotJSON):
        return value.text
    if type(value) is list:
        return f"[{' '.join(map(_text, value))}]"
    if type(value) is dict:
        return f"map[{' '.join(f'{name}:{_text(value[name])}' for name in sorted(value))}]"
    return _CONSTANTS[value] if value is None or type(value) is bool else str(value)


def _literal(value: Any) -> str:
    """Return a value as Go source."""
    if isinstance(value, NotJSON):
        return value.literal
    if type(value) is list:
        return f"[]interface {{}}{{{', '.join(map(_literal, value))}}}"
    if type(value) is dict:
        members = ", ".join(f"{_literal(name)}:{_literal(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    return json.dumps(value, ensure_ascii=False) if type(value) is str else _text(value)


def _object(value: Any, schema: Schema, path: str, *, again: bool) -> Iterator[tuple[str, str]]:
    if type(value) is not dict:
        yield path, f"expected map, got &{{{_text(value)}}}"
        return
    fields, values = schema.fields, schema.values
    open_ended = schema.preserve or not (fields or values)
    for name in sorted(value):
        inner = fields.get(name) or values
        if inner is not None:
            yield from _misfits(value[name], inner, f"{path}.{_shortened(name)}", again=again)
        elif not open_ended:
            yield f"{path}.{_shortened(name)}", "field not declared in schema"


def _array(value: Any, schema: Schema, path: str, *, again: bool) -> Iterator[tuple[str, str]]:
    if type(value) is not list:
        yield path, f"expected list, got &{{{_text(value)}}}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        step = f"[{index}]"
        if schema.list_type in ("set", "map"):
            key, why = _step(item, schema)
            if why:
                yield path, f"element {index}: {why}"
                return
            step = _shortened(render((key,)))
            if key in seen and not again:
                yield path, f"duplicate entries for key {step}"
            seen.add(key)
        yield from _misfits(item, schema.items or ANYTHING, path + step, again=again)


def _shortened(step: str) -> str:
    """Return the beginning of a long step: the paths of all values below it repeat it."""
    return step if len(step) <= _LONGEST_STEP else f"{step[:_LONGEST_STEP]}..."


def _step(item: Any, schema: Schema) -> tuple[str, str]:
    """Return the path step of an element of a set or a map, or the reason why it has none."""
    if schema.list_type == "set":
        if item is None:
            return "", "associative list without keys has an element that's an explicit null"
        if type(item) is dict:
            return "", "associative list without keys has an element that's a map type"
        if type(item) is list:
            return "", "not supported: associative list with lists as elements"
        return to_value(_scalar(item)), ""
    return _keyed_step(item, schema)


def _scalar(value: Any) -> Any:
    """Return the form of a value in a path step: its text if it is not a scalar."""
    return _text(value) if type(value) in (dict, list) or isinstance(value, NotJSON) else value


def _keyed_step(item: Any, schema: Schema) -> tuple[str, str]:
    if item is None:
        return "", "associative list with keys may not have a null element"
    if type(item) is not dict:
        return "", "associative list with keys may not have non-map elements"
    fields = schema.items.fields if schema.items is not None else {}
    defaults = {name: fields[name].default for name in schema.list_map_keys if name in fields}
    keys = {name: item.get(name, defaults.get(name)) for name in schema.list_map_keys}
    named = {name: _scalar(value) for name, value in keys.items() if value is not None or name in item}
    if not named:
        listed = " ".join(f'"{name}"' for name in schema.list_map_keys)
        omits = f"associative list with keys has an element that omits all key fields [{listed}]"
        return "", f"{omits} (and doesn't have default values for any key fields)"
    return to_keyed(named), ""
